"""Results of turns: written by the commit that settles the trigger, and refused after a lost lease."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.errors import LeaseLost
from craftcore.tasks.model import TaskStatus
from craftcore.tasks.store import TaskStore
from craftcore.tasks.task_end import end_of_task
from craftcore.tasks.turn_end import Followed
from craftcore.tasks.turn_start import StaleTurn
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Corrupt, Released, Snoozed
from tests.support.fakes import NEW_YEAR, VirtualCore, a_trigger
from tests.support.schedule_steps import start_daemon
from tests.support.task_steps import (
    Running,
    a_sleep,
    begin,
    complete,
    end_turn,
    enter,
    enter_next,
    event_of,
    fail,
    finish,
    for_event,
    go_on,
    look,
    rows,
    suspend,
    unwind,
)
from tests.support.trigger_steps import BROKEN, claim_all, claim_one, emit, start


def state(core: VirtualCore, task_id: str) -> tuple[str, int, str]:
    task = look(core, task_id)
    return task.status.value, task.turn, task.state_json


# Entry


def test_task_has_the_id_of_its_trigger_and_exists_from_the_first_start(core):
    emitted = emit(core, session_id="s", max_attempts=2)
    claim = claim_one(core)
    assert rows(core, "tasks") == []

    running = enter(core, claim)

    assert isinstance(running, Running)
    [row] = rows(core, "tasks")
    assert (row["id"], row["trigger_id"], row["workflow"]) == (emitted.id, emitted.id, "greet")
    assert (row["status"], row["turn"], row["state_json"], row["session_id"]) == ("RUNNING", 1, "null", "s")
    assert (row["created_at"], row["max_attempts"], running.entry.resume) == (NEW_YEAR, 2, "FIRST")
    assert running.task == look(core, emitted.id), "the task of the engine equals the row"


def test_plain_workflow_has_no_task_row(core):
    emit(core)

    assert enter(core, claim_one(core), is_task=False) is None
    assert rows(core, "tasks") == []


def test_tasks_started_together_are_kept_separate(core):
    ids = [emit(core, priority=n).id for n in range(5)]
    running = [enter(core, claim) for claim in claim_all(core)]

    assert [one.task.id for one in running if isinstance(one, Running)] == ids
    assert [row["id"] for row in rows(core, "tasks")] == ids


@pytest.mark.parametrize(
    ("ending", "resume"),
    [("failure", "RETRY"), ("snooze", "RETRY"), ("shutdown", "RESUME"), ("crash", "CRASH")],
)
def test_reentered_turn_knows_the_cause_and_the_completed_parts(core, clock, ending, resume):
    epoch = start_daemon(core).epoch
    running = begin(core, epoch=epoch)
    complete(core, running, "step:fetch", {"n": 1})
    match ending:
        case "failure":
            fail(core, running, BROKEN)
        case "snooze":
            end_turn(core, running, Snoozed(until=clock.now() + 60))
        case "shutdown":
            end_turn(core, running, Released(reason="shutdown"))
        case "crash":
            epoch = start_daemon(core).epoch
    clock.advance(60)

    again = enter_next(core, epoch=epoch)

    assert (again.entry.resume, list(again.entry.memo)) == (resume, ["step:fetch"])
    assert again.task.id == running.task.id
    assert len(rows(core, "tasks")) == 1


def test_turn_gets_payload_and_description_of_the_creating_trigger(core):
    running = begin(core, payload={"city": "Rome"}, description="a brief")
    go_on(core, running)

    second = enter_next(core)

    assert second.entry.creator is not None
    assert second.entry.creator.payload_json == '{"city":"Rome"}'
    assert second.entry.creator.description == "a brief"
    assert running.entry.creator is None, "the claimed trigger is the creator"


def test_next_turn_does_not_know_the_completed_parts_of_the_last(core):
    running = begin(core)
    complete(core, running)
    go_on(core, running)

    assert enter_next(core).entry.memo == {}


def test_trigger_of_a_missing_task_has_nothing_to_do(core):
    emit(core, source="RESUME", task_id="gone")

    assert enter(core, claim_one(core)) == StaleTurn("task gone is not there any more")


# Records


def test_completed_parts_are_numbered_in_order_in_the_record(core):
    running = begin(core)
    for name in ("step:a", "step:b", "step:c"):
        complete(core, running, name)
    finish(core, running)

    events = core.rows("SELECT seq, type, memo FROM events ORDER BY execution_seq, seq")
    numbers = [event["seq"] for event in events]
    assert numbers == list(range(1, len(events) + 1))
    assert [event["memo"] for event in events if event["memo"]] == ["step:a", "step:b", "step:c"]


def test_finished_turn_records_nothing_and_its_batch_continues(core):
    finished, running = begin(core), begin(core)
    finish(core, finished)

    answers = core.do(core.turn_recorder.record_all, [event_of(finished, "step:late"), event_of(running, "step:fine")])

    assert isinstance(answers[0], LeaseLost)
    assert isinstance(answers[1], int)
    assert [row["memo"] for row in core.rows("SELECT memo FROM events WHERE memo IS NOT NULL")] == ["step:fine"]


def test_emit_of_a_finished_turn_emits_nothing(core):
    finished = begin(core)
    finish(core, finished)
    row = core.triggers.accept(a_trigger())

    with pytest.raises(LeaseLost):
        core.do(core.turn_recorder.emit_recorded, row, lambda _: event_of(finished, "emit#1"), None)
    assert len(rows(core, "triggers")) == 1


def test_progress_of_a_finished_turn_is_refused(core):
    finished, running = begin(core), begin(core)
    core.do(core.turn_recorder.set_progress, finished.claim, finished.task.seq, "1")
    finish(core, finished)

    with pytest.raises(LeaseLost):
        core.do(core.turn_recorder.set_progress, finished.claim, finished.task.seq, "2")
    core.do(core.turn_recorder.set_progress, running.claim, running.task.seq, "3")
    core.do(core.turn_recorder.set_progress, running.claim, running.task.seq, "4")

    assert [(row["progress_json"], row["progress_count"]) for row in rows(core, "tasks")] == [("1", 1), ("4", 2)]


# Settlement


def test_returning_turn_ends_its_task_with_the_result(core, clock):
    running = begin(core)
    clock.advance(5)

    assert finish(core, running, {"n": 7}) == Followed(ended=True)

    task = look(core, running.task.id)
    assert (task.status, task.result_json, task.reason) == (TaskStatus.DONE, '{"n":7}', "succeeded")
    assert (task.ended_at, task.updated_at) == (clock.now(), clock.now())


def test_continuing_turn_commits_its_state_and_creates_a_single_trigger(core):
    running = begin(core, session_id="s", max_attempts=3)

    followed = go_on(core, running, {"n": 1}, steps=4)

    assert state(core, running.task.id) == ("RUNNING", 2, '{"n":1}')
    task = look(core, running.task.id)
    assert (task.turns_alone, task.steps_alone) == (1, 4)
    [trigger] = core.rows("SELECT * FROM triggers WHERE status = 'PENDING'")
    assert (trigger["id"], trigger["dedup_key"]) == (task.trigger_id, f"turn:{task.id}:2")
    assert (trigger["lane"], trigger["max_attempts"], followed.due_at) == ("s", 3, trigger["due_at"])
    second = enter_next(core)
    assert (second.entry.resume, second.task.turn, second.task.state_json) == ("NEXT", 2, '{"n":1}')


def test_next_turn_may_be_created_claimed(core):
    running = begin(core)

    followed = go_on(core, running, claim_next=True)

    assert followed.claim is not None
    assert claim_all(core) == []
    second = enter(core, followed.claim)
    assert isinstance(second, Running)
    assert (second.task.turn, second.claim.starts) == (2, 1)


def test_next_turn_is_not_created_claimed_past_waiting_session_work(core):
    running = begin(core, session_id="s")
    emit(core, session_id="s")

    assert go_on(core, running, claim_next=True).claim is None


def test_later_session_work_does_not_block_the_next_turn(core):
    running = begin(core, session_id="s")
    emit(core, session_id="s", delay=60)

    assert go_on(core, running, claim_next=True).claim is not None


def test_retried_failure_does_not_change_the_task(core):
    running = begin(core)
    go_on(core, running, {"n": 1})
    second = enter_next(core)
    before = rows(core, "tasks")

    fail(core, second, BROKEN)

    assert rows(core, "tasks") == before


def test_final_failure_ends_the_task_and_keeps_its_state(core):
    running = begin(core)
    go_on(core, running, {"n": 1})

    fail(core, enter_next(core))

    assert state(core, running.task.id) == ("FAILED", 2, '{"n":1}')
    task = look(core, running.task.id)
    assert (task.error_code, task.error_message) == ("VALIDATION_ERROR", "it never will")


def test_last_attempt_of_a_turn_is_the_last_of_its_task(core, clock):
    running = begin(core)
    for attempt in range(3):
        assert running.claim.attempts == attempt + 1
        fail(core, running, BROKEN, policy=RetryPolicy(max_attempts=3))
        clock.advance(3600)
        if attempt < 2:
            running = enter_next(core)

    assert look(core, running.task.id).status is TaskStatus.FAILED
    assert rows(core, "triggers")[0]["status"] == TriggerStatus.DEAD


def test_turn_after_a_wait_has_all_attempts(core, clock):
    running = begin(core)
    fail(core, running, BROKEN)
    clock.advance(3600)
    again = enter_next(core)
    assert again.claim.attempts == 2
    suspend(core, again, a_sleep(clock.now() + 60))
    clock.advance(60)

    assert enter_next(core).claim.attempts == 1


def test_corrupt_trigger_fails_its_task(core):
    running = begin(core)

    fail(core, running, Corrupt(message="the payload is not JSON"))

    task = look(core, running.task.id)
    assert (task.status, task.reason, task.error_message) == (
        TaskStatus.FAILED,
        "corrupt row",
        "the payload is not JSON",
    )


def test_unwound_turn_ends_as_cancelled(core):
    running = begin(core)

    unwind(core, running)

    task = look(core, running.task.id)
    assert (task.status, task.error_code) == (TaskStatus.CANCELLED, "WORKFLOW_ABORTED")


# Late writes


def is_move_written(core: VirtualCore, running: Running, **changes: Any) -> bool:
    """Return whether a move that was decided for this turn is still written."""
    before = rows(core, "tasks")
    move = end_of_task(running.task, TaskStatus.DONE, "late", core.clock.now(), result_json='"late"')
    core.do(TaskStore().advance_all, [move._replace(**changes)])
    return rows(core, "tasks") != before


def test_move_of_a_finished_turn_is_not_written(core):
    running = begin(core)
    go_on(core, running)

    assert not is_move_written(core, running)


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
def test_move_of_an_ended_task_is_not_written(core, how):
    running = begin(core)
    match how:
        case "done":
            finish(core, running)
        case "failed":
            fail(core, running)
        case "cancelled":
            unwind(core, running)

    assert not is_move_written(core, running)
    assert look(core, running.task.id).status == how.upper()


def test_move_of_a_missing_task_is_not_written(core):
    running = begin(core)

    assert not is_move_written(core, running, seq=99)


def test_move_of_a_current_turn_is_written(core):
    assert is_move_written(core, begin(core))


def test_ended_task_is_not_woken(core):
    running = begin(core)
    finish(core, running)
    before = rows(core, "tasks")

    core.do(TaskStore().wake, running.task.seq, "another", "woken", renews=True)

    assert rows(core, "tasks") == before


@pytest.mark.parametrize("how", ["running", "waiting", "done", "cancelled"])
def test_revive_is_refused_unless_the_task_has_failed(core, how):
    running = begin(core)
    match how:
        case "waiting":
            suspend(core, running, for_event("paid"))
        case "done":
            finish(core, running)
        case "cancelled":
            unwind(core, running)
    before = rows(core, "tasks")

    assert not core.do(TaskStore().revive, running.task.seq, "another")
    assert rows(core, "tasks") == before


def test_second_settle_of_a_turn_is_refused_and_changes_nothing(core):
    running = begin(core)
    go_on(core, running, 1)
    before = rows(core, "tasks") + rows(core, "triggers")

    with pytest.raises(LeaseLost):
        finish(core, running)
    with pytest.raises(LeaseLost):
        go_on(core, running)
    with pytest.raises(LeaseLost):
        unwind(core, running)
    assert rows(core, "tasks") + rows(core, "triggers") == before


def test_first_trigger_of_an_advanced_task_does_not_enter_again(core):
    """The trigger was set to PENDING by hand."""
    running = begin(core)
    go_on(core, running, 1)
    with core.transaction() as tx:
        tx.run(
            "UPDATE triggers SET status = 'PENDING', settled_at = NULL, started_at = NULL, priority = 0 WHERE id = :id",
            id=running.claim.id,
        )
    claim = next(claim for claim in claim_all(core) if claim.id == running.claim.id)

    assert enter(core, claim) == StaleTurn(f"task {running.task.id} goes on with another trigger")
    assert state(core, running.task.id) == ("RUNNING", 2, "1")


def test_claim_lost_before_its_start_enters_nothing(core):
    running = begin(core)
    followed = go_on(core, running, claim_next=True)
    assert followed.claim is not None
    start_daemon(core)
    start_daemon(core)

    with pytest.raises(LeaseLost):
        start(core, followed.claim)
