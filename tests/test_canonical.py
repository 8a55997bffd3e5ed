"""Canonical JSON: one text for each value, and a reproducible hash."""

from __future__ import annotations

import hashlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.serialization.canonical import _make_tree_encoder, canonicalize, canonicalize_tree, sha256_of


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"b": 1, "a": {"d": 2, "c": 3}}, '{"a":{"c":3,"d":2},"b":1}'),
        ({"é": "ü😀"}, '{"\\u00e9":"\\u00fc\\ud83d\\ude00"}'),
        ([1, 1.0, -0.0, 1e100, True, None], "[1,1.0,-0.0,1e+100,true,null]"),
        ('"\\\n\x00\x7f', '"\\"\\\\\\n\\u0000\\u007f"'),
        ({}, "{}"),
        ((1, 2), "[1,2]"),
    ],
)
def test_text_has_sorted_keys_no_spaces_and_only_ascii(value, text):
    assert canonicalize(value) == canonicalize_tree(value) == text


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
        lambda parts: st.lists(parts, max_size=4) | st.dictionaries(st.text(), parts, max_size=4),
        max_leaves=20,
    )
)
def test_tree_has_the_text_of_any_value(value):
    assert canonicalize_tree(value) == canonicalize(value)


def test_interpreter_without_its_c_encoder_gives_the_same_text(monkeypatch):
    monkeypatch.setattr(json.encoder, "c_make_encoder", None)

    assert _make_tree_encoder()({"b": [1, 1.5, None], "a": "é"}) == '{"a":"\\u00e9","b":[1,1.5,null]}'


def test_order_of_insertion_does_not_change_the_text():
    assert canonicalize({"a": 1, "b": 2}) == canonicalize({"b": 2, "a": 1})


@pytest.mark.parametrize("value", [math.nan, [math.inf], {"a": -math.inf}])
def test_number_outside_json_is_refused(value):
    for text_of in (canonicalize, canonicalize_tree):
        with pytest.raises(ValueError, match="not JSON compliant"):
            text_of(value)


@pytest.mark.parametrize("value", [b"x", {1, 2}, object(), {"a": 1j}])
def test_value_outside_json_is_refused(value):
    for text_of in (canonicalize, canonicalize_tree):
        with pytest.raises(TypeError, match="is not JSON serializable"):
            text_of(value)


def test_value_containing_itself_is_refused():
    value: list[object] = []
    value.append(value)

    with pytest.raises(ValueError, match=r"[Cc]ircular"):
        canonicalize(value)


@pytest.mark.parametrize("value", [{"a": [1, {"é": None}]}, "", [], {"😀": "\ud83d"}])
def test_hash_is_the_plain_sha256_of_the_text(value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))

    assert sha256_of(canonicalize(value)) == "sha256:" + hashlib.sha256(text.encode("ascii")).hexdigest()


def test_hash_of_the_empty_object_has_the_known_value():
    assert sha256_of("{}") == "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
