"""Schema constraints on the tables of tasks."""

from __future__ import annotations

import pytest

from craftcore.errors import RowInvalid
from tests.support.fakes import VirtualCore
from tests.support.task_steps import a_question, begin, complete, for_event, rows, suspend

REFUSED = [
    ("tasks", "status = 'NONSENSE'"),
    ("tasks", "turn = 0"),
    ("tasks", "ended_at = 1"),
    ("tasks", "status = 'DONE'"),
    ("tasks", "status = 'RUNNING', trigger_id = NULL"),
    ("tasks", "status = 'FAILED', ended_at = 1, error_code = NULL"),
    ("tasks", "state_json = NULL"),
    ("tasks", "turn = 'two'"),
    ("tasks", "id = (SELECT id FROM tasks WHERE seq = 2)"),
    ("waits", "kind = 'moon'"),
    ("waits", "status = 'OVER'"),
    ("waits", "status = 'RESOLVED'"),
    ("waits", "status = 'RESOLVED', resolved_at = 1"),
    ("waits", "status = 'RESOLVED', resolved_by = 'signal'"),
    ("waits", "status = 'RESOLVED', resolved_at = 1, resolved_by = 'nobody'"),
    ("waits", "resolved_at = 1"),
    ("waits", "resolved_by = 'timer'"),
    ("waits", "event = 'paid'"),
    ("waits", "kind = 'event'"),
    ("waits", "task_seq = 99"),
    ("waits", "task_seq = 2"),
    ("questions", "kind = 'riddle'"),
    ("questions", "status = 'CLOSED', closed_at = 1"),
    ("questions", "status = 'EXPIRED'"),
    ("questions", "closed_at = 1"),
    ("questions", "status = 'ANSWERED', closed_at = 1"),
    ("questions", "status = 'ANSWERED', closed_at = 1, answer = 'send'"),
    ("questions", "answer = 'send'"),
    ("questions", "by_message = 2"),
    ("questions", "wait_seq = 99"),
    ("questions", "id = (SELECT id FROM questions WHERE seq = 2)"),
    ("mailbox", "status = 'BURNED'"),
    ("mailbox", "status = 'READ'"),
    ("mailbox", "wait_seq = 1"),
    ("mailbox", "task_seq = 99"),
]


@pytest.mark.parametrize(("table", "change"), REFUSED)
def test_contradictory_task_row_is_refused_by_the_schema(two_tasks: VirtualCore, table, change):
    before = rows(two_tasks, table)

    with pytest.raises(RowInvalid), two_tasks.transaction() as tx:
        tx.run(f"UPDATE {table} SET {change} WHERE seq = 1")
    assert rows(two_tasks, table) == before


@pytest.fixture
def two_tasks(core: VirtualCore) -> VirtualCore:
    """Build two tasks that wait for a person, each with an unread mail."""
    for _ in range(2):
        running = begin(core)
        suspend(core, running, a_question())
        core.do(core.tasks.signal, running.task.id, "paid")
    return core


def test_completed_name_is_unique_within_a_turn(core):
    running = begin(core)
    complete(core, running, "step:fetch")

    with pytest.raises(RowInvalid, match="UNIQUE"):
        complete(core, running, "step:fetch")


def test_consistent_task_row_passes_the_schema(two_tasks):
    """The rows before each change are valid, so the change causes the refusal."""
    with two_tasks.transaction() as tx:
        for table in ("tasks", "waits", "questions", "mailbox"):
            assert tx.run(f"UPDATE {table} SET created_at = created_at WHERE seq = 1") == 1
    suspend(two_tasks, begin(two_tasks), for_event("paid"))
