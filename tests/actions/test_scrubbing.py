"""The scrubbing of secrets from text: the encodings of libraries, and secrets without their end."""

from __future__ import annotations

import html
import json
import quopri
import sys
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from craftcore.actions.redaction import LEAST_PART, MASK, PIECE, Scrubber

if TYPE_CHECKING:
    from _typeshed import TraceFunction

SIGNS = st.characters(min_codepoint=33, max_codepoint=126)
SECRETS = st.text(SIGNS, min_size=8, max_size=40)
PASSWORDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=8, max_size=24)

NUMBERS, GSONS, MORE_NUMBERS = (
    {ord(sign): f"\\u{ord(sign):04X}" for sign in signs} for signs in ("<>&", "<>&='", "<>&'+`")
)

TEXT_ENCODINGS: list[Callable[[str], str]] = [
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(json.dumps(text))[3:-3],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    lambda text: json.dumps(text)[1:-1].translate(NUMBERS),
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1].translate(GSONS),
    lambda text: json.dumps(text)[1:-1].replace('\\"', "\\u0022").translate(MORE_NUMBERS),
    lambda text: html.escape(text),
    lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
    lambda text: html.escape(text).replace("&#x27;", "&#39;").replace("&quot;", "&#34;").replace("+", "&#43;"),
    lambda text: html.escape(text, quote=False).encode("ascii", "xmlcharrefreplace").decode(),
    lambda text: quote(text),
    lambda text: quote(text, safe="!*'()"),
    lambda text: quote_plus(text, safe="!*'()"),
    lambda text: quote(text, safe=""),
    lambda text: quote(quote(text, safe=""), safe=""),
    quote_plus,
    lambda text: quote_plus(text, safe="*").replace("~", "%7E"),
    lambda text: quopri.encodestring(text.encode()).decode(),
    lambda text: text.encode().hex(),
    lambda text: text.encode().hex().upper(),
]

LINE_ENDS = ("\n", "\r\n", "=\r\n", "\r\n ", "\r\n550-", "\\r\\n", "\\n")


@given(PASSWORDS, st.sampled_from(TEXT_ENCODINGS))
def test_secret_is_masked_in_every_common_encoding(secret, spell):
    assert Scrubber([secret]).text(f"<{spell(secret)}>") == f"<{MASK}>"


@given(SECRETS, st.sampled_from(TEXT_ENCODINGS), st.sampled_from(LINE_ENDS), st.data())
def test_secret_across_lines_is_masked(secret, spell, line_end, data):
    spelt = spell(secret)
    assume("\\n" not in spelt.lower())
    if "=\n" in spelt:
        line_end = "=\r\n"
    middle = data.draw(st.integers(min_value=1, max_value=len(spelt) - 1))

    assert MASK in Scrubber([secret]).text(f"<{spelt[:middle]}{line_end}{spelt[middle:]}>")
    assert Scrubber([secret]).text(f"<{line_end.join(secret)}>") == f"<{MASK}>"


@given(SECRETS, st.binary(max_size=5), st.binary(max_size=5), st.sampled_from([b64encode, urlsafe_b64encode]))
def test_secret_is_masked_in_base64_at_any_offset(secret, before, after, encode):
    text = encode(before + secret.encode() + after).decode()

    left = Scrubber([secret]).text(text)

    assert MASK in left
    most = len(encode(before)) + len(encode(after)) + 4
    assert len(left) <= len(MASK) + most


