"""The book of a schedule on a cluster has the same account as the tables of a database, whatever is done to both."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict
from random import Random
from typing import Any

import pytest

from craftcore.config import Config
from craftcore.errors import CraftcoreError, NotFound
from craftcore.schedules.model import ScheduleStatus
from craftcore.schedules.store import columns_of
from craftcore.temporal.schedules.schedule_book import BookAccount, BookTriggers
from craftcore.temporal.schedules.schedule_rules import ScheduleRules
from craftcore.temporal.workflow.schedule import ScheduleWorkflow
from craftcore.temporal.workflow.schedule_messages import ACCOUNT_MAX, ScheduleBook, ScheduleCall
from tests.support.fakes import VirtualCore
from tests.support.schedule_steps import HOUR, MINUTE, a_schedule, declare, run_all, stored

CALLS = {
    "tick": 8,
    "finish": 4,
    "run-now": 4,
    "backfill": 4,
    "resume": 2,
    "declare": 1,
    "undeclare": 1,
    "pause": 1,
    "skip-next": 1,
}
"""The calls of a schedule, and how often each comes. The end of all work is one, too."""

COMPARED = ("generation", "cause", "nominal_at", "last_at", "count", "outcome", "decided_at")
"""The columns of a line without those that name a trigger or a task."""


class BookWorld:
    """A schedule on a cluster, without one: the rules, and the workflow that keeps its book."""

    def __init__(self) -> None:
        self._rules = ScheduleRules(Config(), 10.0)
        self._workflow = ScheduleWorkflow(None, None)

    @property
    def book(self) -> ScheduleBook:
        return self._workflow._book

    def apply_call(self, call: ScheduleCall, now: float) -> str | None:
        """Return the name of the error of a call; None: it has none."""
        move = self._rules.move(call, self.book, now)
        if move.error_name is None:
            self._workflow._write(move)
            self.book.running.update({started.workflow_id: started.workflow_id for started in move.started})
        return move.error_name


def apply_to_database(core: VirtualCore, call: ScheduleCall) -> str | None:
    """Return the name of the error of a call; None: it has none."""
    calls: dict[str, Callable[[], Any]] = {
        "tick": lambda: core.do(core.ticks.tick),
        "declare": lambda: declare(core, a_schedule(**(call.spec or {}))),
        "undeclare": lambda: declare(core) if stored(core).status is ScheduleStatus.ACTIVE else None,
        "pause": lambda: core.do(core.schedules.pause, "job", call.reason),
        "resume": lambda: core.do(core.schedules.resume, "job"),
        "run-now": lambda: core.do(core.schedules.run_now, "job"),
        "skip-next": lambda: core.do(core.schedules.skip_next, "job"),
        "backfill": lambda: core.do(core.schedules.backfill, "job", call.since, call.until),
    }
    try:
        calls[call.kind]()
    except CraftcoreError as error:
        return type(error).__name__
    return None


def compare_lines(lines: Iterable[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """Return what the lines of both accounts have in common."""
    return [(*(line[name] for name in COMPARED), line["trigger_id"] is None) for line in lines]


@pytest.mark.parametrize("seed", range(4))
def test_book_and_database_decide_the_same(core, clock, seed):
    random, world = Random(seed), BookWorld()
    for step in range(80):
        kind = random.choices(list(CALLS), list(CALLS.values()))[0] if step else "declare"
        if kind == "finish":
            run_all(core)
            world.book.running.clear()
            continue
        spec = {
            "when": random.choice(["every 10m", "every 10m", "every 1h", "0 * * * *", "in 90 minutes"]),
            "timezone": "UTC",
            "overlap": random.choice(["skip", "buffer_one", "allow"]),
            "catch_up": random.choice(["all", "latest", "none"]),
        }
        since = clock.now() - random.choice([0, 30, 90]) * MINUTE
        call = ScheduleCall(kind=kind, spec=asdict(a_schedule(**spec)), reason="paused", since=since, until=clock.now())
        refused = apply_to_database(core, call)
        assert world.apply_call(call, clock.now()) == refused, (step, kind)

        lines = core.rows("SELECT * FROM schedule_occurrences ORDER BY seq")
        assert compare_lines(world.book.lines) == compare_lines(lines[-ACCOUNT_MAX:]), (step, kind)
        row = columns_of(stored(core))
        assert world.book.row is not None
        assert {name: world.book.row[name] for name in row} == row, (step, kind)
        clock.advance(random.choice([MINUTE, 10 * MINUTE, 10 * MINUTE, 20 * MINUTE, HOUR, 5 * HOUR]))


def test_task_of_an_occurrence_is_no_trigger(core):
    triggers = BookTriggers(core.triggers, BookAccount(ScheduleBook()), 10.0)
    with core.transaction() as tx, pytest.raises(NotFound, match="no trigger a-task"):
        triggers.cancel(tx, "a-task", "removed")
