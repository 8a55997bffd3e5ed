"""Retention of triggers: settled for a day, dead letters for thirty, dedup keys until their horizon."""

from __future__ import annotations

import pytest

from craftcore.errors import DuplicateTrigger, StateRefused
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.tasks.outcomes import Returned
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import DedupScope, TriggerSource, TriggerStatus
from craftcore.triggers.settlement import Succeeded
from tests.support.fakes import VirtualCore
from tests.support.retention_harness import DAY, only, sweep
from tests.support.task_steps import a_sleep, begin, end_turn, enter_next, go_on, on_event, suspend
from tests.support.trigger_steps import BROKEN, HOPELESS, emit, look, run_one

ONCE = RetryPolicy(max_attempts=1)


def exists(core: VirtualCore, trigger_id: str) -> bool:
    return bool(core.rows("SELECT 1 FROM triggers WHERE id = :id", id=trigger_id))


def add_newest_trigger(core: VirtualCore) -> None:
    """Add a later trigger, because the row with the highest number is kept at any age."""
    emit(core, delay=400 * DAY)


@pytest.mark.parametrize(
    ("outcome", "days"),
    [(None, 1), (HOPELESS, 1), (BROKEN, 30)],
    ids=["done", "failed", "dead"],
)
def test_settled_trigger_is_removed_exactly_at_the_horizon(core, clock, outcome, days):
    old = emit(core, payload={"name": "Ada"}).id
    run_one(core, outcome, ONCE)
    add_newest_trigger(core)

    clock.advance(days * DAY - 1)
    assert sweep(core).rows == 0
    assert look(core, old).payload_json == '{"name":"Ada"}'

    clock.advance(1)
    assert dict(sweep(core).removed) == {"triggers": 1}
    assert not exists(core, old)


def test_unsettled_trigger_is_kept_at_any_age(core, clock):
    claimed = emit(core).id
    core.do(core.claims.claim, epoch=1, limit=1)
    waiting = emit(core, delay=500 * DAY).id
    add_newest_trigger(core)

    clock.advance(499 * DAY)

    assert sweep(core).rows == 0
    assert exists(core, claimed)
    assert exists(core, waiting)


def test_settled_trigger_is_kept_for_ever_with_a_zero_setting(core, clock):
    emit(core)
    run_one(core)
    add_newest_trigger(core)
    clock.advance(3000 * DAY)

    assert sweep(core, only()).rows == 0


def test_newest_trigger_loses_the_body_and_keeps_the_row(core, clock):
    last = emit(core, payload={"secret": "x"}, description="for Ada").id
    run_one(core)
    clock.advance(DAY)

    assert dict(sweep(core).stripped) == {"triggers": 1}

    row = look(core, last)
    assert (row.payload_json, row.description, row.stripped_at) == ("{}", None, clock.now())
    assert sweep(core).rows == 0


# Dedup keys


def test_trigger_with_an_ever_key_is_stripped_and_kept_until_the_key_horizon(core, clock):
    kept = emit(core, dedup_key="invoice-7", dedup_scope=DedupScope.EVER, payload={"secret": "x"}).id
    run_one(core)
    add_newest_trigger(core)

    clock.advance(DAY)
    assert dict(sweep(core).stripped) == {"triggers": 1}
    assert look(core, kept).payload_json == "{}"

    clock.advance(89 * DAY - 1)
    assert sweep(core).rows == 0
    again = emit(core, dedup_key="invoice-7", dedup_scope=DedupScope.EVER, payload={"other": 1})
    assert (again.id, again.created, again.payload_differs) == (
        kept,
        False,
        False,
    )  # the payload is stripped, so it cannot be compared

    clock.advance(1)
    assert dict(sweep(core).removed) == {"triggers": 1}
    new = emit(core, dedup_key="invoice-7", dedup_scope=DedupScope.EVER)
    assert new.created
    assert new.id != kept


