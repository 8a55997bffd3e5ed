"""Checks of arguments of declarations and outcomes. A refusal has the argument, its value and what is expected."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from craftcore.serialization.untrusted import safe_repr, truncate_text

SHOWN = 80
"""Characters of a refused value that its message repeats."""


def show_value(value: object) -> str:
    """Return a refused value in one short line, whatever it is."""
    return truncate_text(safe_repr(value), SHOWN)


def seconds(
    what: str, value: object, refuse: type[Exception], *, least: float = 0.0, most: float, above: bool = False
) -> float:
    """Return the seconds of a number or a timedelta. `above`: more than `least`, not as much.

    Raises `refuse` for anything else: text, bool, NaN, and what is out of bounds.
    """
    length = value.total_seconds() if isinstance(value, timedelta) else value
    if isinstance(length, bool) or not isinstance(length, int | float):
        hint = ': write 30 or timedelta(seconds=30), not "30s"' if isinstance(value, str) else ""
        raise refuse(f"{what} {show_value(value)} must be a number of seconds or a timedelta{hint}")
    if not (least < length <= most if above else least <= length <= most):
        bound = f"more than {least:g}" if above else f"at least {least:g}"
        raise refuse(f"{what} {show_value(value)} must be {bound} and at most {most:.0f} seconds")
    return float(length)


def require_whole_number(what: str, value: object, least: int, most: int, refuse: type[Exception]) -> int:
    """Return an int within these bounds, both included. Raises `refuse` for anything else, True and 3.0 included."""
    if type(value) is not int or not least <= value <= most:
        raise refuse(f"{what} {show_value(value)} must be a whole number from {least} to {most}")
    return value


def list_of(what: str, value: object, of: str, refuse: type[Exception]) -> tuple[object, ...]:
    """Return the parts of a list or another iterable. Raises `refuse` for anything else, and for text and bytes."""
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        hint = f": write [{show_value(value)}]" if isinstance(value, str) else ""
        raise refuse(f"{what} {show_value(value)} must be a list of {of}{hint}")
    return tuple(value)
