"""What the engine did since it started, counted as it happens. Pure, and cheap: some comparisons for each attempt.

Workflows are those the app declares, all else is `other`: what is emitted cannot make the tally grow.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Container
from typing import NamedTuple

from craftcore.clock import Clock
from craftcore.engine.attempt import Run
from craftcore.engine.attempt_commits import Settled
from craftcore.schedules.model import Cause, Outcome
from craftcore.schedules.tick_service import Ticked
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Settlement, is_cancellation

OTHER = "other"

LONG = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Bounds of histograms: seconds of work and of the machine, pieces of a commit."""


class Histogram:
    """How many values were at most each bound, and their sum; the last count is of those above all bounds."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def add(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def copy(self) -> Histogram:
        other = Histogram(self.bounds)
        other.counts, other.sum = list(self.counts), self.sum
        return other


class Counted(NamedTuple):
    """A tally as it stood at one moment: attempts by (workflow, outcome), waits and runs by workflow; whether the
    engine has booted."""

    has_booted: bool
    attempts: dict[tuple[str, str], int]
    waits: dict[str, Histogram]
    runs: dict[str, Histogram]
    lateness: Histogram
    flush_seconds: Histogram
    flush_pieces: Histogram
    loop_lag: Histogram


class Tally:
    """Counts for one engine; on its loop's thread only."""

    def __init__(self, workflows: Container[str], clock: Clock) -> None:
        self._has_booted = False
        self._workflows = workflows
        self._clock = clock
        self._attempts: Counter[tuple[str, str]] = Counter()
        self._waits: dict[str, Histogram] = {}
        self._runs: dict[str, Histogram] = {}
        self._lateness = Histogram(LONG)
        self._flush_seconds = Histogram(SHORT)
        self._flush_pieces = Histogram(SIZES)
        self._loop_lag = Histogram(SHORT)

    def booted(self) -> None:
        """From now on every claim is of this engine."""
        self._has_booted = True

    def settled(self, run: Run, answer: Settled | Exception) -> None:
        """An attempt ended. It waited from when its trigger was due, and ran from its start until now."""
        workflow = self._label(run.claim.workflow if run.routed is None else run.routed.workflow)
        self._attempts[workflow, "refused" if isinstance(answer, Exception) else outcome_of(answer.move)] += 1
        if workflow not in self._waits:
            self._waits[workflow], self._runs[workflow] = Histogram(LONG), Histogram(LONG)
        started_at = run.record.created_at
        self._waits[workflow].add(max(0.0, started_at - run.claim.due_at))
        self._runs[workflow].add(max(0.0, self._clock.now() - started_at))

    def ticked(self, ticked: Ticked) -> None:
        """Occurrences fired. Those that a person asked for, or a start, are not late."""
        now = self._clock.now()
        for placed in ticked.placed:
            if placed.outcome is Outcome.FIRED and placed.cause is Cause.TIME:
                self._lateness.add(max(0.0, now - placed.nominal_at))

    def flushed(self, pieces: int, seconds: float) -> None:
        """A commit is on disk."""
        self._flush_pieces.add(pieces)
        self._flush_seconds.add(seconds)

    def lagged(self, seconds: float) -> None:
        """The event loop woke somebody so much later than it was asked to."""
        self._loop_lag.add(max(0.0, seconds))

    def counted(self) -> Counted:
        """All of it, as it stands now."""
        return Counted(
            self._has_booted,
            dict(self._attempts),
            {name: histogram.copy() for name, histogram in self._waits.items()},
            {name: histogram.copy() for name, histogram in self._runs.items()},
            self._lateness.copy(),
            self._flush_seconds.copy(),
            self._flush_pieces.copy(),
            self._loop_lag.copy(),
        )

    def _label(self, workflow: str | None) -> str:
        return workflow if workflow is not None and workflow in self._workflows else OTHER


def outcome_of(move: Settlement) -> str:
    """`done`, `failed` and `dead` are where the trigger stays; `retried` comes again, `released` without having counted
    (a shutdown, a snooze); `cancelled` is DONE, too, and somebody wanted it."""
    if move.status is TriggerStatus.DONE and move.error_code is None:
        return "done"
    if move.gives_back:
        return "released"
    if is_cancellation(move):
        return "cancelled"
    return "retried" if move.status is TriggerStatus.PENDING else move.status.value.lower()
