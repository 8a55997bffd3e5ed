"""Work in doubt after a restore: restored work, due work, and the work that these emit or signal."""

from __future__ import annotations

from typing import Any

import pytest

from craftcore.activities.ledger_rules import RESTORED, RESTORED_OTHER_KEY
from craftcore.activities.model import Activity
from craftcore.executions.model import EventType
from craftcore.schedules.model import Outcome
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.restored_work import RestoredWork, begin_doubt, end_doubt
from craftcore.triggers.derived_ids import is_derived
from craftcore.triggers.model import TriggerSource
from tests.support.activity_steps import an_intent, begin_call, start_call
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.schedule_steps import DAY, HOUR, put, tick, triggers
from tests.support.task_steps import Running, begin, emit_child, enter, enter_next, event_of, finish
from tests.support.trigger_steps import claim_all, emit


def restore(core: VirtualCore, until: float | None = NEW_YEAR) -> None:
    core.do(begin_doubt, 3, until)


def doubt_reason(core: VirtualCore, running: Running) -> str | None:
    """Return the reason why an activity of this task is in doubt, or None if it may be called."""
    answer = begin_call(core, an_intent(running, epoch=4))
    return answer.reason if isinstance(answer, Activity) else None


def doubtful(core: VirtualCore, *ids: str) -> dict[str, bool]:
    return dict(core.do(RestoredWork().find_doubtful, ids))


@pytest.mark.parametrize(("hours", "reason"), [(0, RESTORED), (2, None)])
def test_occurrence_due_before_the_restore_is_asked_about(core, clock, hours, reason):
    """The occurrence fires after the restore in both cases."""
    put(core, when="every 1h")
    clock.advance(1.5 * HOUR)
    restore(core)
    clock.advance(hours * HOUR + 1)
    tick(core)

    running = enter_next(core)
    assert running.claim.nominal_at == NEW_YEAR + HOUR + hours * HOUR
    assert doubt_reason(core, running) == reason


def test_occurrence_has_the_same_id_when_a_restored_file_fires_again(tmp_path, clock):
    fired = []
    for folder in ("lost", "restored"):
        clock = type(clock)()
        core = VirtualCore(tmp_path / folder / "agent.db", clock)
        with core.transaction() as tx:
            tx.run("UPDATE facts SET value = 'the same' WHERE name = 'database_id'")
        put(core, when="every 1h")
        clock.advance(HOUR)
        if folder == "restored":
            emit(core)  # the generated ids then differ
        tick(core)
        fired.append([row["id"] for row in triggers(core)])
        core.close()

    assert fired[0] == fired[1] != []


def test_backfill_of_an_occurrence_whose_task_is_there_fires_nothing(core, clock):
    """Retention removed the trigger that held the key, and the row of the occurrence."""
    put(core, when="every 1h")
    clock.advance(HOUR)
    tick(core)
    finish(core, enter_next(core))
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")
        tx.run("DELETE FROM schedule_occurrences")

    [placed] = core.do(core.schedules.backfill, "job", NEW_YEAR + 1, NEW_YEAR + HOUR)

    assert placed.outcome is Outcome.SKIPPED


def test_message_left_by_a_restored_task_is_asked_about(core, clock):
    running = begin(core, session_id="ada")
    message = emit(core, source=TriggerSource.MESSAGE, workflow=None, session_id="ada").id
    [claim] = claim_all(core)
    core.do(core.turns.deliver, claim, running.task.id)
    clock.advance(1)
    restore(core)
    clock.advance(1)
    finish(core, running)

    [again] = core.rows("SELECT id FROM triggers WHERE session_id = 'ada' AND status = 'PENDING'")
    assert doubtful(core, again["id"], message) == {again["id"]: True, message: True}


def make_signal_event(running: Running, task_id: str) -> object:
    return event_of(running, "signal:go", canonicalize({"task": task_id}))._replace(type=EventType.STEP_COMPLETED)


