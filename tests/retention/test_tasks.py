"""A task goes ninety days after its end with all that hangs on it, and never while anything may go on with it."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.activities.model import Decision
from craftcore.retention.model import BATCH
from tests.activities.life import DONE, UNKNOWN, an_activity, decide
from tests.retention.sweeping import DAY, assert_sound, batches, only, sweep
from tests.tasks.life import (
    Running,
    a_question,
    a_sleep,
    begin,
    begin_child,
    end_turn,
    enter_next,
    finish,
    for_child,
    suspend,
)
from tests.triggers.life import HOPELESS
from tests.virtual import VirtualCore

OF_TASKS = only(history=90 * DAY)
STRIPPING = only(bodies=7 * DAY)


def ids(core: VirtualCore) -> set[str]:
    return {row["id"] for row in core.rows("SELECT id FROM tasks")}


def count(core: VirtualCore, table: str) -> int:
    [row] = core.rows(f"SELECT count(*) AS n FROM {table}")
    return int(row["n"])


def newest(core: VirtualCore) -> Running:
    """A later one with an activity: the highest numbers stay."""
    running = begin(core)
    an_activity(core, running, DONE)
    finish(core, running)
    return running


def with_everything(core: VirtualCore, clock: Any) -> Running:
    """Waits, questions, activities, a decision and mail."""
    running = begin(core)
    an_activity(core, running, DONE)
    doubt = an_activity(core, running, UNKNOWN, "1.2")
    decide(core, doubt, Decision.HAPPENED, reference="ref-2")
    suspend(core, running, a_question())
    [question] = core.rows("SELECT id FROM questions WHERE status = 'OPEN'")
    core.do(core.tasks.answer, question["id"], "send", answered_by="ada")
    running = enter_next(core)
    core.do(core.tasks.signal, running.task.id, "hello", {"text": "x"})
    finish(core, running, {"result": 1})
    return running


def test_a_task_goes_ninety_days_after_its_end_with_all_that_is_its(core, clock):
    old = with_everything(core, clock)
    last = newest(core)
    hangs = ("waits", "questions", "activity_log", "activity_decisions", "mailbox")
    assert all(count(core, table) for table in hangs)

    clock.advance(90 * DAY - 1)
    assert sweep(core, OF_TASKS).rows == 0
    clock.advance(1)
    taken = sweep(core, OF_TASKS)

    assert taken.removed["tasks"] == 1
    assert ids(core) == {last.task.id}
    assert old.task.id not in ids(core)
    assert {table: count(core, table) for table in hangs} == dict.fromkeys(hangs, 0) | {"activity_log": 1}


def test_the_newest_task_and_activity_keep_their_numbers_and_nothing_of_what_they_said(core, clock):
    last = with_everything(core, clock)
    clock.advance(500 * DAY)

    sweep(core)

    [task] = core.rows("SELECT * FROM tasks")
    assert (task["id"], task["state_json"], task["result_json"]) == (last.task.id, "null", None)
    assert {row["request_json"] for row in core.rows("SELECT request_json FROM activity_log")} == {None}
    assert count(core, "waits") == count(core, "questions") == count(core, "mailbox") == 0
    assert sweep(core).rows == 0


def asleep(core: VirtualCore, clock: Any) -> str:
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 1000 * DAY))
    return running.task.id


def in_doubt(core: VirtualCore, _: Any) -> str:
    running = begin(core)
    an_activity(core, running, UNKNOWN)
    end_turn(core, running, HOPELESS)
    return running.task.id


def being_called(core: VirtualCore, _: Any) -> str:
    """A crash between the call and its end, and nobody booted since; the task was ended meanwhile."""
    running = begin(core)
    an_activity(core, running)
    finish(core, running)
    return running.task.id


def given_up(core: VirtualCore, _: Any) -> str:
    """UNKNOWN stays UNKNOWN, whatever was decided."""
    running = begin(core)
    decide(core, an_activity(core, running, UNKNOWN), Decision.GIVE_UP)
    finish(core, running)
    return running.task.id


def asked_about(core: VirtualCore, _: Any) -> str:
    running = begin(core)
    finish(core, running)
    core.do(
        lambda tx: tx.run(
            "INSERT INTO questions (id, task_seq, kind, question, created_at) VALUES ('q', :seq, 'conflict', '?', 1)",
            seq=running.task.seq,
        )
    )
    return running.task.id


def child_of_a_live_one(core: VirtualCore, clock: Any) -> str:
    parent = begin(core)
    child = begin_child(core, parent)
    finish(core, child, "x")
    suspend(core, parent, a_sleep(clock.now() + 1000 * DAY))
    return child.task.id


@pytest.mark.parametrize("kind", [asleep, in_doubt, being_called, given_up, asked_about, child_of_a_live_one])
def test_what_is_live_in_doubt_or_asked_about_stays_whatever_its_age(core, clock, kind):
    kept = kind(core, clock)
    newest(core)
    [activities] = [core.rows("SELECT * FROM activity_log WHERE task_id = :id", id=kept)]
    clock.advance(900 * DAY)

    sweep(core)

    assert kept in ids(core)
    assert core.rows("SELECT * FROM activity_log WHERE task_id = :id", id=kept) == activities


def test_a_failed_task_stays_while_it_can_be_retried(core, clock):
    running = begin(core)
    end_turn(core, running, HOPELESS)
    newest(core)
    clock.advance(60 * DAY)

    sweep(core, only(history=DAY, dead=61 * DAY))
    assert running.task.id in ids(core)
    sweep(core, only(history=DAY, dead=60 * DAY))
    assert running.task.id not in ids(core)


def test_a_settled_activity_loses_its_arguments_after_a_week_and_keeps_key_hash_and_reference(core, clock):
    running = begin(core)
    an_activity(core, running, DONE)
    [before] = core.rows("SELECT * FROM activity_log")
    finish(core, running)

    clock.advance(7 * DAY - 1)
    assert sweep(core, STRIPPING).stripped["activity_log"] == 0
    clock.advance(1)
    sweep(core, STRIPPING)

    [after] = core.rows("SELECT * FROM activity_log")
    assert before["request_json"] is not None
    assert after == {**before, "request_json": None, "result_json": None}


def test_a_done_activity_of_a_live_task_keeps_its_result(core, clock):
    """It is what the turn is given when it comes to the act again."""
    running = begin(core)
    an_activity(core, running, DONE)
    suspend(core, running, a_sleep(clock.now() + 1000 * DAY))
    clock.advance(900 * DAY)

    sweep(core)

    [row] = core.rows("SELECT request_json, result_json FROM activity_log")
    assert None not in row.values()


def test_a_parent_may_go_before_its_child_and_a_child_before_its_parent(core, clock):
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, parent, for_child(child.task.id))
    finish(core, child, "x")
    finish(core, enter_next(core))
    newest(core)
    clock.advance(90 * DAY)

    sweep(core, OF_TASKS)

    assert not {parent.task.id, child.task.id} & ids(core)


def test_a_task_with_thousands_of_waits_goes_in_several_batches_each_of_which_can_be_the_last(core, clock):
    running = begin(core)
    finish(core, running)
    newest(core)
    many = """
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < 1200)
    INSERT INTO waits (id, task_seq, turn, name, kind, due_at, status, resolved_by, created_at, resolved_at)
    SELECT 'w' || n, :seq, 1, 'sleep' || n, 'timer', 1, 'RESOLVED', 'timer', 1, 1 FROM numbers
    """
    core.do(lambda tx: tx.run(many, seq=running.task.seq))
    clock.advance(90 * DAY)

    sizes = []
    for _, taken in batches(core, only(history=90 * DAY)):
        assert_sound(core)
        sizes.append(taken.rows)

    assert max(sizes) <= BATCH
    assert len(sizes) >= 3
    assert count(core, "waits") == 0
    assert running.task.id not in ids(core)
