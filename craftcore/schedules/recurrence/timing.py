"""When a schedule comes due: the four kinds every expression is made into, once, when it is declared. Pure data.

Nothing here depends on when it is read again: `in 10m` is a moment, `every 2h` has its anchor, cron has its zone.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Once:
    """At one moment, UTC epoch seconds."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Every:
    """At `anchor_at + n * step_seconds` for n = 0, 1, 2, …; both are whole seconds, the step is at least one."""

    anchor_at: int
    step_seconds: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Cron:
    """When a 5-field cron expression matches the wall clock of an IANA zone, by Debian's rules where it is changed."""

    expression: str
    timezone: str


@dataclass(frozen=True, slots=True)
class Startup:
    """At each start of the daemon, never by the clock."""


Timing = Once | Every | Cron | Startup