def test_trigger_with_an_active_key_is_removed_after_settling(core, clock):
    old = emit(core, dedup_key="busy", dedup_scope=DedupScope.ACTIVE).id
    run_one(core)
    add_newest_trigger(core)
    clock.advance(DAY)

    assert dict(sweep(core).removed) == {"triggers": 1}
    assert not exists(core, old)


def test_dedup_key_holds_for_the_longest_catch_up_window_and_a_week(core, clock):
    spec = ScheduleSpec(id="yearly", when="0 7 1 1 *", workflow="greet", catch_up_window=200 * DAY)
    core.do(core.schedules.put, spec, Origin.OPERATOR)
    kept = emit(core, dedup_key="invoice-7", dedup_scope=DedupScope.EVER).id
    run_one(core)
    add_newest_trigger(core)

    clock.advance(207 * DAY - 1)
    sweep(core)
    assert not emit(core, dedup_key="invoice-7", dedup_scope=DedupScope.EVER).created
    clock.advance(1)
    sweep(core)

    assert not exists(core, kept)


def test_trigger_of_a_fired_once_schedule_keeps_the_key_for_ever(core, clock):
    kept = emit(core, source=TriggerSource.SCHEDULED, dedup_key="scheduled-once:launch").id
    run_one(core)
    add_newest_trigger(core)

    clock.advance(3000 * DAY)
    sweep(core)

    assert exists(core, kept)
    assert not emit(core, source=TriggerSource.SCHEDULED, dedup_key="scheduled-once:launch").created


def test_requeue_of_a_stripped_dead_letter_is_refused(core, clock):
    dead = emit(core, dedup_key="invoice-7", dedup_scope=DedupScope.EVER, payload={"amount": 7}).id
    run_one(core, BROKEN, ONCE)
    add_newest_trigger(core)
    clock.advance(30 * DAY - 1)
    sweep(core)
    assert core.do(core.triggers.requeue, dead).payload_json == '{"amount":7}'
    run_one(core, BROKEN, ONCE)

    clock.advance(30 * DAY)
    sweep(core)

    with pytest.raises(StateRefused, match="retention took the payload"):
        core.do(core.triggers.requeue, dead)
    assert look(core, dead).status == "DEAD"


# Triggers of tasks


def test_triggers_of_a_live_task_are_kept_with_payloads(core, clock):
    """The task sleeps for a year, after the trigger that created it has settled."""
    running = begin(core, payload={"city": "Rome"})
    suspend(core, running, a_sleep(clock.now() + 365 * DAY))
    add_newest_trigger(core)

    clock.advance(364 * DAY)

    taken = sweep(core)
    assert taken.removed["triggers"] == taken.stripped["triggers"] == 0
    assert look(core, running.task.id).payload_json == '{"city":"Rome"}'


def test_triggers_of_ended_turns_are_removed_and_first_and_current_kept(core, clock):
    """A task of many turns keeps its first payload, and the trigger that it waits for."""
    running = begin(core, payload={"city": "Rome"})
    for _ in range(3):
        go_on(core, running, None, a_sleep(clock.now() + DAY))
        clock.advance(DAY)
        running = enter_next(core)
    go_on(core, running, None, a_sleep(clock.now() + 365 * DAY))
    add_newest_trigger(core)
    assert len(core.rows("SELECT 1 FROM triggers")) == 6

    clock.advance(100 * DAY)
    sweep(core)

    [task] = core.rows("SELECT trigger_id FROM tasks")
    left = {row["id"] for row in core.rows("SELECT id FROM triggers WHERE seq < (SELECT max(seq) FROM triggers)")}
    assert left == {running.task.id, task["trigger_id"]}
    assert look(core, running.task.id).payload_json == '{"city":"Rome"}'


def test_message_trigger_is_kept_while_the_mail_is_unread(core, clock):
    """The end of the task emits unread mail again, which needs the row of the trigger."""
    running = begin(core)
    go_on(core, running, None, on_event("never"))
    message = emit(core, source=TriggerSource.MESSAGE).id
    run_one(core)
    put = """
    INSERT INTO mailbox (task_seq, event, payload_json, trigger_id, created_at) VALUES (1, 'message', '{}', :id, 1)
    """
    core.do(lambda tx: tx.run(put, id=message))
    add_newest_trigger(core)
    clock.advance(10 * DAY)

    sweep(core)
    assert exists(core, message)

    core.do(lambda tx: tx.run("UPDATE mailbox SET status = 'LEFT'"))
    sweep(core)
    assert not exists(core, message)


