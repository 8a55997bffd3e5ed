"""Retries of FAILED tasks: the failed turn runs again with all attempts and its completed parts."""

from __future__ import annotations

import pytest

from craftcore.errors import NotFound, StateRefused
from craftcore.tasks.model import TaskStatus
from craftcore.triggers.backoff import RetryPolicy
from tests.support.fakes import VirtualCore
from tests.support.task_steps import (
    Running,
    a_question,
    a_sleep,
    begin,
    begin_child,
    complete,
    enter_next,
    fail,
    finish,
    for_child,
    for_event,
    go_on,
    look,
    rows,
    suspend,
    the_question,
)
from tests.support.trigger_steps import BROKEN, HOPELESS, ack, emit, start_one

ONCE = RetryPolicy(max_attempts=1)


def fail_second_turn(core: VirtualCore) -> Running:
    """Fail a task in its second turn, after a recorded step and all attempts."""
    go_on(core, begin(core), {"n": 1})
    running = enter_next(core)
    complete(core, running)
    fail(core, running, BROKEN, policy=ONCE)
    return running


def test_retry_continues_in_the_failed_turn_with_all_attempts_and_completed_parts(core):
    running = fail_second_turn(core)
    assert look(core, running.task.id).status is TaskStatus.FAILED

    task = core.do(core.tasks.retry, running.task.id)

    assert (task.status, task.reason, task.error_code, task.ended_at) == (TaskStatus.RUNNING, "retried", None, None)
    again = enter_next(core)
    assert (again.task.turn, again.task.state_json, again.claim.attempts) == (2, '{"n":1}', 1)
    assert (again.entry.resume, list(again.entry.memo)) == ("RETRY", ["step:fetch"])
    finish(core, again)
    assert look(core, running.task.id).status is TaskStatus.DONE


def test_requeue_of_the_dead_trigger_of_a_turn_retries_the_task(core):
    running = fail_second_turn(core)

    core.do(core.triggers.requeue, running.claim.id)

    assert look(core, running.task.id).status is TaskStatus.RUNNING
    assert enter_next(core).task.turn == 2


def test_task_can_be_retried_after_its_dead_letter_was_discarded(core):
    running = fail_second_turn(core)
    core.do(core.triggers.discard, running.claim.id)
    assert look(core, running.task.id).status is TaskStatus.FAILED

    core.do(core.tasks.retry, running.task.id)

    assert enter_next(core).task.turn == 2


def test_retry_of_a_task_without_a_trigger_uses_a_resume(core):
    running = fail_second_turn(core)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers WHERE id = :id", id=running.claim.id)

    core.do(core.tasks.retry, running.task.id)

    again = enter_next(core)
    assert (again.claim.source, again.task.turn, again.entry.resume) == ("RESUME", 2, "RESUME")


def test_retry_of_a_quarantined_waiting_task_uses_a_resume(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))
    with core.transaction() as tx:
        tx.run("UPDATE tasks SET turn = 1, max_attempts = 5000")
    core.do(core.tasks.set_aside_corrupt)
    task = look(core, running.task.id)
    assert (task.status, task.trigger_id) == (TaskStatus.FAILED, None)

    core.do(core.tasks.retry, running.task.id)

    assert enter_next(core).claim.source == "RESUME"


def test_retry_resets_the_work_budget(core):
    running = begin(core)
    go_on(core, running, steps=40)
    fail(core, enter_next(core))
    assert (look(core, running.task.id).turns_alone, look(core, running.task.id).steps_alone) == (1, 40)

    task = core.do(core.tasks.retry, running.task.id)

    assert (task.turns_alone, task.steps_alone) == (0, 0)


# Mail


@pytest.mark.parametrize("command", ["task retry", "trigger requeue"])
def test_retried_task_reads_earlier_signals_in_order(core, command):
    running = begin(core)
    for n in range(2):
        core.do(core.tasks.signal, running.task.id, "paid", n)
    fail(core, running)
    assert [mail["status"] for mail in rows(core, "mailbox")] == ["LEFT", "LEFT"]

    if command == "task retry":
        core.do(core.tasks.retry, running.task.id)
    else:
        core.do(core.triggers.requeue, running.claim.id)

    assert [mail["status"] for mail in rows(core, "mailbox")] == ["UNREAD", "UNREAD"]
    again = enter_next(core)
    for n in range(2):
        suspend(core, again, for_event("paid", name=f"wait_for#{n + 1}"))
        again = enter_next(core)
        assert again.entry.waits[f"wait_for#{n + 1}"].value_json == str(n)


