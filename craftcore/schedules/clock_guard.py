"""The guard of schedules against changes of the wall clock.

A clock that goes forward makes schedules late: catch-up is for that. One that goes back makes them wait, and what has
fired does not fire again. After a step of more than three hours back, no program can tell which time is right.
Schedules are held until the clock is back where it was, or an operator confirms it.

Delays follow the clock when it is set back: see `clock_store.py`. A running daemon has seen the step, so it does
that at once. At a start with the clock more than three hours back, they wait for a person as the schedules do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from craftcore.schedules.clock_store import ClockStepStore, record
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.facts import delete_fact, number, set_fact
from craftcore.storage.transaction import Reader, Transaction

BACKWARD_MAX = 3 * 3600.0
"""Debian's cron, too, takes three hours for the most that a clock is set by on purpose."""

STEP_MIN = 5.0
"""Seconds by which a slewed clock or a late loop may differ without an event."""

TRUST_SECONDS = 60.0
"""Seconds for which a person's trust counts for a step that the scheduler has not noticed yet: longer than it
sleeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockSample:
    """The clocks of one moment: wall, since the machine started (suspend included), and awake (without it)."""

    wall: float
    boot_time: float
    awake: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockChange:
    """The change between two samples of the clocks. `step`: seconds the wall clock was set by; `asleep`: seconds of
    suspend."""

    step: float
    asleep: float

    @property
    def is_worth_noting(self) -> bool:
        return abs(self.step) >= STEP_MIN or self.asleep >= STEP_MIN


def clock_change(before: ClockSample, now: ClockSample) -> ClockChange:
    """Return what the wall clock did beyond going on, and how long the machine was suspended."""
    passed = now.boot_time - before.boot_time
    return ClockChange(step=now.wall - before.wall - passed, asleep=passed - (now.awake - before.awake))


class HeldClock(NamedTuple):
    """The time until which schedules wait for the clock; None: they do not."""

    until: float | None


def read_held_clock(reader: Reader) -> HeldClock:
    """Return whether schedules wait for the clock, as the last look of the engine left it."""
    return HeldClock(number(reader, "clock_held"))


class ClockTrust:
    """The facts `clock_seen_at` and `clock_held`, and the rows of `clock_events`."""

    def __init__(self) -> None:
        self._steps = ClockStepStore()

    def boot(self, tx: Transaction, epoch: int) -> None:
        """Compare the clock with the last time that was stored. Before any claim is taken back: that stamps its row."""
        seen = number(tx, "clock_seen_at") or 0.0
        self.hold_if_behind(tx, epoch, seen)
        if number(tx, "clock_held") is None and (seen > tx.now + STEP_MIN or self._steps.may_be_ahead(tx, tx.now)):
            latest = self._steps.latest_stamp(tx, tx.now)
            if self.set_back(tx):
                record(tx, epoch, "backward", max(seen, latest) - tx.now)
        self.store_time(tx)

    def set_back(self, tx: Transaction, step: float = 0.0) -> int:
        """Make due by their own delay what was written while the clock was ahead, now that it was set back by `step`
        seconds (0: unknown). Return the number of triggers and schedules."""
        changed = self._steps.set_back(tx, step)
        if changed:
            set_fact(tx, "clock_delays_set_back", canonicalize({"at": tx.now, "seconds": step, "changed": changed}))
        return changed

    def note(self, tx: Transaction, epoch: int, change: ClockChange) -> None:
        """Record what the clock did, if it is worth noting."""
        if abs(change.step) >= STEP_MIN:
            record(tx, epoch, "forward" if change.step > 0 else "backward", abs(change.step))
        if change.asleep >= STEP_MIN:
            record(tx, epoch, "suspend", change.asleep)

    def hold_if_behind(self, tx: Transaction, epoch: int, latest: float) -> None:
        """Hold the schedules when the clock is too far behind the latest time it showed here, unless a person has just
        said that it is right: before anybody here noticed."""
        if latest - tx.now > BACKWARD_MAX and number(tx, "clock_held") is None and not self._is_trusted(tx):
            set_fact(tx, "clock_held", repr(latest))
            record(tx, epoch, "held", latest - tx.now)

    def is_held(self, tx: Transaction, epoch: int) -> bool:
        """Return whether schedules wait for the clock. It lets them go itself once the clock is back where it was."""
        until = number(tx, "clock_held")
        if until is None:
            return False
        if tx.now < until:
            return True
        delete_fact(tx, "clock_held")
        record(tx, epoch, "caught up", tx.now - until)
        return False

    def store_time(self, tx: Transaction) -> None:
        """Store the time, for the next boot to compare with; one that is behind what is stored is not the latest."""
        if tx.now > (number(tx, "clock_seen_at") or 0.0):
            set_fact(tx, "clock_seen_at", repr(tx.now))

    def trust(self, tx: Transaction) -> float | None:
        """Trust the clock again on the word of an operator: schedules go on, and what was written by a clock ahead is
        due by its own delay. The time that schedules waited for; None when they did not."""
        until = number(tx, "clock_held")
        delete_fact(tx, "clock_held")
        set_fact(tx, "clock_seen_at", repr(tx.now))
        set_fact(tx, "clock_trusted_at", repr(tx.now))
        self.set_back(tx)
        if until is None:
            return None
        record(tx, None, "trusted", until - tx.now)
        return until

    def _is_trusted(self, tx: Transaction) -> bool:
        at = number(tx, "clock_trusted_at")
        return at is not None and 0 <= tx.now - at <= TRUST_SECONDS