@given(SECRETS, st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le"]))
def test_secret_is_masked_in_wide_characters(secret, encoding):
    assert secret.encode(encoding)[2:-4] not in Scrubber([secret]).bytes(f"<{secret}>".encode(encoding))


@given(SECRETS, st.data())
def test_secret_with_a_missing_end_leaves_only_a_few_characters(secret, data):
    spell = data.draw(st.sampled_from([one for one in TEXT_ENCODINGS if one is not quote_plus]))
    encoded = f"> {spell(secret)}".encode()
    cut = data.draw(st.integers(min_value=3, max_value=len(encoded) - 1))

    left = Scrubber([secret]).bytes(encoded[:cut], is_cut=True)

    if left != b"> ***":
        known = len(spell(secret[: LEAST_PART + 1])) + 2
        assert left == encoded[:cut]
        assert len(left) <= known


@given(st.text(st.sampled_from("abcdef \n{}:,"), max_size=300), st.text(st.sampled_from("ZXQ789#"), min_size=4))
def test_text_without_a_secret_is_unchanged(text, secret):
    assert Scrubber([secret]).text(text) == text
    assert Scrubber([secret]).bytes(text.encode(), is_cut=True) == text.encode()


@given(st.lists(st.sampled_from(["one-secret-1", "two-secret-2", "two-secret-2-and-more"]), max_size=9))
def test_secrets_that_contain_each_other_are_all_masked(words):
    scrubber = Scrubber(["one-secret-1", "two-secret-2", "two-secret-2-and-more"])

    assert scrubber.text(" ".join(words)) == " ".join([MASK] * len(words))


def test_scrubber_without_secrets_replaces_nothing():
    assert Scrubber([]).bytes(b"***\\u0026", is_cut=True) == b"***\\u0026"
    assert Scrubber(["", " "]).longest == 0
    assert not Scrubber([]).has_secrets


@pytest.mark.parametrize("before", [PIECE - 30, PIECE - 9, PIECE - 2, PIECE - 1, PIECE, 3 * PIECE - 1])
@pytest.mark.parametrize("spell", [str, quote, lambda text: text.encode().hex(), lambda text: "\r\n".join(text)])
def test_secret_across_a_piece_boundary_is_masked(before, spell):
    content = b"." * before + spell("a&b-secret").encode() + b"." * PIECE

    assert Scrubber(["a&b-secret"]).bytes(content) == b"." * before + b"***" + b"." * PIECE


@pytest.mark.parametrize(
    ("secrets", "text", "left"),
    [
        (["secret-1"], "secret-1secret-1", "******"),
        (["aaaa"], "aaaaaa", "***"),
        (["one-two", "two-three"], "<one-two-three>", "<***>"),
        (["41bcdef", "key-Abcdef"], "<41bcdef41bcdef>", "<******>"),
        (["abcd&ef"], "?token=abcd%26ef", "?token=***"),
        (["abab"], "<ababababab ababa>", "<*** ***a>"),
        (["a\\b"], "<a\\\\\nb>", "<***>"),
        (["\ud83d\ude00 smile"], "<\\ud83d\\ude00 smile>", "<***>"),
        (["caf\xe9-secret"], "<caf\\xe9-secret>", "<***>"),
        (["<<<<>"], "<<<<<<<>", "<<<***"),
    ],
)
def test_secrets_that_touch_or_overlap_are_masked_without_other_text(secrets, text, left):
    assert Scrubber(secrets).text(text) == left


@pytest.mark.parametrize("text", ["<%234%20", "<#4 ", "<#4 =\r"])
def test_partial_secret_after_a_shorter_secret_is_masked(text):
    assert Scrubber(["#4 5", "#4"]).bytes(text.encode(), is_cut=True) == b"<***"


def test_scrubber_head_reads_only_the_beginning_of_a_long_text():
    scrubber = Scrubber(["one&secret"])
    text = "." * 95 + "one&secret" + "one%26secret" * 100_000

    assert scrubber.head(text, 100)[:101] == "." * 95 + "***" + "***"
    assert len(scrubber.head(text, 100)) < 101 + scrubber.longest
    assert scrubber.head("my one&secret", 100) == "my ***"


SLOW = ["s" * 64, "sk-" + "x1Y" * 1000, "a\\\\b" * 3, "\\" * 400, "a" + "\\" * 40 + "b", "&#38;" * 9]
"""Secrets that can begin at many places of a text, or that have many encodings."""


@pytest.mark.parametrize("secret", SLOW)
def test_scrubber_work_is_linear_in_the_text_for_any_secret(secret):
    """Providers choose the text, so its search must be linear. The test counts the executed lines, not the time."""
    partial = (secret[:-1] + "!").encode()
    whole = secret.encode()
    for unit in (partial, whole, b"\\", b"&#0000011111", b"%25", b"=\r\n", whole[:1]):
        size = 2_000 if len(whole) > 1_000 else 500  # twice the size contains the whole of a long secret
        twice = (unit * (2 * size // len(unit) + 1))[: 2 * size]
        once = twice[:size]
        scrubber = Scrubber([secret])
        run = count_lines(scrubber, once)

        assert run <= MOST_LINES * len(once), unit[:20]
        assert count_lines(scrubber, twice) <= 2.1 * run + 500, unit[:20]


MOST_LINES = 400


def count_lines(scrubber: Scrubber, content: bytes) -> int:
    """Return the number of Python lines that the masking executes."""
    count = 0

    def counted(frame: FrameType, event: str, argument: object) -> TraceFunction:
        nonlocal count
        count += event == "line"
        return counted

    before = sys.gettrace()
    sys.settrace(counted)
    try:
        scrubber.bytes(content, is_cut=True)
    finally:
        sys.settrace(before)
    return count
