"""Canonical JSON and its sha256: one text for one value, used by records, ledger and dedup alike.

Sorted keys, no spaces, ASCII. NaN, infinities and every value that is not JSON are refused. There is no `default=str`,
because a value that is changed on its way in cannot be compared on its way out.
"""

from __future__ import annotations

import json.encoder
from collections.abc import Callable
from functools import partial
from hashlib import sha256
from typing import Any

_encoder = partial(json.JSONEncoder, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
_encode = _encoder().encode


def _make_tree_encoder() -> Callable[[Any], str]:
    """Return the encoder of trees. `JSONEncoder.encode` makes its C encoder again for each value, which takes as long
    as a small value does. So it is made once here, where the interpreter has it."""
    plain = _encoder(check_circular=False)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return plain.encode
    parts = make(None, plain.default, json.encoder.encode_basestring_ascii, None, ":", ",", True, False, False)
    return lambda value: "".join(parts(value, 0))


_encode_tree = _make_tree_encoder()


def canonicalize(value: Any) -> str:
    """Return the one text of a JSON value: `canonical({"b": 1, "a": "é"}) == '{"a":"\\\\u00e9","b":1}'`.

    Raises TypeError for what is not JSON, ValueError for NaN, infinities and circular values.
    """
    return _encode(value)


def canonicalize_tree(value: Any) -> str:
    """Return `canonicalize` of what is known not to hold itself. For a small value it takes half the time."""
    return _encode_tree(value)


def sha256_of(text: str) -> str:
    """Return `sha256:` and the hex digest of a canonical text."""
    return "sha256:" + sha256(text.encode()).hexdigest()
