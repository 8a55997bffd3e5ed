"""Counters and histograms of one engine, as prometheus-client keeps them. Counting takes a few microseconds an attempt.

An emitted name cannot add a label: workflows that the app does not declare are counted together as `other`, as are
schedules after the first SCHEDULES_MAX.
"""

from __future__ import annotations

from collections.abc import Container

from prometheus_client import CollectorRegistry, Counter, Histogram

from craftcore.clock import Clock
from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import Settled
from craftcore.schedules.model import FireCause, Outcome
from craftcore.schedules.tick_service import Ticked
from craftcore.triggers.settlement import outcome_label

OTHER = "other"
SCHEDULES_MAX = 200

LONG = (0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
SHORT = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
SIZES = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, 200.0, 500.0, 1000.0)
"""Bounds of the histograms: seconds of work, seconds of the machine, and work items of a commit."""


class Counters:
    """The observer of an engine, with a registry of its own. `has_booted`: each claim is of this engine."""

    def __init__(self, workflows: Container[str], clock: Clock) -> None:
        def make_histogram(name: str, text: str, bounds: tuple[float, ...], labels: tuple[str, ...] = ()) -> Histogram:
            return Histogram(f"craftcore_{name}", text, labels, registry=self.registry, buckets=bounds)

        self.has_booted = False
        self.registry = CollectorRegistry(auto_describe=False)
        self._workflows = workflows
        self._clock = clock
        self._attempts = Counter(
            "craftcore_attempts",
            "Attempts that ended, by what became of their trigger.",
            ("workflow", "outcome"),
            registry=self.registry,
        )
        self._schedule_attempts = Counter(
            "craftcore_schedule_attempts",
            "The same attempts, of triggers that a schedule fired.",
            ("schedule", "outcome"),
            registry=self.registry,
        )
        self._schedules: set[str] = set()
        by_workflow = ("workflow",)
        self._wait = make_histogram(
            "wait_seconds", "From when a trigger was due to the start of its attempt.", LONG, by_workflow
        )
        self._run = make_histogram(
            "run_seconds", "From the start of an attempt until it was settled.", LONG, by_workflow
        )
        self._lateness = make_histogram(
            "schedule_lateness_seconds", "From an occurrence's moment to the trigger it fired.", LONG
        )
        self._flush_seconds = make_histogram("flush_seconds", "How long the flush of a commit took.", SHORT)
        self._flush_pieces = make_histogram("flush_pieces", "Pieces of work in one commit.", SIZES)
        self._loop_lag = make_histogram(
            "loop_lag_seconds", "How much later than asked the event loop woke a task.", SHORT
        )

    def on_booted(self) -> None:
        self.has_booted = True

    def on_settled(self, attempt: Attempt, answer: Settled | Exception) -> None:
        workflow = attempt.claim.workflow if attempt.routed is None else attempt.routed.workflow
        outcome = "refused" if isinstance(answer, Exception) else outcome_label(answer.move)
        started_at = attempt.record.created_at
        self.count(workflow or OTHER, outcome, started_at - attempt.claim.due_at, self._clock.now() - started_at)
        if attempt.claim.schedule_id is not None:
            self.count_scheduled(attempt.claim.schedule_id, outcome)

    def count(self, workflow: str, outcome: str, waited: float, ran: float) -> None:
        """Count an attempt: the seconds that it waited since its trigger was due, and the seconds that it ran."""
        label = workflow if workflow in self._workflows else OTHER
        self._attempts.labels(label, outcome).inc()
        self._wait.labels(label).observe(max(0.0, waited))
        self._run.labels(label).observe(max(0.0, ran))

    def count_scheduled(self, schedule_id: str, outcome: str) -> None:
        if len(self._schedules) < SCHEDULES_MAX:
            self._schedules.add(schedule_id)
        self._schedule_attempts.labels(schedule_id if schedule_id in self._schedules else OTHER, outcome).inc()

    def on_ticked(self, ticked: Ticked) -> None:
        """Count the occurrences that time fired. Those of a person or of a start are not late."""
        now = self._clock.now()
        for placed in ticked.placed:
            if placed.outcome is Outcome.FIRED and placed.cause is FireCause.TIME:
                self._lateness.observe(max(0.0, now - placed.nominal_at))

    def on_flushed(self, items: int, seconds: float) -> None:
        self._flush_pieces.observe(items)
        self._flush_seconds.observe(seconds)

    def on_lagged(self, seconds: float) -> None:
        """Count how much later than asked the event loop woke."""
        self._loop_lag.observe(max(0.0, seconds))
