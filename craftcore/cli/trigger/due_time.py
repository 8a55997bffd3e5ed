"""The moment that `emit --at` means, and how it is shown: on the wall, with its zone, and in UTC."""

from __future__ import annotations

from typing import Any

import click

from craftcore.clock import Clock
from craftcore.diagnostics.text.schedule_text import format_local_and_utc, local_time
from craftcore.schedules.recurrence.expression import check_zone
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.serialization.time_text import parse_duration


def read_due(at: str | None, delay: str | None, timezone: str | None, clock: Clock) -> dict[str, Any]:
    """Return the fields `at` and `delay` of a TriggerSpec. Raises InvalidInput; UsageError for a zone of nothing."""
    length = None if delay is None else parse_duration(delay)
    if timezone is None:
        return {"at": at, "delay": length}
    check_zone(timezone)
    if at is None:
        raise click.UsageError("--timezone is the zone of --at")
    now = clock.now()
    given = read_moment("at", at, now, timezone, zone_given=True)
    if given.is_delay and length is None:
        return {"delay": given.at - now}
    return {"at": given.at, "delay": length}


def local_due(due_at: float, timezone: str | None, clock: Clock) -> dict[str, str]:
    """Return the moment on the wall, and the zone of that wall."""
    zone = _zone_of(timezone, clock)
    there = local_time(due_at, zone)
    return {} if there is None else {"due_at_local": there.isoformat(), "timezone": zone}


def due_text(due_at: float, timezone: str | None, clock: Clock) -> str:
    """Return `due 2026-11-28 09:00:00 CET (2026-11-28 08:00:00Z, in 23 h), time zone Europe/Berlin`."""
    zone = _zone_of(timezone, clock)
    return f"due {format_local_and_utc(due_at, zone, clock.now())}, time zone {zone}"


def _zone_of(timezone: str | None, clock: Clock) -> str:
    return timezone or clock.zone() or "UTC"
