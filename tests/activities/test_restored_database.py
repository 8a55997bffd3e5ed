"""Activities after the restore of a backup: acts without a ledger row are in doubt."""

from __future__ import annotations

import pytest

from craftcore.activities.model import Activity, ActivityStatus, Decision, StartedCall
from craftcore.errors import IdempotencyConflict
from craftcore.storage.restored_work import begin_doubt, find_latest
from craftcore.storage.transaction import Transaction
from tests.support.activity_steps import (
    DONE,
    LEDGER,
    LISTING,
    NOTHING,
    STORE,
    UNKNOWN,
    an_activity,
    an_intent,
    begin_call,
    decide,
    end_call,
    look,
    start_call,
)
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.task_steps import begin, enter_next
from tests.support.trigger_steps import emit


def mark_restored(core: VirtualCore) -> None:
    """Mark the database as restored from a backup."""
    with core.transaction() as tx:
        begin_doubt(tx, 3, until=tx.now)


def assert_in_doubt(answer: object) -> Activity:
    assert isinstance(answer, Activity), answer
    assert answer.is_open
    return answer


def test_restored_task_without_a_ledger_row_is_in_doubt(core, clock):
    running = begin(core)
    clock.advance(60)
    mark_restored(core)
    clock.advance(60)

    found = assert_in_doubt(begin_call(core, an_intent(running, epoch=4)))

    assert found == look(core, found.seq)
    assert (found.in_doubt, found.may_retry, found.settled_at) == (True, True, None)
    assert found.reason == "the database was restored: it may be done"
    assert (found.calls, found.execution_seq, found.epoch) == (1, 0, 4)
    assert (found.key, found.request_json) == (an_intent(running).key, '{"amount":7}')
    assert core.do(STORE.list_undecided, [running.task.seq]) == [found]


def test_restored_doubt_counts_from_the_creation_of_the_task(core, clock):
    """A provider's window counts from the first call, which cannot be earlier than the task."""
    running = begin(core)
    clock.advance(60)
    mark_restored(core)
    clock.advance(60)

    found = assert_in_doubt(begin_call(core, an_intent(running)))

    assert (found.first_call_at, found.last_call_at, found.created_at) == (NEW_YEAR, NEW_YEAR + 120, NEW_YEAR + 120)


def test_clock_behind_the_task_creation_does_not_date_the_doubt_in_the_future(core, clock):
    clock.advance(hours=1)
    running = begin(core)
    mark_restored(core)
    clock.set_back(1800)

    assert assert_in_doubt(begin_call(core, an_intent(running))).first_call_at == clock.now()


def test_work_of_a_file_that_is_restored_with_the_clock_behind_is_in_doubt(core, clock):
    """The times of the file are in the future, for example on a machine without a battery."""
    clock.advance(hours=1)
    running = begin(core)
    clock.set_back(1800)
    with core.transaction() as tx:
        begin_doubt(tx, 3, until=find_latest(tx))

    assert_in_doubt(begin_call(core, an_intent(running)))


def test_damaged_facts_of_a_restore_put_a_call_that_may_be_repeated_in_doubt(core, clock):
    running = begin(core)
    an_activity(core, running, NOTHING, "1.1")
    mark_restored(core)
    with core.transaction() as tx:
        tx.run("UPDATE facts SET value = 'x' WHERE name LIKE 'restored%'")

    assert_in_doubt(begin_call(core, an_intent(running, "1.1", epoch=4)))


def test_restored_ledger_row_keeps_its_state(core):
    running = begin(core)
    done = an_activity(core, running, DONE, "1.1")
    mark_restored(core)

    assert begin_call(core, an_intent(running, "1.1")) == done
    refused = begin_call(core, an_intent(running, "1.1", args_hash="another"))
    assert isinstance(refused, IdempotencyConflict)


def test_restored_repeatable_activity_is_put_in_doubt_once(core, clock):
    """The call had failed without an effect at the backup. It may have been called again in the lost file."""
    running = begin(core)
    failed = an_activity(core, running, NOTHING, "1.1")
    mark_restored(core)
    clock.advance(1)

    found = assert_in_doubt(begin_call(core, an_intent(running, "1.1", epoch=3)))
    assert (found.calls, found.in_doubt, found.reason) == (1, True, "the database was restored: it may be done")
    assert found.first_call_at == failed.first_call_at
    assert core.do(STORE.list_undecided, [running.task.seq]) == [found]

    decide(core, found, Decision.RESEND)
    assert begin_call(core, an_intent(running, "1.1", epoch=3)) == StartedCall(found.seq, 2, False)


