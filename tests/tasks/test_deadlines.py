"""Deadlines of whole tasks, which end each wait and each backoff."""

from __future__ import annotations

import pytest

from craftcore.engine.attempt_commits import limited_outcome
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.settlement import Failed, Snoozed, Succeeded
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.schedule_steps import HOUR
from tests.support.task_steps import (
    a_question,
    a_sleep,
    begin,
    emit_child,
    enter_next,
    fail,
    finish,
    for_event,
    go_on,
    look,
    rows,
    suspend,
)
from tests.support.trigger_steps import BROKEN

DAILY_BACKOFF = RetryPolicy(base=24 * HOUR, cap=24 * HOUR)


def test_deadline_counts_from_the_first_start_across_turns(core, clock):
    running = begin(core, deadline=HOUR)
    clock.advance(60)
    go_on(core, running)

    second = enter_next(core, deadline=HOUR)

    assert running.task.deadline_at == second.task.deadline_at == NEW_YEAR + HOUR


def test_deadline_of_a_child_counts_from_its_own_first_start(core, clock):
    parent = begin(core)
    child = emit_child(core, parent, delay=2 * HOUR)
    finish(core, parent)
    clock.advance(3 * HOUR)

    running = enter_next(core, deadline=HOUR)

    assert running.task.deadline_at == look(core, child).deadline_at == clock.now() + HOUR


def seconds_until_due(core: VirtualCore) -> float:
    """Return the seconds from the start of the test until the only live trigger is due."""
    [row] = core.rows("SELECT due_at FROM triggers WHERE status IN ('PENDING', 'CLAIMED')")
    return float(row["due_at"]) - NEW_YEAR


def test_wait_beyond_the_deadline_has_its_trigger_at_the_deadline(core, clock):
    suspend(core, begin(core, deadline=HOUR), a_sleep(clock.now() + 2 * HOUR))

    assert seconds_until_due(core) == HOUR


def test_wait_that_ends_before_the_deadline_keeps_its_time(core, clock):
    suspend(core, begin(core, deadline=HOUR), a_sleep(clock.now() + 60))

    assert seconds_until_due(core) == 60


def test_wait_without_end_has_a_trigger_at_the_deadline(core):
    for wait in (for_event("never"), a_question()):
        running = begin(core, deadline=HOUR)
        suspend(core, running, wait)

        assert seconds_until_due(core) == HOUR
        core.do(core.tasks.cancel, running.task.id)


def test_question_open_at_the_deadline_expires(core, clock):
    suspend(core, begin(core, deadline=HOUR), a_question())
    clock.advance(HOUR)

    enter_next(core)

    assert [question["status"] for question in rows(core, "questions")] == ["EXPIRED"]


def test_backoff_ends_with_the_deadline_at_the_latest(core):
    running = begin(core, deadline=HOUR)

    fail(core, running, limited_outcome(running.task.deadline_at, BROKEN), policy=DAILY_BACKOFF)

    assert seconds_until_due(core) == HOUR


def test_backoff_that_ends_before_the_deadline_is_unchanged(core):
    running = begin(core, deadline=HOUR)

    fail(core, running, limited_outcome(running.task.deadline_at, BROKEN), policy=RetryPolicy(base=60, cap=60))

    assert 30 <= seconds_until_due(core) <= 60


def test_snooze_ends_with_the_deadline(core, clock):
    running = begin(core, deadline=HOUR)

    fail(core, running, limited_outcome(running.task.deadline_at, Snoozed(until=clock.now() + 2 * HOUR)))

    assert seconds_until_due(core) == HOUR


def test_deadline_limits_only_outcomes_with_a_later_attempt():
    assert limited_outcome(5.0, Succeeded()) == Succeeded()
    assert limited_outcome(None, BROKEN) is BROKEN
    assert isinstance(limited_outcome(5.0, BROKEN), Failed)


def test_retried_task_has_its_whole_time_again(core, clock):
    running = begin(core, deadline=HOUR)
    clock.advance(2 * HOUR)
    fail(core, running)

    core.do(core.tasks.retry, running.task.id)
    clock.advance(3 * HOUR)

    assert look(core, running.task.id).deadline_at is None
    assert enter_next(core, deadline=HOUR).task.deadline_at == clock.now() + HOUR


@pytest.mark.parametrize("wait", [a_question(), for_event("approved"), a_sleep(NEW_YEAR + 3600)])
def test_wait_cut_off_by_the_deadline_begins_again_at_a_retry(core, clock, wait):
    suspend(core, begin(core, deadline=60), wait)
    clock.advance(60)
    late = enter_next(core)
    fail(core, late)

    core.do(core.tasks.retry, late.task.id)
    again = enter_next(core, deadline=7200)
    suspend(core, again, wait)

    assert again.entry.waits == {}
    assert [(row["name"], row["status"]) for row in rows(core, "waits")] == [(wait.name, "WAITING")]


def test_wait_whose_own_time_has_come_at_the_deadline_is_over(core, clock):
    suspend(core, begin(core, deadline=60), for_event("approved", until=NEW_YEAR + 60))
    clock.advance(60)
    late = enter_next(core)
    fail(core, late)

    core.do(core.tasks.retry, late.task.id)

    assert [wait.resolved_by for wait in enter_next(core).entry.waits.values()] == ["timer"]
