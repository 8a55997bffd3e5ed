"""The query plans of the task pages: they use indexes, and cost the same for tasks of any age."""

from __future__ import annotations

from pathlib import Path

import pytest

from craftcore.diagnostics.tasks.task_details import read_details
from craftcore.diagnostics.tasks.task_history import read_task_history
from craftcore.storage.transaction import Transaction
from craftcore.tasks.listing_store import TaskFilter, TaskLists
from craftcore.tasks.store import TaskStore
from craftcore.tasks.turn_event_store import MemoStore
from tests.executions.test_listing_plans import plans_of
from tests.support.activity_steps import UNKNOWN, an_activity, decide
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.filled_cores import filled_core
from tests.support.task_steps import a_question, begin, complete, enter_next, for_event, go_on, look, suspend
from tests.triggers.test_claim_plans import steps_of, undone

MANY, FEW, SHOWN = 120, 20, 10

TASKS = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 30000)
INSERT INTO tasks (id, workflow, status, turn, state_json, created_at, updated_at, ended_at)
SELECT 'done-' || n, iif(n = 5, 'rare', 'many'), 'DONE', 1, 'null', :now + n, :now, :now FROM numbers
"""


def make_task(path: Path, turns: int) -> VirtualCore:
    """Make a database with a task of this number of turns, each with a step, a question and a wait."""
    clock = VirtualClock()
    core = VirtualCore(path, clock)
    running = begin(core, id="lived")
    for turn in range(turns):
        complete(core, running, f"step:{turn}")
        clock.advance(seconds=1)
        go_on(core, running, turn, for_event("go", until=clock.now() + 1, name="continued"))
        clock.advance(seconds=2)
        running = enter_next(core)
    decide(core, an_activity(core, running, UNKNOWN, f"{turns + 1}.1"), "happened")  # type: ignore[arg-type]
    suspend(core, running, a_question())
    return core


long_task_core, short_task_core = filled_core(make_task, MANY), filled_core(make_task, FEW)


def history(tx: Transaction) -> None:
    task = TaskStore().get(tx, "lived")
    assert task is not None
    read_task_history(tx, task, NEW_YEAR + 1e6, daemon_runs=False, limit=SHOWN)


def table_scans(plan: list[str]) -> list[str]:
    """Return the lines of a plan that scan a growing table."""
    return [line for line in plan if line.startswith("SCAN") and "CONSTANT" not in line and "json_each" not in line]


def test_history_of_a_task_is_read_by_indexes_and_sorts_nothing(long_task_core):
    plan = plans_of(long_task_core, history)

    assert table_scans(plan) == []
    assert [line for line in plan if "TEMP B-TREE" in line] == []
    assert "SEARCH waits USING INDEX waits_once (task_seq=? AND turn>?)" in plan
    assert any("questions_task" in line for line in plan)
    assert any("executions_task" in line for line in plan)


def test_history_costs_no_more_for_a_task_of_many_turns(long_task_core, short_task_core):
    def work(core: VirtualCore) -> int:
        with undone(core) as tx:
            return steps_of(tx, lambda: history(tx))

    assert work(long_task_core) <= work(short_task_core) + 20


def test_details_of_a_task_are_read_by_indexes(long_task_core):
    task = look(long_task_core, "lived")

    assert table_scans(plans_of(long_task_core, lambda tx: read_details(tx, task))) == ["SCAN (subquery-1)"], (
        "of a limited number of mails"
    )


@pytest.mark.parametrize("limit", [1, 7, 10_000])
def test_newest_events_are_the_end_of_the_stream(long_task_core, limit):
    with long_task_core.reading() as reader:
        whole, found = MemoStore().stream(reader, "lived", 10_000), MemoStore().list_newest(reader, "lived", limit)

    assert found == (whole[-limit:], len(whole) > limit)


def test_events_with_large_payloads_are_fewer_and_lead_to_those_before(long_task_core, monkeypatch):
    with long_task_core.reading() as reader:
        whole = MemoStore().stream(reader, "lived", 10_000)
        monkeypatch.setattr(
            "craftcore.tasks.turn_event_store.SIZE_MAX", sum(len(one.payload_json) for one in whole[-5:])
        )
        found = MemoStore().list_newest(reader, "lived", 100)
        history = read_task_history(
            reader, look(long_task_core, "lived"), NEW_YEAR + 1e6, daemon_runs=False, limit=SHOWN
        )

    assert found == (whole[-5:], True)
    assert (list(history.events), history.has_more) == (whole[-5:], True)


@pytest.mark.parametrize("task_filter", [TaskFilter(), TaskFilter(workflow="rare"), TaskFilter(status="FAILED")])
def test_page_of_tasks_reads_backwards_from_its_number_over_a_span(short_task_core, task_filter):
    with undone(short_task_core) as tx:
        tx.run(TASKS, now=NEW_YEAR)
        steps = steps_of(tx, lambda: TaskLists().list_page(tx, task_filter, 50))
        page = TaskLists().list_page(tx, task_filter, 50, 30_000)

    plan = plans_of(short_task_core, lambda tx: TaskLists().list_page(tx, task_filter, 50))
    assert all(line.startswith("SEARCH tasks USING") for line in plan if "tasks" in line and "SUBQUERY" not in line)
    assert [line for line in plan if "TEMP B-TREE" in line] == []
    assert steps < 3_000 if task_filter == TaskFilter() else page.span is not None


def test_rare_task_is_found_behind_the_first_span(short_task_core):
    task_filter = TaskFilter(workflow="rare")
    with undone(short_task_core) as tx:
        tx.run(TASKS, now=NEW_YEAR)
        first = TaskLists().list_page(tx, task_filter, 50)
        assert first.span is not None
        second = TaskLists().list_page(tx, task_filter, 50, first.span.next_before)

    assert first.rows == []
    assert [row.id for row in second.rows] == ["done-5"]