def test_restored_no_effect_is_not_trusted(core, clock):
    """A person decided to resend before the backup, and the call may have been repeated since."""
    running = begin(core)
    unknown = an_activity(core, running, UNKNOWN, "1.1")
    decide(core, unknown, Decision.RESEND)
    mark_restored(core)
    clock.advance(1)

    assert assert_in_doubt(begin_call(core, an_intent(running, "1.1", epoch=3))).decision is None


def test_decision_after_the_restore_counts(core, clock):
    running = begin(core)
    unknown = an_activity(core, running, UNKNOWN, "1.1")
    mark_restored(core)
    clock.advance(1)
    decide(core, unknown, Decision.RESEND)

    assert begin_call(core, an_intent(running, "1.1", epoch=3)) == StartedCall(unknown.seq, 2, False)


def test_failure_after_the_restore_is_called_again_with_any_clock(core, clock):
    running = begin(core)
    mark_restored(core)
    clock.set_back(3600)
    intent = an_intent(running, "1.1", epoch=3)
    decide(core, assert_in_doubt(begin_call(core, intent)), Decision.RESEND)
    assert end_call(core, start_call(core, intent), NOTHING)

    assert begin_call(core, intent) == StartedCall(1, 3, False)


def test_task_begun_after_the_restore_may_act(core, clock):
    mark_restored(core)
    clock.advance(1)

    assert start_call(core, an_intent(begin(core))).calls == 1


def test_task_of_a_restored_trigger_may_have_begun_before(core, clock):
    emit(core)
    mark_restored(core)
    clock.advance(60)
    running = enter_next(core)
    assert running.task.created_at == NEW_YEAR + 60

    assert_in_doubt(begin_call(core, an_intent(running)))


def test_task_without_a_trigger_is_dated_by_its_own_creation(core, clock):
    old = begin(core)
    clock.advance(1)
    mark_restored(core)
    clock.advance(1)
    new = begin(core)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")

    assert_in_doubt(begin_call(core, an_intent(old)))
    assert start_call(core, an_intent(new)).calls == 1


def test_batch_with_old_and_new_tasks_treats_each_by_its_age(core, clock):
    old = begin(core)
    mark_restored(core)
    clock.advance(1)
    new = begin(core)
    intents = [
        an_intent(running, place)
        for running, place in [(new, "1.1"), (old, "1.1"), (new, "1.2"), (old, "1.2"), (new, "1.3")]
    ]

    answers = core.do(LEDGER.begin_all, intents)

    assert [look(core, answer.seq).key for answer in answers if not isinstance(answer, Exception)] == [
        intent.key for intent in intents
    ]
    assert [isinstance(answer, StartedCall) for answer in answers] == [True, False, True, False, True]


def test_failed_batch_leaves_nothing_in_doubt(core):
    running = begin(core)
    mark_restored(core)

    def begin_and_break(tx: Transaction) -> None:
        LEDGER.begin_all(tx, [an_intent(running)])
        raise KeyError

    with pytest.raises(KeyError):
        core.do(begin_and_break)
    assert core.do(LISTING.list_newest, 1) == []


@pytest.mark.parametrize("decision", Decision)
def test_restored_doubt_is_decided_like_any_other(core, decision):
    running = begin(core)
    mark_restored(core)
    found = assert_in_doubt(begin_call(core, an_intent(running, epoch=3)))

    decided = decide(core, found, decision)

    answer = begin_call(core, an_intent(running, epoch=3))
    if decision is Decision.RESEND:
        assert answer == StartedCall(found.seq, 2, False)
        assert end_call(core, answer, DONE)
    else:
        assert answer == decided


def test_second_restore_puts_work_in_between_in_doubt_too(core, clock):
    mark_restored(core)
    clock.advance(1)
    running = begin(core)
    clock.advance(1)
    mark_restored(core)

    assert assert_in_doubt(begin_call(core, an_intent(running))).status is ActivityStatus.UNKNOWN