def test_task_retried_twice_reads_the_signals_of_all_retries(core):
    running = begin(core)
    for n in range(2):
        core.do(core.tasks.signal, running.task.id, "paid", n)
        fail(core, running)
        core.do(core.tasks.retry, running.task.id)
        running = enter_next(core)

    assert [(mail["payload_json"], mail["status"]) for mail in rows(core, "mailbox")] == [
        ("0", "UNREAD"),
        ("1", "UNREAD"),
    ]


def test_retried_task_receives_no_signal_of_another_task_and_no_read_signal(core):
    other, running = begin(core), begin(core)
    for task in (other.task, running.task):
        core.do(core.tasks.signal, task.id, "paid", task.seq)
    suspend(core, running, for_event("paid"))
    running = enter_next(core)
    fail(core, other)
    fail(core, running)

    core.do(core.tasks.retry, running.task.id)

    assert [mail["status"] for mail in rows(core, "mailbox")] == ["LEFT", "READ"]
    assert enter_next(core).entry.waits["wait_for#1"].value_json == str(running.task.seq)


def test_message_emitted_again_at_the_failure_is_not_returned_by_a_retry(core):
    running = begin(core, session_id="s")
    emit(core, workflow=None, source="MESSAGE", task_id=running.task.id)
    core.do(core.turns.deliver, start_one(core), running.task.id)
    fail(core, running)

    core.do(core.tasks.retry, running.task.id)

    assert [mail["status"] for mail in rows(core, "mailbox")] == ["EMITTED"]


@pytest.mark.parametrize(
    ("trigger_exists", "status"),
    [pytest.param(True, "LEFT", id="dead letter"), pytest.param(False, "UNREAD", id="gone")],
)
def test_left_message_is_returned_unless_its_trigger_can_be_requeued(core, trigger_exists, status):
    running = begin(core)
    message = emit(core, workflow=None, source="MESSAGE", task_id=running.task.id)
    core.do(core.turns.deliver, start_one(core), running.task.id)
    with core.transaction() as tx:
        tx.run("UPDATE mailbox SET status = 'LEFT'")
        if not trigger_exists:
            tx.run("DELETE FROM triggers WHERE id = :id", id=message.id)
    fail(core, running)

    core.do(core.tasks.retry, running.task.id)

    assert [mail["status"] for mail in rows(core, "mailbox")] == [status]


def test_damaged_mail_stays_quarantined_at_a_retry(core):
    running = begin(core)
    core.do(core.tasks.signal, running.task.id, "paid")
    with core.transaction() as tx:
        tx.run("UPDATE mailbox SET status = 'LEFT', payload_json = 'garbage'")
    fail(core, running)

    core.do(core.tasks.retry, running.task.id)

    assert [mail["status"] for mail in rows(core, "mailbox")] == ["LEFT"]


def test_finished_answers_and_sleeps_are_not_waited_for_again(core, clock):
    running = begin(core)
    suspend(core, running, a_question())
    core.do(core.tasks.answer, the_question(core)["id"], "send", answered_by="ada")
    running = enter_next(core)
    suspend(core, running, a_sleep(clock.now() + 60))
    clock.advance(60)
    running = enter_next(core)
    fail(core, running)

    core.do(core.tasks.retry, running.task.id)

    waits = enter_next(core).entry.waits
    assert {name: (wait.resolved_by, wait.value_json) for name, wait in waits.items()} == {
        "ask#1": ("answer", '"send"'),
        "sleep#1": ("timer", "null"),
    }


# Refusals


