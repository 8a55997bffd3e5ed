"""Retention of tasks: ninety days after the end, with all dependent rows, unless the task can still continue."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.activities.model import Decision
from craftcore.retention.model import BATCH
from craftcore.tasks.fallback_store import FallbackStore
from tests.support.activity_steps import DONE, UNKNOWN, an_activity, decide
from tests.support.fakes import VirtualCore
from tests.support.retention_harness import DAY, assert_sound, batches, only, sweep
from tests.support.task_steps import (
    Running,
    a_question,
    a_sleep,
    begin,
    begin_child,
    end_turn,
    enter_next,
    finish,
    for_child,
    for_event,
    go_on,
    suspend,
)
from tests.support.trigger_steps import HOPELESS

HISTORY_ONLY = only(history=90 * DAY)
STRIPPING = only(bodies=7 * DAY)


def ids(core: VirtualCore) -> set[str]:
    return {row["id"] for row in core.rows("SELECT id FROM tasks")}


def count(core: VirtualCore, table: str) -> int:
    [row] = core.rows(f"SELECT count(*) AS n FROM {table}")
    return int(row["n"])


def add_newest_task(core: VirtualCore) -> Running:
    """Add a later task with an activity, because the rows with the highest numbers are kept."""
    running = begin(core)
    an_activity(core, running, DONE)
    finish(core, running)
    return running


def run_task_with_all_rows(core: VirtualCore, clock: Any) -> Running:
    """Run a task with waits, a question, activities, a decision and mail."""
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


def test_task_is_removed_with_dependent_rows_ninety_days_after_the_end(core, clock):
    old = run_task_with_all_rows(core, clock)
    last = add_newest_task(core)
    dependent = ("waits", "questions", "activity_log", "activity_decisions", "mailbox")
    assert all(count(core, table) for table in dependent)

    clock.advance(90 * DAY - 1)
    assert sweep(core, HISTORY_ONLY).rows == 0
    clock.advance(1)
    taken = sweep(core, HISTORY_ONLY)

    assert taken.removed["tasks"] == 1
    assert ids(core) == {last.task.id}
    assert old.task.id not in ids(core)
    assert {table: count(core, table) for table in dependent} == dict.fromkeys(dependent, 0) | {"activity_log": 1}


def test_newest_task_and_activity_rows_are_kept_without_bodies(core, clock):
    last = run_task_with_all_rows(core, clock)
    clock.advance(500 * DAY)

    sweep(core)

    [task] = core.rows("SELECT * FROM tasks")
    assert (task["id"], task["state_json"], task["result_json"]) == (last.task.id, "null", None)
    assert {row["request_json"] for row in core.rows("SELECT request_json FROM activity_log")} == {None}
    assert count(core, "waits") == count(core, "questions") == count(core, "mailbox") == 0
    assert sweep(core).rows == 0


def add_sleeping_task(core: VirtualCore, clock: Any) -> str:
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 1000 * DAY))
    return running.task.id


def add_task_in_doubt(core: VirtualCore, _: Any) -> str:
    running = begin(core)
    an_activity(core, running, UNKNOWN)
    end_turn(core, running, HOPELESS)
    return running.task.id


def add_task_with_an_intent(core: VirtualCore, _: Any) -> str:
    """Add an ended task whose activity has an intent and no result, as before the boot after a crash."""
    running = begin(core)
    an_activity(core, running)
    finish(core, running)
    return running.task.id


def add_task_with_given_up_activity(core: VirtualCore, _: Any) -> str:
    """Add a task whose UNKNOWN activity was given up; a decision does not change that status."""
    running = begin(core)
    decide(core, an_activity(core, running, UNKNOWN), Decision.GIVE_UP)
    finish(core, running)
    return running.task.id


def add_task_with_open_question(core: VirtualCore, _: Any) -> str:
    running = begin(core)
    finish(core, running)
    core.do(
        lambda tx: tx.run(
            "INSERT INTO questions (id, task_seq, kind, question, created_at) VALUES ('q', :seq, 'conflict', '?', 1)",
            seq=running.task.seq,
        )
    )
    return running.task.id


def add_child_of_a_live_task(core: VirtualCore, clock: Any) -> str:
    parent = begin(core)
    child = begin_child(core, parent)
    finish(core, child, "x")
    suspend(core, parent, a_sleep(clock.now() + 1000 * DAY))
    return child.task.id


@pytest.mark.parametrize(
    "kind",
    [
        add_sleeping_task,
        add_task_in_doubt,
        add_task_with_an_intent,
        add_task_with_given_up_activity,
        add_task_with_open_question,
        add_child_of_a_live_task,
    ],
)
def test_task_live_in_doubt_or_with_an_open_question_is_kept_at_any_age(core, clock, kind):
    kept = kind(core, clock)
    add_newest_task(core)
    [activities] = [core.rows("SELECT * FROM activity_log WHERE task_id = :id", id=kept)]
    clock.advance(900 * DAY)

    sweep(core)

    assert kept in ids(core)
    assert core.rows("SELECT * FROM activity_log WHERE task_id = :id", id=kept) == activities


def test_failed_task_is_kept_while_retry_is_possible(core, clock):
    running = begin(core)
    end_turn(core, running, HOPELESS)
    add_newest_task(core)
    clock.advance(60 * DAY)

    sweep(core, only(history=DAY, dead=61 * DAY))
    assert running.task.id in ids(core)
    sweep(core, only(history=DAY, dead=60 * DAY))
    assert running.task.id not in ids(core)


def test_settled_activity_loses_arguments_after_a_week_and_keeps_key_and_reference(core, clock):
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


def test_done_activity_of_a_live_task_keeps_the_result(core, clock):
    """The turn receives this result when it calls the action again."""
    running = begin(core)
    an_activity(core, running, DONE)
    suspend(core, running, a_sleep(clock.now() + 1000 * DAY))
    clock.advance(900 * DAY)

    sweep(core)

    [row] = core.rows("SELECT request_json, result_json FROM activity_log")
    assert None not in row.values()


def test_ended_child_is_removed_after_the_starting_turn_has_ended(core, clock):
    """A task that starts a child in each turn keeps only the children of the current turn."""
    parent = begin(core)
    first = begin_child(core, parent)
    finish(core, first, "x")
    go_on(core, parent, None, a_sleep(clock.now() + DAY))
    clock.advance(DAY)
    parent = enter_next(core)
    second = begin_child(core, parent)
    finish(core, second, "y")
    suspend(core, parent, for_event("never"))
    add_newest_task(core)
    clock.advance(90 * DAY)

    sweep(core)

    assert first.task.id not in ids(core)
    assert {parent.task.id, second.task.id} < ids(core)


# The ended turns of a live task


def run_turn_with_all_rows(core: VirtualCore, clock: Any) -> Running:
    """Return a task in its second turn. The first had a question, a message, activities and a decided doubt."""
    running = begin(core)
    an_activity(core, running, DONE)
    decide(core, an_activity(core, running, UNKNOWN, "1.2"), Decision.HAPPENED, reference="ref-2")
    an_activity(core, running, DONE, "welcome")
    suspend(core, running, a_question())
    [question] = core.rows("SELECT id FROM questions WHERE status = 'OPEN'")
    core.do(core.tasks.answer, question["id"], "send", answered_by="ada")
    running = enter_next(core)
    core.do(core.tasks.signal, running.task.id, "go", {"text": "x"})
    suspend(core, running, for_event("go"))
    running = enter_next(core)
    go_on(core, running, {"n": 1})
    running = enter_next(core)
    an_activity(core, running, DONE, "2.1")
    suspend(core, running, a_sleep(clock.now() + 1000 * DAY))
    return running


def test_rows_of_an_ended_turn_are_removed_after_ninety_days_and_current_rows_kept(core, clock):
    running = run_turn_with_all_rows(core, clock)
    add_newest_task(core)
    [seq] = {row["task_seq"] for row in core.rows("SELECT task_seq FROM waits")}
    assert count(core, "waits") == 3
    assert count(core, "questions") == count(core, "mailbox") == count(core, "activity_decisions") == 1

    clock.advance(90 * DAY - 1)
    assert not sweep(core, HISTORY_ONLY).removed.keys() & {"waits", "questions", "mailbox", "activity_log"}
    clock.advance(1)
    taken = sweep(core, HISTORY_ONLY)

    kinds = ("waits", "questions", "mailbox", "activity_log", "activity_decisions")
    assert {table: taken.removed[table] for table in kinds} == {
        "waits": 2,
        "questions": 1,
        "mailbox": 1,
        "activity_log": 2,
        "activity_decisions": 1,
    }
    assert [row["turn"] for row in core.rows("SELECT turn FROM waits WHERE task_seq = :seq", seq=seq)] == [2]
    left = core.rows("SELECT idem_key FROM activity_log WHERE task_seq = :seq", seq=seq)
    assert {row["idem_key"].rpartition(":")[2] for row in left} == {"welcome", "2.1"}
    assert running.task.id in ids(core)


def test_act_with_an_explicit_key_keeps_the_result_while_the_task_lives(core, clock):
    """A later turn can call the action with the same key, and receives the stored result."""
    run_turn_with_all_rows(core, clock)
    add_newest_task(core)
    clock.advance(900 * DAY)

    sweep(core)

    [row] = core.rows("SELECT result_json FROM activity_log WHERE idem_key LIKE '%:welcome'")
    assert row["result_json"] == '"ref-1"'


def test_acts_of_an_ended_turn_lose_arguments_after_a_week(core, clock):
    run_turn_with_all_rows(core, clock)
    add_newest_task(core)
    clock.advance(8 * DAY)

    sweep(core, STRIPPING)

    requests = {
        row["idem_key"].rpartition(":")[2]: row["request_json"]
        for row in core.rows("SELECT idem_key, request_json FROM activity_log WHERE task_seq = 1")
    }
    assert requests == {"1.1": None, "1.2": None, "welcome": '{"amount":7}', "2.1": '{"amount":7}'}


def test_newest_act_of_a_live_task_is_kept_for_has_acted(core, clock):
    running = begin(core)
    an_activity(core, running, DONE)
    go_on(core, running, None, a_sleep(clock.now() + 1000 * DAY))
    add_newest_task(core)
    clock.advance(900 * DAY)

    sweep(core)

    assert core.do(FallbackStore().has_acted, running.task.id)


def test_closed_question_of_a_live_task_is_removed_and_an_open_question_kept(core, clock):
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 1000 * DAY))
    ask = """
    INSERT INTO questions (id, task_seq, kind, question, status, created_at, closed_at)
    VALUES (:id, :seq, 'stalled', '?', :status, 1, :closed)
    """
    core.do(lambda tx: tx.run(ask, id="closed", seq=running.task.seq, status="WITHDRAWN", closed=tx.now))
    core.do(lambda tx: tx.run(ask, id="open", seq=running.task.seq, status="OPEN", closed=None))
    add_newest_task(core)
    clock.advance(90 * DAY)

    assert sweep(core, HISTORY_ONLY).removed["questions"] == 1
    assert core.rows("SELECT id FROM questions") == [{"id": "open"}]


def test_parent_and_child_tasks_are_removed_together(core, clock):
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, parent, for_child(child.task.id))
    finish(core, child, "x")
    finish(core, enter_next(core))
    add_newest_task(core)
    clock.advance(90 * DAY)

    sweep(core, HISTORY_ONLY)

    assert not {parent.task.id, child.task.id} & ids(core)


def test_task_with_thousands_of_waits_is_removed_over_several_sound_batches(core, clock):
    running = begin(core)
    finish(core, running)
    add_newest_task(core)
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
