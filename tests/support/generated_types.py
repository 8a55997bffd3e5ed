"""Types of users, drawn at random: scalars, containers, and classes of dataclasses, msgspec and pydantic."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntEnum, StrEnum
from fractions import Fraction
from ipaddress import IPv4Address
from pathlib import PurePosixPath
from random import Random
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec
import pydantic

DEPTH_MAX = 3
BYTES = pydantic.ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")
"""pydantic has bytes as UTF-8 by itself, and refuses others."""


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


class Level(IntEnum):
    LOW = 1
    HIGH = 10


class Mood(StrEnum):
    CALM = "calm"
    WILD = "wild"


class TypedValue(NamedTuple):
    """A type, and a value of it."""

    hint: Any
    value: Any


Draw = Callable[[Random], Any]

SCALARS: dict[Any, Draw] = {
    int: lambda random: random.randint(-(2**53), 2**53),
    bool: lambda random: random.random() < 0.5,
    float: lambda random: random.uniform(-1e6, 1e6),
    str: lambda random: random.choice(["", "a", "ümläut 😀", '"\\\n', "2026-01-01T00:00:00Z", "7"]),
    bytes: lambda random: random.randbytes(random.randint(0, 9)),
    datetime: lambda random: datetime.fromtimestamp(random.randint(0, 4 * 10**9), UTC),
    date: lambda random: date.fromordinal(random.randint(700_000, 800_000)),
    time: lambda random: time(random.randint(0, 23), random.randint(0, 59), random.randint(0, 59)),
    timedelta: lambda random: timedelta(seconds=random.randint(-(10**6), 10**6), microseconds=random.randint(0, 999)),
    UUID: lambda random: UUID(int=random.getrandbits(128), version=4),
    Decimal: lambda random: Decimal(random.randint(-(10**9), 10**9)) / 1000,
    Colour: lambda random: random.choice(list(Colour)),
    Level: lambda random: random.choice(list(Level)),
    Mood: lambda random: random.choice(list(Mood)),
    Literal["yes", "no"]: lambda random: random.choice(["yes", "no"]),
    PurePosixPath: lambda random: PurePosixPath("/srv") / str(random.randint(0, 99)),
    IPv4Address: lambda random: IPv4Address(random.getrandbits(32)),
    Fraction: lambda random: Fraction(random.randint(-99, 99), random.randint(1, 99)),
}
KEYS = (str, int, date, UUID, Colour)


class TypeGenerator:
    """Draws types and values of them, the same for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._classes = 0

    def draw(self) -> TypedValue:
        """Return a type and a value of it."""
        return self._draw(DEPTH_MAX, with_structs=self._random.random() < 0.5)

    def _draw(self, depth: int, *, with_structs: bool) -> TypedValue:
        """Return a type of at most this depth. pydantic knows no Struct of msgspec, and msgspec no untagged union."""
        if depth == 0 or self._random.random() < 0.2:
            return self._draw_scalar()
        inner = self._draw(depth - 1, with_structs=with_structs)
        part: Any = inner.hint
        match self._random.randrange(9):
            case 0:
                return TypedValue(list[part], [inner.value] * self._random.randint(0, 3))
            case 1:
                return TypedValue(tuple[part, ...], (inner.value,) * self._random.randint(0, 3))
            case 2:
                other = self._draw(depth - 1, with_structs=with_structs)
                second: Any = other.hint
                return TypedValue(tuple[part, second], (inner.value, other.value))
            case 3:
                key = self._draw_scalar(KEYS)
                name: Any = key.hint
                return TypedValue(dict[name, part], {key.value: inner.value})
            case 4:
                element = self._draw_scalar(KEYS)
                item: Any = element.hint
                return TypedValue(set[item], {element.value})
            case 5:
                return TypedValue(part | None, self._random.choice([None, inner.value]))
            case 6 if with_structs:
                made = msgspec.defstruct(self._name("Struct"), [("part", inner.hint), ("note", str, "")])
                return TypedValue(made, made(part=inner.value))
            case 7 if not with_structs:
                return self._draw_union(inner)
            case 8 if not with_structs:
                model: Any = pydantic.create_model(
                    self._name("Model"), __config__=BYTES, part=(inner.hint, ...), note=(str, "")
                )
                return TypedValue(model, model(part=inner.value, note="new"))
        made = dataclasses.make_dataclass(self._name("Record"), [("part", inner.hint), ("note", str, "")])
        return TypedValue(made, made(inner.value))

    def _draw_scalar(self, kinds: tuple[Any, ...] | None = None) -> TypedValue:
        kind = self._random.choice(kinds or tuple(SCALARS))
        return TypedValue(kind, SCALARS[kind](self._random))

    def _draw_union(self, inner: TypedValue) -> TypedValue:
        """Return a class with a list of two others, which a field tells apart."""
        members: Any = [
            dataclasses.make_dataclass(
                self._name("Member"), [("part", hint), ("kind", Literal[kind], dataclasses.field(default=kind))]
            )
            for kind, hint in (("call", inner.hint), ("text", str))
        ]
        values = [members[0](inner.value), members[1]("said")]
        holder: Any = dataclasses.make_dataclass(self._name("Holder"), [("parts", list[members[0] | members[1]])])
        return TypedValue(holder, holder(values))

    def _name(self, kind: str) -> str:
        self._classes += 1
        return f"{kind}{self._classes}"
