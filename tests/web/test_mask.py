"""Masks of payloads: values of secret keys at any depth, in JSON inside text, and in malformed JSON."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from craftcore.config.web_settings import MASKED, WebSettings
from craftcore.serialization.display import shorten
from craftcore.web.excerpt import excerpt_of_event
from craftcore.web.mask import REST_HIDDEN, TOO_DEEP, mask, masked_text
from tests.support.web_actions import ADA, make_site

SECRET = "§" * 12
"""No other text of these tests has this character, so a part of the secret is found as well."""
SIGNS = st.characters(exclude_characters="§")
TEXT = st.text(SIGNS, max_size=10)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT | st.sampled_from(['a "token" b', "it's: \\", "{", '["']),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)
SPELLINGS = [str, str.upper, str.title, lambda word: word.replace("_", "-"), lambda word: word.replace("_", "")]


def encode_plain(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def encode_quotes(value: object) -> str:
    r"""Write a quote within text as `\u0022`, as encoders for web pages do."""
    return re.sub(r"\\(.)", lambda found: "\\u0022" if found[1] == '"' else found[0], json.dumps(value))


ENCODE = st.sampled_from([encode_plain, json.dumps, encode_quotes, lambda value: json.dumps(value, indent=1)])


@st.composite
def secret_keys(draw):
    word = draw(st.sampled_from(SPELLINGS))(draw(st.sampled_from(MASKED)))
    return f"{draw(TEXT)}{word}{draw(TEXT)}"


@st.composite
def values_with_secrets(draw, max_encoded=3):
    """Draw a value that has the secret under a secret key, with other values and text around it."""
    value = {**draw(st.dictionaries(TEXT, JSON, max_size=2)), draw(secret_keys()): draw(st.sampled_from(SECRETS))}
    for _ in range(draw(st.integers(0, max_encoded))):
        around = draw(st.lists(JSON, max_size=2))
        value = draw(ENCODE)(draw(st.sampled_from([value, [*around, value], {"a": around, "b": value}])))
    return value


SECRETS = [SECRET, [SECRET, 1], {"value": [{"inner": SECRET}]}, json.dumps({"a": SECRET}, ensure_ascii=False)]


@settings(max_examples=25)
@given(values_with_secrets(), st.sampled_from([None, 1]))
def test_secret_is_masked_at_any_depth_and_in_json_inside_text(value, indent):
    assert "§" not in masked_text(value, MASKED, indent)
    assert "§" not in masked_text({"all": [value]}, MASKED, indent)


def has_secret(text: str) -> bool:
    """Return whether a text has a part of the secret, plain or escaped."""
    return "§" in text or "u00a7" in text


@settings(max_examples=25)
@given(values_with_secrets(), ENCODE, st.integers(0, 100))
@example(f'{{"password\\"": "{SECRET}"}}', encode_quotes, 100)
def test_secret_in_cut_json_is_masked(value, encode, percent):
    text = encode(value)
    cut = text[: len(text) * percent // 100]

    shown = masked_text(cut, MASKED)
    assert not has_secret(shown)
    assert masked_text(shown, MASKED) == shown
    assert not has_secret(masked_text({"before": cut, "after": None}, MASKED))
    assert not has_secret(masked_text(f"the answer was {text}, and no more", MASKED))


@settings(max_examples=25)
@given(values_with_secrets(), ENCODE, st.integers(0, 90))
def test_secret_in_json_with_its_middle_cut_out_is_masked(value, encode, keep):
    """The key may be in the cut part, and the rest of the value at the end of the text."""
    text = shorten(encode({"first": 1, "value": value}), keep + 2)

    assert not has_secret(masked_text(text, MASKED))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ('{"a":{"password":"§"},"a":1}', f'{{"a":{{"password": {REST_HIDDEN}'),
        (r'"{\"password\": \"§\"}"', r'"{\"password\": \"***\"}"'),
        ('{"n": 1}\n\n{"apiKey": "§", "n": 2}\n{"to', '{"n": 1}\n\n{"apiKey": "***", "n": 2}\n{"to'),
        ('{"n": 1}\n{"apiKey": "§"}\n{"token": "§', f'{{"n": 1}}\n{{"apiKey": "***"}}\n{{"token": {REST_HIDDEN}'),
        ('{"n": 1}\nstarted\n{"ApiKey": "§"}', f'{{"n": 1}}\nstarted\n{{"ApiKey": {REST_HIDDEN}'),
        ('{"n": 1}\n{"token"\n:"§"}', f'{{"n": 1}}\n{{"token"\n: {REST_HIDDEN}'),
        ('\ufeff {"token": "§"}', '{"token": "***"}'),
        ('\u00a0\n\t[{"token": "§"}]\n', '[{"token": "***"}]'),
        ('{"x": 1, "pass\\u0077ord" : "§', f'{{"x": 1, "pass\\u0077ord" : {REST_HIDDEN}'),
        ('{"token, \\"new\\"": "§', f'{{"token, \\"new\\"": {REST_HIDDEN}'),
        ("{'api-key': '§', 'n': None}", f"{{'api-key': {REST_HIDDEN}"),
        ('HTTP 401: {"client_secret":"§"}', f'HTTP 401: {{"client_secret": {REST_HIDDEN}'),
        ("[" * 100_000, TOO_DEEP),
        ('{"a":' * 100_000 + '{"password": "§"}', TOO_DEEP),
    ],
    ids=range(14),
)
def test_malformed_json_is_shown_without_its_secret(text, shown):
    assert masked_text(text, MASKED) == shown
    assert masked_text([text], MASKED) == json.dumps([shown], ensure_ascii=False)


def test_key_that_is_json_is_masked():
    assert mask({'{"\\u0074oken": "§"}': 1}, MASKED) == {'{"token": "***"}': 1}


@pytest.mark.parametrize("key", ["apiKey", "ApiKey", "X-API-KEY", "api key", "apikey", "my_Api_Key_2", "API\tKEY"])
@pytest.mark.parametrize("word", ["api_key", "apikey", "API-Key"])
def test_key_is_compared_without_separators_and_case(key, word):
    assert mask({key: "§"}, [word]) == {key: "***"}


def test_key_that_only_resembles_a_word_is_shown():
    value = {"api": 1, "key": 2, "keyApi": 3, "tok-e": 4, "passwor": 5, "": 6}

    assert mask(value, MASKED) == value


@settings(max_examples=25)
@given(JSON, ENCODE, st.integers(0, 3), st.sampled_from(["", "\n", "\ufeff", " and", ","]))
@example({"a": float("nan"), "b": 1e999, "c": -0.0}, json.dumps, 2, "")
def test_value_without_secret_keys_keeps_its_spelling(value, encode, times, end):
    assert mask(value, [SECRET]) == value
    for _ in range(times):
        value = encode(value)
    text = encode(value) + end

    assert masked_text(text, [SECRET]) == text
    assert masked_text(text[: len(text) // 2], [SECRET]) == text[: len(text) // 2]


@settings(max_examples=25)
@given(st.text(SIGNS, max_size=60) | st.text("{}[]\"':\\, \nau0022", max_size=60))
def test_text_of_any_characters_without_a_secret_is_unchanged(text):
    assert masked_text(text, [SECRET]) == text
    assert masked_text(text, []) == text


@pytest.mark.parametrize(
    "text",
    [
        "The token of Ada is old: she has to log in again.",
        'Ask Ada for the "token", then: go on. Her password is not "12345": it is longer.',
        "[INFO] token: refreshed; it's the cookie's 2nd day",
        "{the password: see the safe}",
        '{"note": "a token, as \\"token\\" is", "n": 1',
        '["token", "password", 3, ',
        'Traceback: [... 12 characters cut ...] KeyError: "cookie"',
    ],
)
def test_prose_and_values_that_name_a_secret_are_shown(text):
    assert masked_text(text, MASKED) == text


@pytest.mark.parametrize("sign", ['"', "\\", '\\"', '":', "\\u0022", "' :", '" ', '{"', "[\n", '"\\n'])
def test_long_text_of_any_character_is_read_once(sign):
    """A pattern with quadratic time would take hours here."""
    text = sign * 100_000

    assert masked_text(text, MASKED) in (text, TOO_DEEP)


@pytest.mark.parametrize("words", [("data",), ("DA_TA",), ("pin",)])
def test_excerpt_of_an_event_is_masked_by_the_names_of_its_parts(tmp_path, words):
    visit = replace(make_site(tmp_path / "agent.db").visit(ADA, "/"), settings=WebSettings(mask=words))

    shown = excerpt_of_event(visit, {"label": "sent", "data": {"pin": "hunter2"}})

    assert shown in ("***", '{"pin": "***"}')
