"""Operator commands on triggers: cancel, requeue and discard, and their refusals."""

from __future__ import annotations

import pytest

from craftcore.errors import LeaseLost, NotFound, StateRefused
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.listing_store import FailedLately, TriggerLists
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Released, Rerouted, Snoozed, Succeeded
from tests.support.fakes import NEW_YEAR
from tests.support.trigger_steps import (
    BROKEN,
    HOPELESS,
    ack,
    claim_all,
    claim_one,
    emit,
    look,
    run_one,
    start,
    start_one,
)

ONCE = RetryPolicy(max_attempts=1)


def cancel(core, trigger_id, **how):
    return core.do(core.triggers.cancel, trigger_id, **how)


def requeue(core, trigger_id):
    return core.do(core.triggers.requeue, trigger_id)


# Cancel


@pytest.mark.parametrize("delay", [0, 60])
def test_waiting_trigger_is_cancelled_at_once_with_the_reason(core, clock, delay):
    emitted = emit(core, delay=delay)
    clock.advance(seconds=1)

    cancelled = cancel(core, emitted.id, reason="not needed any more")

    assert (cancelled.status, cancelled.reason) == (TriggerStatus.DONE, "not needed any more")
    assert (cancelled.error_code, cancelled.settled_at) == ("WORKFLOW_ABORTED", NEW_YEAR + 1)
    clock.advance(hours=1)
    assert claim_all(core) == []


def test_unstarted_claim_is_cancelled_at_once_and_its_start_refused(core):
    emitted = emit(core)
    claim = claim_one(core)

    cancelled = cancel(core, emitted.id)

    assert cancelled.status is TriggerStatus.DONE
    with pytest.raises(LeaseLost):
        start(core, claim)


def test_running_trigger_is_asked_to_stop_and_the_engine_is_notified(core):
    emitted = emit(core)
    running = start_one(core, epoch=3)

    requested = cancel(core, emitted.id)

    assert (requested.status, requested.cancel_requested_at) == (TriggerStatus.CLAIMED, NEW_YEAR)
    assert core.do(core.claims.cancel_requests, 3) == [running.seq]
    assert core.do(core.claims.cancel_requests, 4) == []


def test_second_cancel_request_changes_nothing(core):
    emitted = emit(core)
    running = start_one(core)
    cancel(core, emitted.id)

    cancel(core, emitted.id)

    assert core.do(core.claims.cancel_requests, 1) == [running.seq]


def test_success_before_the_cancellation_arrives_remains_a_success(core):
    emitted = emit(core)
    running = start_one(core)
    cancel(core, emitted.id)

    command = ack(core, running, Succeeded())

    assert (command.status, look(core, emitted.id).reason) == (TriggerStatus.DONE, "succeeded")


@pytest.mark.parametrize("outcome", [BROKEN, Snoozed(until=NEW_YEAR), Released(reason="x"), Rerouted(session_id="s")])
def test_cancel_request_stops_a_retry_or_release_from_returning(core, outcome):
    """The attempt fails or is released before the cancellation reaches its code."""
    wanted, unwanted = emit(core), emit(core)
    running = [start(core, claim) for claim in claim_all(core)]
    cancel(core, unwanted.id)

    moves = core.do(core.claims.settle_all, [(claim, outcome) for claim in running], lambda _: RetryPolicy())

    stored = look(core, unwanted.id)
    assert [command.status for command in moves] == [TriggerStatus.PENDING, TriggerStatus.DONE]
    assert look(core, wanted.id).status is TriggerStatus.PENDING
    assert (stored.status, stored.reason, stored.error_code) == (TriggerStatus.DONE, "cancelled", "WORKFLOW_ABORTED")


def test_cancelled_claim_without_a_holder_is_settled_by_the_sweep(core):
    emitted = emit(core)
    start_one(core)
    cancel(core, emitted.id)

    core.do(core.claims.reclaim_strays, 1, set())

    assert look(core, emitted.id).reason == "cancelled"
    assert claim_all(core) == []


