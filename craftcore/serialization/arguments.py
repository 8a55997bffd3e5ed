"""Checks of arguments of declarations and outcomes. A refusal has the argument, its value and what is expected."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from craftcore.errors import InvalidInput
from craftcore.serialization.time_text import parse_duration
from craftcore.serialization.untrusted import safe_repr, truncate_text

Member = TypeVar("Member", bound=StrEnum)

SHOWN = 80
"""Characters of a refused value that its message repeats."""


def show_value(value: object) -> str:
    """Return a refused value in one short line, whatever it is."""
    return truncate_text(safe_repr(value), SHOWN)


Duration = float | timedelta | str
"""Seconds, a timedelta, or text like "10s", "5m", "2h", "1d" and "1h30m"."""

Moment = datetime | timedelta | float | str
"""An aware datetime, epoch seconds, a timedelta from now, or text like "9am", "tomorrow 9am" and "10m"."""


def to_seconds(value: object) -> Any:
    """Return the seconds of a duration; anything else as it is."""
    if isinstance(value, timedelta):
        return value.total_seconds()
    if isinstance(value, str):
        with suppress(InvalidInput):
            return parse_duration(value)
    return value


def seconds(
    what: str, value: object, refuse: type[Exception], *, least: float = 0.0, most: float, above: bool = False
) -> float:
    """Return the seconds of a duration. `above`: more than `least`, not as much.

    Raises `refuse` for anything else: bool, NaN, and what is out of bounds.
    """
    length = to_seconds(value)
    if isinstance(length, bool) or not isinstance(length, int | float):
        raise refuse(f'{what} {show_value(value)} must be seconds, a timedelta, or text like "10m" and "1h30m"')
    if not (least < length <= most if above else least <= length <= most):
        bound = f"more than {least:g}" if above else f"at least {least:g}"
        raise refuse(f"{what} {show_value(value)} must be {bound} and at most {most:.0f} seconds")
    return float(length)


def require_whole_number(what: str, value: object, least: int, most: int, refuse: type[Exception]) -> int:
    """Return an int within these bounds, both included. Raises `refuse` for anything else, True and 3.0 included."""
    if type(value) is not int or not least <= value <= most:
        raise refuse(f"{what} {show_value(value)} must be a whole number from {least} to {most}")
    return value


def require_member(what: str, value: object, kind: type[Member], refuse: type[Exception]) -> Member:
    """Return the member of an enumeration with this value. Raises `refuse` for another value, with those there are."""
    try:
        return kind(value)  # type: ignore[arg-type]  # another type is refused
    except ValueError:
        raise refuse(f"{what} {show_value(value)} is unknown; it must be one of {', '.join(kind)}") from None


def list_of(what: str, value: object, of: str, refuse: type[Exception]) -> tuple[object, ...]:
    """Return the parts of a list or another iterable. Raises `refuse` for anything else, and for text and bytes."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        hint = f": write [{show_value(value)}]" if isinstance(value, str) else ""
        raise refuse(f"{what} {show_value(value)} must be a list of {of}{hint}")
    return tuple(value)
