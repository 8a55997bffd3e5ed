"""Moments and durations, as people type and read them. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from craftcore.clock import utc_iso
from craftcore.errors import InvalidInput

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
_MOMENTS = {"at", "now", "not_before"}
_MOMENT_ENDS = ("_at", "_until")
_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d|w)")


def parse_moment(text: str) -> datetime | float:
    """Return `2026-01-02T03:04:05Z`, or epoch seconds. The caller checks that a date has a zone."""
    try:
        return float(text)
    except ValueError:
        pass
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        example = "ISO 8601 with a zone, e.g. 2026-01-02T03:04:05Z or 2026-01-02T03:04:05+01:00, or epoch seconds"
        raise InvalidInput(f"{text!r:.80} is not a moment: give {example}") from None


def parse_duration(text: str) -> float:
    """Return the seconds of `90`, `10s`, `5m`, `2h`, `1d`, `1h30m`."""
    compact = text.replace(" ", "").lower()
    parts = _PART.findall(compact)
    if parts and "".join(number + unit for number, unit in parts) == compact:
        return sum(float(number) * UNITS[unit] for number, unit in parts)
    try:
        return float(compact)
    except ValueError:
        raise InvalidInput(f"{text!r:.80} is not a duration: give seconds, or e.g. 10s, 5m, 2h, 1d, 1h30m") from None


def clock_time(moment: float | None) -> str:
    """Return `2026-01-02 03:04:05Z`, or `-`."""
    text = utc_iso(moment)
    return "-" if text is None else f"{text[:10]} {text[11:19]}Z"


def format_span(seconds: float) -> str:
    """Return `0.3 s`, `45 s`, `12 min`, `3 h`, `2 d`: two digits are enough for a person."""
    for limit, size, unit in ((10, 1, "s"), (120, 1, "s"), (7200, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds:.1f} s" if limit == 10 else f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:.0f} d"


def relative_text(moment: float, now: float) -> str:
    """Return `in 5 min`, `3 h ago`."""
    return f"in {format_span(moment - now)}" if moment > now else f"{format_span(now - moment)} ago"


def add_iso_times(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with each moment also as ISO UTC: `due_at`, `due_at_iso`."""
    document: dict[str, Any] = {}
    for name, value in row.items():
        document[name] = value
        if name in _MOMENTS or name.endswith(_MOMENT_ENDS):
            document[f"{name}_iso"] = utc_iso(value)
    return document