@pytest.mark.parametrize(
    ("outcome", "expected"),
    [(Succeeded(), "is DONE (succeeded)"), (HOPELESS, "is FAILED (VALIDATION_ERROR)"), (BROKEN, "is DEAD (attempts")],
    ids=["done", "failed", "dead"],
)
def test_settled_trigger_cannot_be_cancelled(core, outcome, expected):
    emitted = emit(core)
    run_one(core, outcome, ONCE)
    before = look(core, emitted.id)

    with pytest.raises(StateRefused) as refused:
        cancel(core, emitted.id)

    assert expected in refused.value.message
    assert look(core, emitted.id) == before


def test_cancel_all_ends_live_triggers_and_leaves_settled_triggers(core):
    done = emit(core)
    run_one(core)
    dead = emit(core)
    run_one(core, BROKEN, ONCE)
    running, claimed, waiting, later = (emit(core, priority=n) for n in (1, 2, 3, 4))
    claims = claim_all(core, limit=2)
    start(core, claims[0])

    cancelled = core.do(core.cancel_all, "wiped")

    assert len(cancelled.triggers) == 4
    assert [look(core, one.id).reason for one in (claimed, waiting, later)] == ["wiped"] * 3
    assert look(core, running.id).cancel_requested_at is not None
    assert [look(core, one.id).reason for one in (done, dead)] == ["succeeded", "attempts spent"]
    assert claim_all(core) == []


# Requeue


@pytest.mark.parametrize(
    ("outcome", "status"),
    [(BROKEN, TriggerStatus.DEAD), (HOPELESS, TriggerStatus.FAILED)],
    ids=["dead", "failed"],
)
def test_requeue_gives_a_dead_or_failed_trigger_all_attempts_due_now(core, clock, outcome, status):
    emitted = emit(core, expires_at=NEW_YEAR + 60)
    run_one(core, outcome, ONCE)
    assert look(core, emitted.id).status is status
    clock.advance(hours=1)

    requeued = requeue(core, emitted.id)

    assert (requeued.status, requeued.reason) == (TriggerStatus.PENDING, "requeued")
    assert (requeued.attempts, requeued.crash_count, requeued.starts) == (0, 0, 1)
    assert (requeued.due_at, requeued.expires_at, requeued.settled_at) == (clock.now(), None, None)
    assert (requeued.error_code, requeued.error_message) == (None, None)
    assert start_one(core).starts == 2


def test_requeue_of_a_poisoned_trigger_resets_its_crash_count(core):
    emitted = emit(core)
    for epoch in (1, 2, 3):
        start_one(core, epoch=epoch, alone=True)
        core.do(core.claims.reclaim, epoch + 1)
    assert look(core, emitted.id).reason == "poison"

    requeued = requeue(core, emitted.id)

    assert (requeued.crash_count, requeued.started_alone) == (0, 0)


def test_requeue_drops_an_old_cancel_request(core):
    emitted = emit(core)
    running = start_one(core)
    cancel(core, emitted.id)
    ack(core, running, HOPELESS)

    requeue(core, emitted.id)
    start_one(core)

    assert core.do(core.claims.cancel_requests, 1) == []


@pytest.mark.parametrize("state", ["pending", "claimed", "running", "done"])
def test_requeue_of_a_trigger_that_is_neither_dead_nor_failed_is_refused(core, state):
    emitted = emit(core)
    if state != "pending":
        claim = claim_one(core)
        if state != "claimed":
            running = start(core, claim)
            if state == "done":
                ack(core, running, Succeeded())
    before = look(core, emitted.id)

    with pytest.raises(StateRefused, match=r"only DEAD and FAILED ones can be requeued$"):
        requeue(core, emitted.id)

    assert look(core, emitted.id) == before


def test_requeue_of_a_trigger_in_backoff_names_the_command_that_retries_now(core):
    emitted = emit(core, max_attempts=3)
    run_one(core, BROKEN)

    retry = f"craftcore execution retry exec-{emitted.id}.1 --reason TEXT"
    with pytest.raises(StateRefused, match=f"is PENDING; .*To let it run again now: {retry}$"):
        requeue(core, emitted.id)


def test_requeue_is_refused_while_a_live_trigger_holds_the_key(core):
    dead = emit(core, dedup_key="k", dedup_scope="active")
    run_one(core, BROKEN, ONCE)
    live = emit(core, dedup_key="k", dedup_scope="active")

    with pytest.raises(StateRefused) as refused:
        requeue(core, dead.id)

    assert live.id in refused.value.message
    assert look(core, dead.id).status is TriggerStatus.DEAD


