"""The end of emitted work, read from its task, trigger or record."""

from __future__ import annotations

import pytest

from craftcore.errors import CraftcoreError, DatabaseInvalid, NotFound
from craftcore.storage.transaction import Transaction
from craftcore.tasks.work_store import Failure, WorkResult
from craftcore.triggers.settlement import Succeeded, Suspended
from tests.support.attempts import RECORDER, begin, end
from tests.support.fakes import VirtualCore
from tests.support.retention_harness import DAY, only, sweep
from tests.support.task_steps import a_sleep, complete, enter_next, finish, suspend
from tests.support.task_steps import begin as begin_task
from tests.support.trigger_steps import HOPELESS

ROWS_ONLY = only(triggers=DAY, dead=DAY)


def end_of(core: VirtualCore, id: str) -> WorkResult | CraftcoreError:
    return core.find_ends_of_work([id])[id]


def remove_task(tx: Transaction) -> None:
    """Remove a task as retention does when the first of its records expires."""
    tx.run("DELETE FROM waits")
    tx.run("DELETE FROM tasks")


def remove_task_and_triggers(tx: Transaction) -> None:
    remove_task(tx)
    tx.run("DELETE FROM triggers")


REMOVALS = pytest.mark.parametrize("removal", [remove_task, remove_task_and_triggers])


def test_end_of_a_removed_trigger_is_that_of_its_record(core, clock):
    done, failed = begin(core), begin(core)
    end(core, done, Succeeded(result_json='"Hello Ada"'))
    end(core, failed, HOPELESS)
    begin(core)  # retention keeps the newest row
    clock.advance(2 * DAY)
    assert sweep(core, ROWS_ONLY).removed["triggers"] == 2

    assert end_of(core, done.claim.id) == WorkResult(done.claim.id, "greet", "SUCCESS", None, '"Hello Ada"')
    failure = Failure(HOPELESS.code, HOPELESS.message)
    assert end_of(core, failed.claim.id) == WorkResult(failed.claim.id, "greet", "ERROR", None, failure=failure)


@REMOVALS
def test_end_of_a_removed_task_is_that_of_its_last_turn(core, clock, removal):
    running = begin_task(core)
    task_id = running.task.id
    complete(core, running)
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="sleep#1"))])
    suspend(core, running, a_sleep(clock.now() + DAY))
    clock.advance(DAY)
    running = enter_next(core)
    core.do(RECORDER.close_all, [(running.record, Succeeded(result_json='"the second turn"'))])
    finish(core, running)
    core.do(removal)

    found = end_of(core, task_id)
    assert isinstance(found, WorkResult)
    assert found.result_json == '"the second turn"'


@REMOVALS
def test_end_of_a_removed_task_that_was_cancelled_asleep_is_not_found(core, clock, removal):
    running = begin_task(core)
    complete(core, running)
    core.do(RECORDER.close_all, [(running.record, Suspended(reason="sleep#1"))])
    suspend(core, running, a_sleep(clock.now() + DAY))
    core.do(core.tasks.cancel, running.task.id, "cancelled")
    core.do(removal)

    assert isinstance(end_of(core, running.task.id), NotFound)


def test_end_of_a_removed_task_whose_records_have_no_end_is_not_kept(core, clock):
    running = begin_task(core)
    suspend(core, running, a_sleep(clock.now() + DAY))
    clock.advance(DAY)
    finish(core, enter_next(core))
    core.do(remove_task)

    end = end_of(core, running.task.id)
    assert isinstance(end, NotFound)
    assert "is not kept any more" in str(end)


def test_damaged_response_is_the_error_of_its_own_work_only(core):
    damaged, sound = begin(core), begin(core)
    for each in (damaged, sound):
        end(core, each, Succeeded(result_json="1"))

    def damage(tx: Transaction) -> None:
        tx.run("DROP TRIGGER executions_are_closed")
        tx.run("UPDATE executions SET response_json = '{' WHERE trigger_id = :id", id=damaged.claim.id)

    core.do(damage)

    ends = core.find_ends_of_work([damaged.claim.id, sound.claim.id])
    assert isinstance(ends[sound.claim.id], WorkResult)
    error = ends[damaged.claim.id]
    assert isinstance(error, DatabaseInvalid)
    assert str(error) == f"the response of record {damaged.id} is damaged: craftcore verify says what else is"
