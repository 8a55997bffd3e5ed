"""Cancellation of tasks: at once while no code runs, otherwise at the next await of the turn."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.errors import ErrorCode, LeaseLost, NotFound, StateRefused
from craftcore.tasks.model import TaskStatus
from craftcore.tasks.turn_end import Followed
from tests.support.damage import damage
from tests.support.fakes import VirtualCore
from tests.support.schedule_steps import start_daemon, stop_daemon
from tests.support.task_steps import (
    a_question,
    a_sleep,
    begin,
    begin_child,
    emit_child,
    end_turn,
    enter_next,
    fail,
    finish,
    for_child,
    for_event,
    go_on,
    look,
    rows,
    suspend,
    unwind,
)
from tests.support.trigger_steps import BROKEN, claim_all, claim_one, emit, start


def assert_cancelled(core: VirtualCore, task_id: str) -> dict[str, Any]:
    """Assert that a task is cancelled without open waits, questions and triggers, and return its row."""
    [row] = core.rows("SELECT * FROM tasks WHERE id = :id", id=task_id)
    assert (row["status"], row["error_code"]) == ("CANCELLED", ErrorCode.WORKFLOW_ABORTED), row
    assert row["ended_at"] == core.clock.now()
    assert not core.rows("SELECT 1 FROM waits WHERE task_seq = :seq AND status = 'WAITING'", seq=row["seq"])
    assert not core.rows("SELECT 1 FROM questions WHERE task_seq = :seq AND status = 'OPEN'", seq=row["seq"])
    live = "SELECT 1 FROM triggers WHERE coalesce(task_id, id) = :id AND status IN ('PENDING', 'CLAIMED')"
    assert not core.rows(live, id=task_id)
    return row


# By a person


@pytest.mark.parametrize("timeout", [None, 60.0], ids=["without a timeout", "with a timer"])
def test_waiting_task_is_cancelled_at_once_and_its_question_withdrawn(core, clock, timeout):
    running = begin(core)
    suspend(core, running, a_question(until=None if timeout is None else clock.now() + timeout))

    core.do(core.tasks.cancel, running.task.id, "changed my mind")

    assert assert_cancelled(core, running.task.id)["reason"] == "changed my mind"
    assert [(wait["resolved_by"], wait["value_json"]) for wait in rows(core, "waits")] == [("end", "null")]
    assert [question["status"] for question in rows(core, "questions")] == ["WITHDRAWN"]


def test_task_in_backoff_is_cancelled_at_once(core):
    running = begin(core)
    fail(core, running, BROKEN)

    core.do(core.tasks.cancel, running.task.id)

    assert_cancelled(core, running.task.id)


def test_task_with_an_unstarted_claim_is_cancelled_and_the_start_refused(core):
    running = begin(core)
    followed = go_on(core, running, claim_next=True)
    assert followed.claim is not None

    core.do(core.tasks.cancel, running.task.id)

    with pytest.raises(LeaseLost):
        start(core, followed.claim)
    assert_cancelled(core, running.task.id)


def test_running_task_is_asked_to_unwind_and_then_cancelled(core):
    running = begin(core)

    assert core.do(core.tasks.cancel, running.task.id, "changed my mind").status is TaskStatus.RUNNING
    assert core.do(core.claims.cancel_requests, 1) == [running.claim.seq]

    unwind(core, running)
    assert assert_cancelled(core, running.task.id)["reason"] == "changed my mind"
    [trigger] = rows(core, "triggers")
    assert (trigger["status"], trigger["reason"]) == ("DONE", "changed my mind")


def test_cancel_may_be_requested_again_during_the_unwind(core):
    running = begin(core)
    core.do(core.tasks.cancel, running.task.id, "changed my mind")

    core.do(core.tasks.cancel, running.task.id, "me too")

    unwind(core, running)
    assert assert_cancelled(core, running.task.id)["reason"] == "changed my mind"


def test_cancelled_turn_that_suspends_does_not_wait(core):
    running = begin(core)
    core.do(core.tasks.cancel, running.task.id, "changed my mind")

    suspend(core, running, for_event("paid"))

    assert assert_cancelled(core, running.task.id)["reason"] == "changed my mind"
    assert rows(core, "waits") == []


def test_cancelled_turn_that_continues_has_no_next_turn(core):
    running = begin(core)
    core.do(core.tasks.cancel, running.task.id)

    assert go_on(core, running, claim_next=True) == Followed(ended=True)

    assert assert_cancelled(core, running.task.id)["turn"] == 1


def test_cancelled_turn_that_fails_is_not_retried(core):
    running = begin(core)
    core.do(core.tasks.cancel, running.task.id, "changed my mind")

    fail(core, running, BROKEN)

    assert assert_cancelled(core, running.task.id)["reason"] == "changed my mind"


def test_turn_that_returned_before_the_cancellation_is_done(core):
    running = begin(core)
    core.do(core.tasks.cancel, running.task.id)

    finish(core, running, "late")

    assert look(core, running.task.id).status is TaskStatus.DONE


def test_task_without_a_trigger_is_cancelled_at_once(core):
    running = begin(core)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")

    core.do(core.tasks.cancel, running.task.id)

    assert_cancelled(core, running.task.id)


def test_ended_task_cannot_be_cancelled(core):
    running = begin(core)
    finish(core, running)
    before = rows(core, "tasks")

    with pytest.raises(StateRefused, match="is DONE"):
        core.do(core.tasks.cancel, running.task.id)
    assert rows(core, "tasks") == before


def test_unknown_task_cannot_be_cancelled(core):
    with pytest.raises(NotFound):
        core.do(core.tasks.cancel, "nobody")


def test_parent_receives_the_reason_of_a_cancelled_child(core):
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, child, for_event("never"))
    suspend(core, parent, for_child(child.task.id))

    core.do(core.tasks.cancel, child.task.id, "not needed")

    entry = enter_next(core).entry
    assert entry.resume == "CHILD"
    assert entry.waits[f"child/{child.task.id}"].value_json == (
        '{"error":{"code":"WORKFLOW_ABORTED","message":"not needed"},"result":null,"status":"CANCELLED"}'
    )


# With its trigger


def test_task_is_cancelled_with_the_trigger_of_its_turn(core):
    running = begin(core)
    followed = go_on(core, running, claim_next=True)
    assert followed.claim is not None

    core.do(core.triggers.cancel, followed.claim.id, "by hand")

    assert assert_cancelled(core, running.task.id)["reason"] == "by hand"


def test_waiting_task_is_cancelled_with_its_timer(core, clock):
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 60))

    core.do(core.triggers.cancel, rows(core, "triggers")[-1]["id"])

    assert_cancelled(core, running.task.id)


def test_task_in_backoff_is_cancelled_when_its_trigger_is_superseded(core):
    running = begin(core, session_id="s", source="MESSAGE")
    fail(core, running, BROKEN)

    emit(core, session_id="s", source="MESSAGE", supersedes="session")

    assert core.rows("SELECT status, reason FROM tasks") == [{"status": "CANCELLED", "reason": "superseded"}]


def test_child_that_expires_before_its_start_is_cancelled_as_stale(core, clock):
    parent = begin(core)
    child = emit_child(core, parent, expires_at=clock.now() + 60)
    finish(core, parent)
    claim = claim_one(core)
    clock.advance(61)

    with pytest.raises(StateRefused, match="expired"):
        start(core, claim)

    assert assert_cancelled(core, child)["reason"] == "stale"


def test_task_with_a_poisoned_turn_fails_in_the_same_commit(core):
    running = begin(core, epoch=start_daemon(core).epoch)
    for _ in range(2):
        epoch = start_daemon(core).epoch
        core.do(core.claims.start_all, claim_all(core, epoch=epoch), alone=True)
    assert look(core, running.task.id).status is TaskStatus.RUNNING

    start_daemon(core)

    task = look(core, running.task.id)
    assert (task.status, task.error_code, task.reason) == (TaskStatus.FAILED, "POISON", "poison")


def test_task_with_a_corrupt_trigger_fails_with_the_fault(core):
    running = begin(core)
    fail(core, running, BROKEN)
    damage(core.database.path, "triggers", "source = 'NONSENSE'", "true")

    core.do(core.claims.set_aside_corrupt)

    task = look(core, running.task.id)
    assert (task.status, task.reason) == (TaskStatus.FAILED, "corrupt row")
    assert task.error_message == "source 'NONSENSE' is unknown"


@pytest.mark.parametrize("how", ["crash", "end in order"])
def test_cancel_request_survives_the_daemon_and_is_applied_by_the_next(core, how):
    boot = start_daemon(core)
    running = begin(core, epoch=boot.epoch)
    core.do(core.tasks.cancel, running.task.id, "changed my mind")
    if how == "end in order":
        stop_daemon(core, boot.epoch)

    start_daemon(core)

    assert assert_cancelled(core, running.task.id)["reason"] == "changed my mind"


def test_unrelated_trigger_of_a_task_may_end_in_any_way(core):
    running = begin(core)
    sent = emit(core, workflow=None, source="MESSAGE", task_id=running.task.id)

    core.do(core.triggers.cancel, sent.id)

    assert look(core, running.task.id).status is TaskStatus.RUNNING


def test_refused_settle_writes_nothing_about_the_task(core):
    running = begin(core)
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET lease_token = 'another'")
    before = rows(core, "tasks")

    with pytest.raises(LeaseLost):
        end_turn(core, running, BROKEN)

    assert rows(core, "tasks") == before