def test_requeue_succeeds_once_the_live_trigger_is_settled(core):
    dead = emit(core, dedup_key="k", dedup_scope="active")
    run_one(core, BROKEN, ONCE)
    emit(core, dedup_key="k", dedup_scope="active")
    run_one(core)

    assert requeue(core, dead.id).status is TriggerStatus.PENDING


def test_requeue_of_a_dead_trigger_keeps_its_key_for_ever(core):
    dead = emit(core, dedup_key="k")
    run_one(core, BROKEN, ONCE)

    assert requeue(core, dead.id).status is TriggerStatus.PENDING
    assert emit(core, dedup_key="k").id == dead.id


# Run now


def test_run_now_makes_a_future_or_backoff_trigger_due_now(core, clock):
    later = emit(core, at=NEW_YEAR + 3600).id
    failing = emit(core).id
    run_one(core, BROKEN)

    for trigger_id in (later, failing):
        assert look(core, trigger_id).due_at > clock.now()
        after = core.do(core.triggers.run_now, trigger_id, "retried: she said so")
        assert (after.due_at, after.reason) == (clock.now(), "retried: she said so")
    assert {claim.id for claim in claim_all(core)} == {later, failing}


def test_run_now_keeps_order_and_attempts_and_is_not_overdue(core, clock):
    trigger_id = emit(core, expires_at=NEW_YEAR + 60).id
    run_one(core, BROKEN)
    clock.advance(hours=1)
    before = look(core, trigger_id)

    after = core.do(core.triggers.run_now, trigger_id, "retried")

    assert (after.attempts, after.due_at, after.not_before) == (1, before.due_at, before.not_before)
    assert after.expires_at is None
    assert start_one(core).id == trigger_id


@pytest.mark.parametrize("state", ["CLAIMED", "DONE", "DEAD"])
def test_run_now_is_refused_unless_the_trigger_is_pending(core, state):
    trigger_id = emit(core, max_attempts=1).id
    claim = start_one(core)
    if state != "CLAIMED":
        ack(core, claim, BROKEN if state == "DEAD" else Succeeded())
    before = look(core, trigger_id)

    with pytest.raises(StateRefused, match=f"is {state}; only a PENDING one can be run now"):
        core.do(core.triggers.run_now, trigger_id, "retried")

    assert look(core, trigger_id) == before


# Dead letters


def test_dead_letters_are_listed_newest_first_until_discarded(core, clock):
    dead = []
    for _ in range(3):
        dead.append(emit(core).id)
        run_one(core, BROKEN, ONCE)
        clock.advance(seconds=1)

    discarded = core.do(core.triggers.discard, dead[1], "looked at, not worth it")

    assert (discarded.status, discarded.reason) == (TriggerStatus.FAILED, "looked at, not worth it")
    assert discarded.error_code == "AGENT_ERROR"
    listed = core.rows("SELECT id FROM triggers WHERE status = 'DEAD' ORDER BY settled_at DESC")
    assert [row["id"] for row in listed] == [dead[2], dead[0]]


def test_failed_trigger_can_be_discarded_and_is_not_reported_any_more(core):
    emitted = emit(core)
    run_one(core, HOPELESS)
    with core.reading() as reader:
        assert TriggerLists().count_failed_since(reader, 0.0) == FailedLately(1, HOPELESS.code)

    discarded = core.do(core.triggers.discard, emitted.id)

    assert (discarded.status, discarded.reason, discarded.error_code) == ("FAILED", "discarded", HOPELESS.code)
    with core.reading() as reader:
        assert TriggerLists().count_failed_since(reader, 0.0) == FailedLately(0, None)


@pytest.mark.parametrize("outcome", [Succeeded(), None], ids=["done", "pending"])
def test_discard_is_refused_unless_the_trigger_has_failed_for_good(core, outcome):
    emitted = emit(core)
    if outcome is not None:
        run_one(core, outcome)

    with pytest.raises(StateRefused, match="only one that is DEAD or FAILED can be discarded"):
        core.do(core.triggers.discard, emitted.id)


@pytest.mark.parametrize("command", ["get", "cancel", "requeue", "discard"])
def test_unknown_trigger_id_is_reported(core, command):
    with pytest.raises(NotFound, match="no trigger nowhere"):
        core.do(getattr(core.triggers, command), "nowhere")
