"""An earlier occurrence is at work until its task has ended, however often its turns settle their triggers and wait."""

from __future__ import annotations

import pytest

from craftcore.schedules.model import Overlap
from craftcore.tasks.model import TaskStatus
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.schedule_steps import HOUR, account, put, tick, triggers
from tests.support.task_steps import (
    Running,
    a_question,
    a_sleep,
    enter_next,
    finish,
    for_event,
    go_on,
    look,
    suspend,
    the_question,
)


def first_occurrence(core: VirtualCore, clock: VirtualClock, overlap: Overlap = Overlap.BUFFER_ONE) -> Running:
    """The task of the first of an hourly schedule, in its first turn."""
    put(core, overlap=overlap)
    clock.advance(hours=1)
    tick(core)
    return enter_next(core)


def outcomes(core: VirtualCore) -> list[str]:
    return [line[0] for line in account(core)]


def test_one_that_waits_for_a_person_is_at_work_though_it_has_no_trigger(core, clock):
    running = first_occurrence(core, clock)
    suspend(core, running, a_question())
    assert triggers(core)[0]["status"] == "DONE"
    clock.advance(hours=1)
    tick(core)

    assert account(core)[1] == ("buffered", NEW_YEAR + 2 * HOUR, 1, f"waits for task {running.task.id}")

    core.do(core.tasks.answer, the_question(core)["id"], "send", answered_by="ada")
    tick(core)
    assert outcomes(core) == ["fired", "buffered"], "its turn goes on, and is not over"

    finish(core, enter_next(core))
    tick(core)
    assert outcomes(core) == ["fired", "fired"]


def test_one_at_its_second_turn_is_at_work(core, clock):
    running = first_occurrence(core, clock)
    go_on(core, running, 1)
    clock.advance(hours=1)

    tick(core)

    assert outcomes(core) == ["fired", "buffered"]


def test_none_fires_where_overlap_is_to_be_skipped_and_the_reason_names_the_task(core, clock):
    running = first_occurrence(core, clock, Overlap.SKIP)
    suspend(core, running, a_sleep(clock.now() + 10 * HOUR))
    for _ in range(3):
        clock.advance(hours=1)
        tick(core)

    reason = f"overlap: task {running.task.id} has not ended"
    assert account(core)[1:] == [("skipped", NEW_YEAR + 2 * HOUR, 3, reason)]


def test_they_overlap_where_that_is_allowed_though_one_waits(core, clock):
    suspend(core, first_occurrence(core, clock, Overlap.ALLOW), for_event("never"))
    clock.advance(hours=1)

    tick(core)

    assert outcomes(core) == ["fired", "fired"]


def test_a_task_that_is_cancelled_while_it_waits_lets_the_next_one_fire(core, clock):
    running = first_occurrence(core, clock)
    suspend(core, running, for_event("never"))
    clock.advance(hours=1)
    tick(core)

    core.do(core.tasks.cancel, running.task.id)
    tick(core)

    assert look(core, running.task.id).status is TaskStatus.CANCELLED
    assert outcomes(core) == ["fired", "fired"]


def test_one_asked_for_by_hand_waits_for_a_task_that_waits(core, clock):
    running = first_occurrence(core, clock)
    suspend(core, running, for_event("never"))

    placed = core.do(core.schedules.run_now, "job")

    assert (placed.outcome, placed.reason) == ("buffered", f"waits for task {running.task.id}")


@pytest.mark.parametrize("overlap", [Overlap.BUFFER_ONE, Overlap.SKIP])
def test_a_task_of_another_schedule_is_in_nobodys_way(core, clock, overlap):
    suspend(core, first_occurrence(core, clock, overlap), for_event("never"))
    put(core, id="other", overlap=overlap)
    clock.advance(hours=1)

    tick(core)

    assert [line[0] for line in account(core, "other")] == ["fired"]
