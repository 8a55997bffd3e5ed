"""Seeded invalid and hostile JSON texts, as an attacker or a corrupt disk could produce them."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any

TOKENS = [
    b"NaN", b"-Infinity", b"1e999", b"-0", b"1" * 5000, b"0.1e-99999", b"1" + b"0" * 400, b"\x00", b"\xff\xfe",
    b"\xef\xbb\xbf", b'"\\ud800"', b'"\\udfff\\ud800"', b'"\\u0000"', b"\xed\xa0\x80", b'"\xe2\x80\xae"',
    b'"\x1b[2J"', b"\n", b"\r", b",", b":", b"[", b"]", b"{", b"}", b"[[[[", b'{"a":' * 40, b"[" * 5_000, b"true",
    b"null", b'"__proto__"', b'{"a":1,"a":2}', b"//", b"'", b'"', b"\\", b"1_000", b"0x10", b"01", b"+1", b".5",
    b"1.", b"\xf4\x90\x80\x80", b"\xc0\x80", b"\x20" * 300,
]  # fmt: skip
VALUES: list[Any] = [
    None, True, False, 0, -1, 2**31, 2**63, -(2**63) - 1, 10**40, 1e308, -1e308, 5e-324, 253402300800.0,
    -62135596801.0, "", "a" * 5_000, "\x00", "\ud800", "\u202e", "exec-x.1", "sha256:", "2026-01-01T00:00:00Z", [],
    {}, [[]], [{}], {"": {}}, [None] * 300, {"a": {"a": {"a": {"a": {}}}}}, list(range(100)), {str(n): n for n in
    range(100)},
]  # fmt: skip


def texts(seed: int, count: int, sound: list[bytes]) -> Iterator[bytes]:
    """Yield `count` texts: valid documents of which about half have exchanged values, and more have damaged bytes."""
    rng = random.Random(seed)
    for _ in range(count):
        text = rng.choice(sound)
        if rng.random() < 0.5:
            text = _other_values(rng, text)
        if rng.random() < 0.6:
            text = _other_bytes(rng, text)
        yield text


def _other_values(rng: random.Random, text: bytes) -> bytes:
    try:
        value = json.loads(text)
    except ValueError:
        return text
    for _ in range(rng.randint(1, 3)):
        value = _exchanged(rng, value)
    return json.dumps(value).encode()


def _exchanged(rng: random.Random, value: Any) -> Any:
    """Exchange, remove or add one value in the document."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        name = rng.choice(list(value))
        match rng.randrange(8):
            case 0:
                return {one: value[one] for one in value if one != name}
            case 1:
                return {**value, str(rng.choice(VALUES))[:50]: rng.choice(VALUES)}
            case _:
                return {**value, name: _exchanged(rng, value[name])}
    if isinstance(value, list) and value and rng.random() < 0.9:
        place = rng.randrange(len(value))
        match rng.randrange(8):
            case 0:
                return value[:place] + value[place + 1 :]
            case 1:
                return [*value, rng.choice(value)]
            case _:
                return [*value[:place], _exchanged(rng, value[place]), *value[place + 1 :]]
    return rng.choice(VALUES)


def _other_bytes(rng: random.Random, text: bytes) -> bytes:
    for _ in range(rng.randint(1, 4)):
        place, other = rng.randint(0, len(text)), rng.randint(0, len(text))
        begin, end = min(place, other), max(place, other)
        match rng.randrange(6):
            case 0:
                text = text[:place]
            case 1:
                text = text[:begin] + text[end:]
            case 2:
                text = text[:end] + text[begin:end][:2_000] + text[end:]
            case 3 if text:
                place = min(place, len(text) - 1)
                text = text[:place] + bytes([text[place] ^ 1 << rng.randrange(8)]) + text[place + 1 :]
            case _:
                text = text[:place] + rng.choice(TOKENS) + text[place:]
    return text


def objects(seed: int, count: int) -> Iterator[Any]:
    """Yield values that a program may pass and JSON cannot represent."""
    rng = random.Random(seed)
    strange = [
        *VALUES,
        float("nan"),
        float("inf"),
        b"bytes",
        {1: 2},
        {None: 1},
        {"a": {2}},
        object(),
        (1, 2),
        {"\ud800": 1},
    ]
    for _ in range(count):
        value: Any = rng.choice(strange)
        for _ in range(rng.choice([0, 1, 2, 3, 40, 2_000])):
            value = {"a": value} if rng.random() < 0.5 else [value]
        yield {"payload": value} if rng.random() < 0.8 else value
