"""Stops of a turn in each of its states, and refusal of late stops."""

from __future__ import annotations

import pytest

from craftcore.errors import StateRefused
from craftcore.tasks.model import TaskStatus
from craftcore.tasks.store import TaskStore
from craftcore.triggers.settlement import Cancelled
from tests.support.fakes import VirtualCore
from tests.support.task_steps import (
    Running,
    a_question,
    begin,
    end_turn,
    enter_next,
    fail,
    finish,
    go_on,
    look,
    on_event,
    rows,
    suspend,
)
from tests.support.trigger_steps import BROKEN, HOPELESS, claim_all


def begin_second_turn(core: VirtualCore) -> Running:
    """Begin the second turn of a chat with state."""
    go_on(core, begin(core), ["a"], on_event("message"))
    [task] = rows(core, "tasks")
    core.do(core.tasks.signal, task["id"], "message", {"text": "b"})
    return enter_next(core)


def assert_waits_for_message(core: VirtualCore, task_id: str) -> None:
    task = look(core, task_id)
    assert (task.status, task.reason, task.turn) == (TaskStatus.WAITING, "waits for the event message", 3)
    assert (task.state_json, task.trigger_id) == ('["a"]', None)


def test_running_turn_is_stopped_by_its_settlement(core):
    running = begin_second_turn(core)

    assert core.do(core.tasks.stop_turn, running.task.id).turn == 2
    end_turn(core, running, Cancelled())

    assert_waits_for_message(core, running.task.id)


def test_turn_that_is_due_and_has_not_started_is_stopped_at_once(core):
    running = begin_second_turn(core)
    fail(core, running, BROKEN)
    assert look(core, running.task.id).status is TaskStatus.RUNNING

    core.do(core.tasks.stop_turn, running.task.id)

    assert_waits_for_message(core, running.task.id)


def test_turn_that_waits_is_stopped_with_its_timer(core, clock):
    running = begin_second_turn(core)
    suspend(core, running, a_question(until=clock.now() + 60))

    core.do(core.tasks.stop_turn, running.task.id)

    assert_waits_for_message(core, running.task.id)
    assert core.rows("SELECT 1 FROM triggers WHERE status IN ('PENDING', 'CLAIMED')") == []


def test_stop_survives_a_killed_engine(core):
    running = begin_second_turn(core)
    core.do(core.tasks.stop_turn, running.task.id)

    core.do(core.claims.reclaim, 2)

    assert_waits_for_message(core, running.task.id)


def test_turn_that_ended_before_its_stop_is_kept(core):
    running = begin_second_turn(core)
    core.do(TaskStore().set_stopped_turn, running.task.seq, 2)
    go_on(core, running, ["a", "b"], on_event("message"))

    task = look(core, running.task.id)
    assert (task.turn, task.state_json) == (3, '["a","b"]')
    core.do(core.tasks.signal, task.id, "message", {"text": "c"})
    end_turn(core, enter_next(core), Cancelled())
    assert look(core, task.id).status is TaskStatus.CANCELLED, "the stop was for an earlier turn"


def test_retry_clears_the_stop(core):
    running = begin_second_turn(core)
    core.do(TaskStore().set_stopped_turn, running.task.seq, 2)
    fail(core, running, HOPELESS)

    assert core.do(core.tasks.retry, running.task.id).stopped_turn is None


def test_task_that_ended_or_waits_for_its_next_turn_is_refused(core):
    running = begin_second_turn(core)
    go_on(core, running, ["a", "b"], on_event("message"))
    with pytest.raises(StateRefused, match="waits for the event message: no turn of it has begun"):
        core.do(core.tasks.stop_turn, running.task.id)
    core.do(core.tasks.signal, running.task.id, "message", {"text": "c"})
    finish(core, enter_next(core))

    with pytest.raises(StateRefused, match="is DONE"):
        core.do(core.tasks.stop_turn, running.task.id)


def test_turn_of_a_held_task_is_stopped_and_the_hold_released_later(core):
    go_on(core, begin(core), ["a"], on_event("message"))
    [task] = rows(core, "tasks")
    core.do(core.tasks.signal, task["id"], "message", {"text": "b"})
    core.do(core.holds.hold_misfits, {task["id"]: "its state does not fit"})
    [claim] = claim_all(core)
    assert core.do(core.holds.put_off, claim, task["id"], "its state does not fit")

    core.do(core.tasks.stop_turn, task["id"])
    assert_waits_for_message(core, task["id"])

    assert core.do(core.holds.release, task["id"])
    assert_waits_for_message(core, task["id"])
    core.do(core.tasks.signal, task["id"], "message", {"text": "c"})
    assert enter_next(core).task.turn == 3
