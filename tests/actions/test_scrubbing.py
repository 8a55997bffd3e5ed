"""A secret that somebody repeats is replaced however it is spelt, and also when its end is missing."""

from __future__ import annotations

import html
import json
import quopri
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.actions.scrubbing import LEAST_PART, MASK, Scrubber

SIGNS = st.characters(min_codepoint=33, max_codepoint=126)
SECRETS = st.text(SIGNS, min_size=8, max_size=40)
PASSWORDS = st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=8, max_size=24)

OF_A_SIGN: list[Callable[[str], str]] = [
    str,
    lambda one: f"\\u{ord(one):04x}",
    lambda one: f"\\u{ord(one):04X}",
    lambda one: f"\\\\u{ord(one):04x}",
    lambda one: f"\\u{{{ord(one):x}}}",
    lambda one: f"\\x{ord(one):02x}",
    lambda one: f"%{ord(one):02x}",
    lambda one: f"%{ord(one):02X}",
    lambda one: f"%25{ord(one):02X}",
    lambda one: f"&#{ord(one)};",
    lambda one: f"&#0{ord(one)};",
    lambda one: f"&#x{ord(one):X};",
    lambda one: f"={ord(one):02X}",
    lambda one: html.escape(one),
    lambda one: json.dumps(one)[1:-1],
    lambda one: one.upper(),
    lambda one: f"{one}\r\n",
    lambda one: f"{one}\n 550-"[: len(one) + 1],
    lambda one: f"{one}\n550-",
]

OF_A_TEXT: list[Callable[[str], str]] = [
    str,
    lambda text: json.dumps(text)[1:-1],
    lambda text: json.dumps(json.dumps(text))[3:-3],
    lambda text: json.dumps(text, ensure_ascii=False)[1:-1].replace("/", "\\/"),
    lambda text: html.escape(text),
    lambda text: quote(text),
    lambda text: quote(text, safe=""),
    lambda text: quote(quote(text, safe=""), safe=""),
    quote_plus,
    lambda text: quopri.encodestring(text.encode()).decode(),
    lambda text: text.encode().hex(),
    lambda text: text.encode().hex().upper(),
]


@given(SECRETS, st.data())
def test_each_of_its_characters_may_be_spelt_in_another_way(secret, data):
    spelt = "".join(data.draw(st.sampled_from(OF_A_SIGN))(one) for one in secret[:-1]) + secret[-1]

    assert Scrubber([secret]).text(f"<{spelt}>") == f"<{MASK}>"


@given(PASSWORDS, st.sampled_from(OF_A_TEXT))
def test_all_of_it_may_be_spelt_in_a_common_way(secret, spell):
    assert Scrubber([secret]).text(f"<{spell(secret)}>") == f"<{MASK}>"


@given(SECRETS, st.binary(max_size=5), st.binary(max_size=5), st.sampled_from([b64encode, urlsafe_b64encode]))
def test_in_base64_it_is_found_wherever_it_begins(secret, before, after, encode):
    text = encode(before + secret.encode() + after).decode()

    left = Scrubber([secret]).text(text)

    assert MASK in left
    most = len(encode(before)) + len(encode(after)) + 4
    assert len(left) <= len(MASK) + most


@given(SECRETS, st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le"]))
def test_in_wide_characters_it_is_found(secret, encoding):
    assert secret.encode(encoding)[2:-4] not in Scrubber([secret]).bytes(f"<{secret}>".encode(encoding))


@given(SECRETS, st.data())
def test_where_the_end_is_missing_no_more_than_some_characters_are_left(secret, data):
    spell = data.draw(st.sampled_from([one for one in OF_A_TEXT if one is not quote_plus]))
    spelt = f"> {spell(secret)}".encode()
    cut = data.draw(st.integers(min_value=3, max_value=len(spelt) - 1))

    left = Scrubber([secret]).bytes(spelt[:cut], is_cut=True)

    if left != b"> ***":
        known = len(spell(secret[: LEAST_PART + 1])) + 2
        assert left == spelt[:cut]
        assert len(left) <= known


@given(st.text(st.sampled_from("abcdef \n{}:,"), max_size=300), st.text(st.sampled_from("ZXQ789#"), min_size=4))
def test_what_tells_no_secret_stays_as_it_is(text, secret):
    assert Scrubber([secret]).text(text) == text
    assert Scrubber([secret]).bytes(text.encode(), is_cut=True) == text.encode()


@given(st.lists(st.sampled_from(["one-secret-1", "two-secret-2", "two-secret-2-and-more"]), max_size=9))
def test_of_several_none_is_left_also_where_one_contains_another(words):
    scrubber = Scrubber(["one-secret-1", "two-secret-2", "two-secret-2-and-more"])

    assert scrubber.text(" ".join(words)) == " ".join([MASK] * len(words))


def test_without_a_secret_nothing_is_replaced():
    assert Scrubber([]).bytes(b"***\\u0026", is_cut=True) == b"***\\u0026"
    assert Scrubber(["", " "]).longest == 0
    assert not Scrubber([]).has_secrets


@pytest.mark.parametrize("secret", ["s" * 64, "sk-" + "x1Y" * 1000, "a\\\\b" * 3])
def test_a_text_made_to_be_slow_takes_no_longer_than_it_may(secret):
    """What a provider answers decides how long the search takes. 64 KiB are kept."""
    scrubber = Scrubber([secret])
    began = time.process_time()

    scrubber.bytes((secret[:-1] + "!").encode() * (65_536 // len(secret)), is_cut=True)
    scrubber.bytes(b"\\" * 65_536, is_cut=True)

    assert time.process_time() - began < 20
