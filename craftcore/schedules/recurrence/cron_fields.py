"""The fields of a cron expression, and what is wrong with one. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import NamedTuple

from cronsim import CronSim, CronSimError


class Field(NamedTuple):
    """One of the five: its values, in words and from the least to the most, and the names that stand for values."""

    name: str
    allowed: str
    least: int
    most: int
    names: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        """How many different values it has."""
        return 7 if self.name == "day of week" else self.most - self.least + 1


_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")

FIELDS = (
    Field("minute", "0-59", 0, 59),
    Field("hour", "0-23", 0, 23),
    Field("day of month", "1-31", 1, 31),
    Field("month", "1-12 or JAN-DEC", 1, 12, _MONTHS),
    Field("day of week", "0-7 or SUN-SAT", 0, 7, _DAYS),
)

_BACKWARD = re.compile(r"([^-/]+)-([^-/]+)(/\d+)?")
_STEP = re.compile(r".*/(\d+)")


def is_cron(expression: str) -> bool:
    """Return whether it can be evaluated."""
    try:
        CronSim(expression, datetime(2001, 1, 1, tzinfo=UTC))
    except CronSimError:
        return False
    return True


def find_field_mistake(nth: int, text: str) -> str | None:
    """Return what is wrong with a field, as a clause, and what to write instead; None: nothing."""
    field = FIELDS[nth]
    what = f"its {field.name} {text!r:.40}"
    is_valid = is_cron(" ".join(text if nth == other else "*" for other in range(len(FIELDS))))
    for part in text.split(","):
        if not is_valid and (instead := _split_backward(field, part)) is not None:
            return f"{what} has the range {part!r:.40}, which goes backward: write {instead}"
        if is_valid and (step := _STEP.fullmatch(part)) and int(step[1]) > field.size:
            unit = {"minute": "m", "hour": "h"}.get(field.name)
            advice = f': write "every {step[1]:.10}{unit}"' if unit is not None else ""
            return f"{what} has a step of {step[1]:.10}, and there are {field.size} values{advice}"
    if is_valid:
        return None
    return f"{what} must be {field.allowed}{', in steps of 1 or more' if '/' in text else ''}"


def _split_backward(field: Field, part: str) -> str | None:
    """Return a range that wraps around as ranges that do not: `22-6` is `22-23,0-6`, and `MON-SUN` is `1-7`. None for
    anything else."""
    ends = _BACKWARD.fullmatch(part)
    if ends is None or ends[3] is not None:
        return None
    first, last = _value(field, ends[1]), _value(field, ends[2])
    if first is None or last is None or first <= last:
        return None
    if field.name == "day of week" and last == 0:
        return f"{first}-7"
    most = 6 if field.name == "day of week" else field.most
    return f"{_range(first, most)},{_range(field.least, last)}"


def _range(first: int, last: int) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _value(field: Field, text: str) -> int | None:
    if text.upper() in field.names:
        return field.names.index(text.upper()) + field.least
    value = int(text) if text.isdecimal() and len(text) < 4 else -1
    return value if field.least <= value <= field.most else None