def test_retry_of_a_failed_task_is_refused_after_the_dead_letter_horizon(core, clock):
    running = begin(core, payload={"city": "Rome"})
    end_turn(core, running, HOPELESS)
    add_newest_trigger(core)

    clock.advance(30 * DAY - 1)
    assert sweep(core).removed["triggers"] == 0
    clock.advance(1)
    assert sweep(core).removed["triggers"] == 1

    with pytest.raises(StateRefused, match="retention took what task"):
        core.do(core.tasks.retry, running.task.id)
    assert core.do(core.tasks.get, running.task.id).status == "FAILED"


def test_failed_task_retried_before_the_dead_letter_horizon_keeps_the_payload(core, clock):
    running = begin(core, payload={"city": "Rome"})
    end_turn(core, running, HOPELESS)
    add_newest_trigger(core)
    clock.advance(30 * DAY - 1)
    sweep(core)

    core.do(core.tasks.retry, running.task.id)

    assert look(core, running.task.id).status == "PENDING"
    assert look(core, running.task.id).payload_json == '{"city":"Rome"}'


# Ids


def test_trigger_with_a_caller_id_is_stripped_and_kept_until_the_key_horizon(core, clock):
    emit(core, id="order-7", payload={"secret": "x"})
    run_one(core)
    add_newest_trigger(core)

    clock.advance(DAY)
    assert dict(sweep(core).stripped) == {"triggers": 1}
    assert look(core, "order-7").payload_json == "{}"

    clock.advance(89 * DAY - 1)
    assert sweep(core).rows == 0
    again = emit(core, id="order-7", payload={"other": 1})
    assert (again.id, again.created, again.status, again.held) == ("order-7", False, TriggerStatus.DONE, "id")

    clock.advance(1)
    sweep(core)
    assert emit(core, id="order-7").created


def test_cancelled_trigger_with_a_caller_id_still_holds_the_id(core, clock):
    emit(core, id="order-7", delay=60)
    core.do(core.triggers.cancel, "order-7")
    add_newest_trigger(core)
    clock.advance(2 * DAY)
    sweep(core)

    assert not emit(core, id="order-7").created


@pytest.mark.parametrize("outcome", [None, HOPELESS], ids=["done", "failed"])
def test_emit_with_the_id_of_a_removed_trigger_with_a_record_is_not_run_again(core, clock, outcome):
    """The engine made this id, so it is held by the record and not by a row."""
    running = begin(core)
    trigger_id = running.task.id
    end_turn(core, running, outcome or Succeeded(), None if outcome else Returned(result_json="null"))
    add_newest_trigger(core)
    clock.advance(40 * DAY)
    sweep(core)
    assert not exists(core, trigger_id)

    again = emit(core, id=trigger_id)

    assert (again.id, again.created, again.held) == (trigger_id, False, "id")
    assert again.status is (TriggerStatus.FAILED if outcome else TriggerStatus.DONE)
    with pytest.raises(DuplicateTrigger, match=f"the id is held by trigger {trigger_id}"):
        emit(core, id=trigger_id, on_duplicate="error")
    assert not emit(core, id=trigger_id, on_duplicate="replace").created
    assert not exists(core, trigger_id)


def test_trigger_id_that_is_a_prefix_of_another_is_not_a_duplicate(core):
    emit(core, id="order.7")
    run_one(core)

    assert emit(core, id="order").created


def test_emit_with_the_id_of_a_task_without_a_trigger_row_is_a_duplicate(core):
    running = begin(core)
    suspend(core, running, a_sleep(DAY))
    core.do(lambda tx: tx.run("DELETE FROM triggers WHERE id = :id", id=running.task.id))

    again = emit(core, id=running.task.id)

    assert (again.created, again.held) == (False, "id")