def test_work_that_restored_work_signals_is_asked_about_under_any_policy(core, clock):
    """In the lost file, other work had another id here, so a provider does not recognize the key."""
    restored = begin(core)
    clock.advance(1)
    restore(core)
    clock.advance(1)
    later = begin(core)
    assert doubtful(core, later.task.id) == {}

    core.do(core.turn_recorder.mark_made, make_signal_event(restored, later.task.id), later.task.id)

    assert doubt_reason(core, later) == RESTORED_OTHER_KEY


def test_message_of_restored_work_puts_its_reader_in_doubt(core, clock):
    message = emit(core, source=TriggerSource.MESSAGE, workflow=None, session_id="ada").id
    clock.advance(1)
    restore(core)
    clock.advance(1)
    later = emit(core).id
    claims = {claim.id: claim for claim in claim_all(core)}
    reader = enter(core, claims[later])
    assert isinstance(reader, Running)
    core.do(core.turns.deliver, claims[message], later)

    assert doubt_reason(core, reader) == RESTORED_OTHER_KEY


def test_work_of_later_work_is_not_asked_about(core, clock):
    restore(core)
    clock.advance(1)
    later = begin(core)
    child = emit_child(core, later)

    assert doubtful(core, child) == {}


def test_mark_is_removed_with_its_trigger(core, clock):
    restored = begin(core)
    clock.advance(1)
    restore(core)
    clock.advance(1)
    emit_child(core, restored)
    assert len(core.rows("SELECT * FROM restored_work")) == 1

    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")

    assert core.rows("SELECT * FROM restored_work") == []


def test_doubt_of_a_child_made_again_counts_from_the_end_of_the_backup(core, clock):
    """A provider's window counts from the first call. An earlier first call would be in the backup."""
    clock.advance(DAY)
    restored = begin(core)
    restore(core, until=NEW_YEAR + DAY + 60)
    clock.advance(DAY)
    child = emit_child(core, restored)
    [claim] = [claim for claim in claim_all(core) if claim.id == child]
    running = enter(core, claim)
    assert isinstance(running, Running)

    answer = begin_call(core, an_intent(running))

    assert isinstance(answer, Activity)
    assert answer.first_call_at == NEW_YEAR + DAY + 60 < running.task.created_at


def test_second_restore_keeps_the_earlier_end(core, clock):
    restore(core, until=NEW_YEAR)
    clock.advance(DAY)
    restore(core, until=NEW_YEAR + HOUR)

    assert core.rows("SELECT value FROM facts WHERE name = 'restored_until'") == [{"value": repr(NEW_YEAR)}]


def test_doubt_ends_once(core, clock):
    restored = begin(core)
    restore(core)
    emit_child(core, restored)

    assert core.do(end_doubt)
    assert not core.do(end_doubt)
    assert core.rows("SELECT * FROM restored_work") == []
    assert start_call(core, an_intent(restored)).calls == 1


def test_file_that_was_never_restored_costs_an_engine_no_statement(core):
    restored = RestoredWork()
    core.do(restored.look)

    no_transaction: Any = None
    assert not restored.is_possible(no_transaction)
    assert restored.find_doubtful(no_transaction, {"a"}) == {}
    restored.mark(no_transaction, "a", "b")


def test_damaged_moment_of_a_restore_puts_all_work_in_doubt(core):
    with core.transaction() as tx:
        tx.run("INSERT INTO facts (name, value) VALUES ('restored_at', 'yesterday')")

    assert doubt_reason(core, begin(core)) == RESTORED


def test_message_that_is_emitted_again_has_another_id_where_its_own_is_in_use(core):
    """Retention removed an earlier message with the same id that was also emitted again."""
    emit(core, id="msg-1")
    first, second = (core.do(core.triggers.emit_again, "msg-1", "{}") for _ in range(2))

    assert is_derived(first)
    assert not is_derived(second)