@pytest.mark.parametrize("how", ["running", "waiting", "done", "cancelled"])
def test_retry_is_refused_unless_the_task_has_failed(core, how):
    running = begin(core)
    match how:
        case "waiting":
            suspend(core, running, for_event("paid"))
        case "done":
            finish(core, running)
        case "cancelled":
            suspend(core, running, for_event("paid"))
            core.do(core.tasks.cancel, running.task.id)
    before = rows(core, "tasks") + rows(core, "triggers")

    with pytest.raises(StateRefused, match="only one that is FAILED or held can be retried"):
        core.do(core.tasks.retry, running.task.id)
    assert rows(core, "tasks") + rows(core, "triggers") == before


def test_second_retry_is_refused(core):
    running = fail_second_turn(core)
    core.do(core.tasks.retry, running.task.id)

    with pytest.raises(StateRefused, match="is RUNNING"):
        core.do(core.tasks.retry, running.task.id)


def test_unknown_task_cannot_be_retried(core):
    with pytest.raises(NotFound):
        core.do(core.tasks.retry, "nobody")


# Limits of a requeue


def test_dead_message_to_a_failed_task_revives_only_the_message(core):
    running = fail_second_turn(core)
    message = emit(core, workflow=None, source="MESSAGE", task_id=running.task.id)
    ack(core, start_one(core), HOPELESS)

    core.do(core.triggers.requeue, message.id)

    assert look(core, running.task.id).status is TaskStatus.FAILED


def test_requeue_for_a_cancelled_task_revives_nothing(core):
    running = fail_second_turn(core)
    core.do(core.tasks.retry, running.task.id)
    fail(core, enter_next(core))
    with core.transaction() as tx:
        tx.run("UPDATE tasks SET status = 'CANCELLED'")

    core.do(core.triggers.requeue, running.claim.id)

    assert look(core, running.task.id).status is TaskStatus.CANCELLED


def test_parent_that_continued_is_not_notified_again_by_a_child_retry(core):
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, parent, for_child(child.task.id))
    fail(core, child)
    finish(core, enter_next(core), "went on")

    core.do(core.tasks.retry, child.task.id)
    finish(core, enter_next(core))

    assert [task["status"] for task in rows(core, "tasks")] == ["DONE", "DONE"]
    assert core.rows("SELECT 1 FROM triggers WHERE status IN ('PENDING', 'CLAIMED')") == []


def test_parent_that_waits_for_a_retried_child_receives_the_second_end(core):
    parent = begin(core)
    child = begin_child(core, parent)
    fail(core, child)
    core.do(core.tasks.retry, child.task.id)
    suspend(core, parent, for_child(child.task.id))

    finish(core, enter_next(core), 7)

    entry = enter_next(core).entry
    assert entry.waits[f"child/{child.task.id}"].value_json == '{"error":null,"result":7,"status":"DONE"}'


def test_task_is_not_retried_while_another_live_task_has_its_dedup_key(core):
    running = begin(core, dedup_key="invoice-7")
    go_on(core, running, None)
    fail(core, enter_next(core), BROKEN, policy=ONCE)
    other = begin(core, dedup_key="invoice-7")
    suspend(core, other, for_event("paid"))
    before = rows(core, "tasks")

    with pytest.raises(StateRefused, match=f"the dedup key invoice-7 is held by trigger {other.task.id} now"):
        core.do(core.tasks.retry, running.task.id)
    assert rows(core, "tasks") == before

    core.do(core.tasks.cancel, other.task.id)
    assert core.do(core.tasks.retry, running.task.id).status is TaskStatus.RUNNING


def test_dead_trigger_is_not_requeued_while_a_waiting_task_has_its_dedup_key(core):
    dead = emit(core, dedup_key="invoice-7")
    ack(core, start_one(core), BROKEN, ONCE)
    suspend(core, begin(core, dedup_key="invoice-7"), for_event("paid"))

    with pytest.raises(StateRefused, match="the dedup key invoice-7 is held by trigger"):
        core.do(core.triggers.requeue, dead.id)


def test_task_without_a_trigger_holds_its_dedup_key(core):
    waiting = begin(core, dedup_key="invoice-7")
    suspend(core, waiting, for_event("paid"))
    core.do(lambda tx: tx.run("DELETE FROM triggers WHERE id = :id", id=waiting.task.id))

    again = emit(core, dedup_key="invoice-7", payload={"n": 2})

    assert (again.id, again.created, again.payload_differs) == (waiting.task.id, False, False)
