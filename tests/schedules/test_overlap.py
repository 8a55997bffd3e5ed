"""Overlap with an earlier occurrence, which lasts until its task ends, over all turns and waits."""

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


def start_first_occurrence(core: VirtualCore, clock: VirtualClock, overlap: Overlap = Overlap.BUFFER_ONE) -> Running:
    """Start the task of the first occurrence of an hourly schedule."""
    put(core, overlap=overlap)
    clock.advance(hours=1)
    tick(core)
    return enter_next(core)


def outcomes(core: VirtualCore) -> list[str]:
    return [line[0] for line in account(core)]


def test_task_waiting_for_an_answer_buffers_the_next_occurrence(core, clock):
    running = start_first_occurrence(core, clock)
    suspend(core, running, a_question())
    assert triggers(core)[0]["status"] == "DONE"
    clock.advance(hours=1)
    tick(core)

    assert account(core)[1] == ("buffered", NEW_YEAR + 2 * HOUR, 1, f"waits for task {running.task.id}")

    core.do(core.tasks.answer, the_question(core)["id"], "send", answered_by="ada")
    tick(core)
    assert outcomes(core) == ["fired", "buffered"], "the turn has not ended"

    finish(core, enter_next(core))
    tick(core)
    assert outcomes(core) == ["fired", "fired"]


def test_task_in_the_second_turn_buffers_the_next_occurrence(core, clock):
    running = start_first_occurrence(core, clock)
    go_on(core, running, 1)
    clock.advance(hours=1)

    tick(core)

    assert outcomes(core) == ["fired", "buffered"]


def test_overlap_skip_skips_occurrences_and_names_the_unfinished_task(core, clock):
    running = start_first_occurrence(core, clock, Overlap.SKIP)
    suspend(core, running, a_sleep(clock.now() + 10 * HOUR))
    for _ in range(3):
        clock.advance(hours=1)
        tick(core)

    reason = f"overlap: task {running.task.id} has not ended"
    assert account(core)[1:] == [("skipped", NEW_YEAR + 2 * HOUR, 3, reason)]


def test_overlap_allow_fires_while_an_earlier_task_waits(core, clock):
    suspend(core, start_first_occurrence(core, clock, Overlap.ALLOW), for_event("never"))
    clock.advance(hours=1)

    tick(core)

    assert outcomes(core) == ["fired", "fired"]


def test_cancel_of_a_waiting_task_fires_the_buffered_occurrence(core, clock):
    running = start_first_occurrence(core, clock)
    suspend(core, running, for_event("never"))
    clock.advance(hours=1)
    tick(core)

    core.do(core.tasks.cancel, running.task.id)
    tick(core)

    assert look(core, running.task.id).status is TaskStatus.CANCELLED
    assert outcomes(core) == ["fired", "fired"]


def test_run_now_is_buffered_behind_a_waiting_task(core, clock):
    running = start_first_occurrence(core, clock)
    suspend(core, running, for_event("never"))

    placed = core.do(core.schedules.run_now, "job")

    assert (placed.outcome, placed.reason) == ("buffered", f"waits for task {running.task.id}")


@pytest.mark.parametrize("overlap", [Overlap.BUFFER_ONE, Overlap.SKIP])
def test_task_of_another_schedule_does_not_delay_an_occurrence(core, clock, overlap):
    suspend(core, start_first_occurrence(core, clock, overlap), for_event("never"))
    put(core, id="other", overlap=overlap)
    clock.advance(hours=1)

    tick(core)

    assert [line[0] for line in account(core, "other")] == ["fired"]
