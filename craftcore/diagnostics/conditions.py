"""Conditions of the whole database that keep work from starting: held, safe mode, paused, clock, no daemon."""

from __future__ import annotations

from collections.abc import Mapping

from craftcore.diagnostics.finding import Finding, Level, show_query
from craftcore.serialization.time_text import clock_time
from craftcore.storage.facts import get_fact, number
from craftcore.storage.transaction import Reader
from craftcore.triggers.start_holds import HoldTarget, StartHolds

RUN = ("craftcore", "run", "MODULE:APP")
"""The command that starts a daemon. It names the app: a daemon without it would end work as CAPABILITY_NOT_FOUND."""

RELEASE = ("craftcore", "release")
TRUST_CLOCK = ("craftcore", "schedule", "trust-clock")

HELD = "SELECT value FROM facts WHERE name = 'held'"
SAFE_MODE = "SELECT value FROM facts WHERE name = 'safe_mode'"
HOLD = "SELECT value FROM facts WHERE name = :name"
CLOCK = "SELECT value FROM facts WHERE name = 'clock_held'"
ENGINE = "SELECT value FROM facts WHERE name = 'engine'"
DECLARED = "SELECT count(*) AS declared, max(name = :workflow) AS is_declared FROM workflows"
EPOCH = "SELECT max(epoch) FROM epochs"


def held_finding(reason: str | None) -> list[Finding]:
    """Return the finding that everything is held. `reason` None: nothing is."""
    if reason is None:
        return []
    return [_warn("held", f"everything is held: {reason}. Look at it, then", RELEASE, show_query(HELD))]


def safe_mode_finding(reason: str | None) -> list[Finding]:
    """Return the finding that scheduled and resumed work waits after several crashes. `reason` None: it does not."""
    if reason is None:
        return []
    ends = "It ends after 10 minutes without a crash. Find out why the daemon dies; to end it now"
    text = f"safe mode, scheduled and resumed work waits: {reason}. {ends}"
    return [_warn("safe mode", text, RELEASE, show_query(SAFE_MODE))]


def target_findings(targets: Mapping[HoldTarget, str]) -> list[Finding]:
    """Return a finding for each hold of a workflow, source or schedule."""
    return [
        _warn(
            "hold",
            f"{target} is held: {why}. To let it start",
            (*RELEASE, f"--{target.kind}", target.name),
            show_query(HOLD, name=target.fact),
        )
        for target, why in targets.items()
    ]


def start_hold_findings(holds: StartHolds) -> list[Finding]:
    """Return a finding for each hold, safe mode included."""
    return [*held_finding(holds.everything), *safe_mode_finding(holds.safe_mode), *target_findings(holds.targets)]


def clock_held_finding(until: float | None, now: float) -> list[Finding]:
    """Return the finding that schedules wait because the clock went back. `until` None: they do not."""
    if until is None or until <= now:
        return []
    text = f"schedules are held: {clock_held_text(until, now)}. Set it, or if it is right"
    return [_warn("clock held", text, TRUST_CLOCK, show_query(CLOCK))]


def clock_held_text(until: float, now: float) -> str:
    """Return how far the clock went back, in words."""
    return f"the clock has shown {clock_time(until)} here and now shows {clock_time(now)}"


def paused_finding() -> Finding:
    """Return the finding that the daemon is paused: it claims and fires nothing."""
    text = "paused: the daemon was started with --paused, and starts nothing. Restart it without --paused"
    return Finding(code="paused", level=Level.WARN, text=text, query=show_query(ENGINE))


def daemon_finding() -> Finding:
    """Return the finding that no daemon runs."""
    return _warn("no daemon", "no daemon runs on this database. Start one", RUN, show_query(EPOCH))


def schedules_held_findings(reader: Reader, now: float) -> list[Finding]:
    """Return why no schedule fires, whatever its row says. Empty when nothing holds them."""
    return [
        *held_finding(get_fact(reader, "held")),
        *safe_mode_finding(get_fact(reader, "safe_mode")),
        *clock_held_finding(number(reader, "clock_held"), now),
    ]


def _warn(code: str, text: str, remedy: tuple[str, ...], query: str) -> Finding:
    return Finding(code=code, level=Level.WARN, text=text, remedies=(remedy,), query=query)
