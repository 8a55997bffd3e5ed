"""Attempts in single steps: fenced starts, one settlement each, and the count of spent attempts."""

from __future__ import annotations

import pytest

from craftcore.errors import LeaseLost, StateRefused
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_service import Started
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import (
    Cancelled,
    Corrupt,
    Failed,
    Released,
    Rerouted,
    Settlement,
    Snoozed,
    Succeeded,
    is_poison,
    must_run_alone,
)
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


def snapshot(core):
    """Return all columns of all triggers."""
    return core.rows("SELECT * FROM triggers ORDER BY seq")


# Start


def test_start_counts_the_attempt_and_its_time(core, clock):
    emitted = emit(core)
    claim = claim_one(core)
    clock.advance(seconds=3)

    started = start(core, claim)

    stored = look(core, emitted.id)
    assert (started.attempts, started.starts) == (stored.attempts, stored.starts) == (1, 1)
    assert (stored.status, stored.started_at, stored.started_alone) == (TriggerStatus.CLAIMED, NEW_YEAR + 3, 0)
    assert stored.is_started


def test_start_of_a_started_claim_is_refused(core):
    emit(core)
    claim = claim_one(core)
    start(core, claim)
    before = snapshot(core)

    with pytest.raises(LeaseLost):
        start(core, claim)

    assert snapshot(core) == before


def test_start_of_a_reclaimed_claim_is_refused(core):
    emit(core)
    late = claim_one(core, epoch=1)
    core.do(core.claims.reclaim, 2)
    before = snapshot(core)

    with pytest.raises(LeaseLost, match="nothing was written"):
        start(core, late)

    assert snapshot(core) == before
    assert start_one(core, epoch=2).attempts == 1


def test_start_of_a_cancelled_claim_is_refused(core):
    emitted = emit(core)
    claim = claim_one(core)
    core.do(core.triggers.cancel, emitted.id)

    with pytest.raises(LeaseLost):
        start(core, claim)

    assert look(core, emitted.id).reason == "cancelled"


def test_trigger_that_expires_before_its_start_settles_as_stale_and_never_runs(core, clock):
    emitted = emit(core, expires_at=NEW_YEAR + 10)
    claim = claim_one(core)
    clock.advance(seconds=10)

    with pytest.raises(StateRefused, match="expired before it could start"):
        start(core, claim)

    stored = look(core, emitted.id)
    assert (stored.status, stored.reason, stored.attempts) == (TriggerStatus.DONE, "stale", 0)
    assert stored.settled_at == NEW_YEAR + 10
    assert claim_all(core) == []


def test_trigger_runs_until_its_expiry(core, clock):
    emit(core, expires_at=NEW_YEAR + 10)
    clock.advance(seconds=9.999)

    assert start_one(core).attempts == 1


def test_refused_start_in_a_batch_does_not_affect_the_others(core, clock):
    ids = [emit(core).id for _ in range(40)]
    stale = emit(core, expires_at=NEW_YEAR + 1).id
    claims = claim_all(core)
    core.do(core.triggers.cancel, ids[3])
    clock.advance(seconds=1)

    answers = core.do(core.claims.start_all, claims)

    assert [type(answer) for answer in answers] == [
        *([Started] * 3),
        LeaseLost,
        *([Started] * 36),
        StateRefused,
    ]
    assert [answer.claim.id for answer in answers if isinstance(answer, Started)] == [*ids[:3], *ids[4:]]
    assert look(core, stale).reason == "stale"


# Outcomes

FAR = NEW_YEAR + 5_000
OUTCOMES = [
    (Succeeded(), TriggerStatus.DONE, "succeeded", None, 1),
    (Cancelled(), TriggerStatus.DONE, "cancelled", "WORKFLOW_ABORTED", 1),
    (HOPELESS, TriggerStatus.FAILED, "VALIDATION_ERROR", "VALIDATION_ERROR", 1),
    (Corrupt(message="not JSON"), TriggerStatus.DEAD, "corrupt row", None, 1),
    (BROKEN, TriggerStatus.PENDING, "AGENT_ERROR", "AGENT_ERROR", 1),
    (Snoozed(until=FAR), TriggerStatus.PENDING, "snoozed", None, 0),
    (Released(reason="shutdown"), TriggerStatus.PENDING, "shutdown", None, 0),
    (Rerouted(session_id="s"), TriggerStatus.PENDING, "waits for session s", None, 0),
]


@pytest.mark.parametrize(
    ("outcome", "status", "reason", "code", "attempts"), OUTCOMES, ids=[type(line[0]).__name__ for line in OUTCOMES]
)
def test_outcome_of_each_kind_has_its_status_and_reason(core, clock, outcome, status, reason, code, attempts):
    emitted = emit(core)
    running = start_one(core)
    clock.advance(seconds=1)

    move = ack(core, running, outcome)

    stored = look(core, emitted.id)
    assert (move.status, move.reason) == (stored.status, stored.reason) == (status, reason)
    assert (stored.error_code, stored.attempts, stored.starts) == (code, attempts, 1)
    assert (stored.lease_token, stored.lease_until, stored.claimed_epoch) == (None, None, None)
    assert stored.settled_at == (NEW_YEAR + 1 if status.is_settled else None)
    assert stored.started_at == (NEW_YEAR if status.is_settled else None)
    assert stored.updated_at == NEW_YEAR + 1


def test_failure_message_is_in_the_row(core):
    emitted = emit(core)
    hostile = "'; DROP TABLE triggers; -- \x00 \n “é” 😀"

    run_one(core, Failed(code="AGENT_ERROR", message=hostile, retryable=False))

    assert look(core, emitted.id).error_message == hostile


def test_success_after_a_failure_leaves_no_error(core, clock):
    emitted = emit(core)
    run_one(core, BROKEN)
    clock.advance(hours=1)

    run_one(core)

    stored = look(core, emitted.id)
    assert (stored.status, stored.attempts) == (TriggerStatus.DONE, 2)
    assert (stored.error_code, stored.error_message) == (None, None)


# Late settlements


def test_settle_of_a_settled_trigger_is_refused_and_changes_nothing(core, clock):
    emit(core)
    running = start_one(core)
    ack(core, running, Succeeded())
    before = snapshot(core)
    clock.advance(seconds=5)

    with pytest.raises(LeaseLost, match="nothing was written"):
        ack(core, running, HOPELESS)

    assert snapshot(core) == before


@pytest.mark.parametrize("outcome", [line[0] for line in OUTCOMES], ids=[type(line[0]).__name__ for line in OUTCOMES])
def test_late_settle_is_refused_when_a_later_epoch_runs_the_trigger(core, outcome):
    """The trigger was reclaimed and claimed again, and the first consumer settles it late."""
    emit(core)
    late = start_one(core, epoch=1)
    core.do(core.claims.reclaim, 2)
    current = start_one(core, epoch=2)
    before = snapshot(core)

    with pytest.raises(LeaseLost):
        ack(core, late, outcome)

    assert snapshot(core) == before
    assert ack(core, current, Succeeded()).status is TriggerStatus.DONE


def test_settle_of_a_trigger_that_waits_again_is_refused(core):
    emit(core)
    late = start_one(core)
    core.do(core.claims.reclaim, 2)
    before = snapshot(core)

    with pytest.raises(LeaseLost):
        ack(core, late, Succeeded())

    assert snapshot(core) == before


def test_lost_lease_in_a_batch_does_not_affect_the_others(core):
    for _ in range(40):
        emit(core)
    running = [start(core, claim) for claim in claim_all(core)]
    ack(core, running[7], Succeeded())

    moves = core.do(core.claims.settle_all, [(claim, Succeeded()) for claim in running], lambda _: RetryPolicy())

    assert isinstance(moves.pop(7), LeaseLost)
    assert all(isinstance(move, Settlement) for move in moves)
    assert {row["status"] for row in snapshot(core)} == {"DONE"}


# Retry


def test_failed_trigger_is_due_again_when_its_backoff_ends(core, clock):
    emitted = emit(core)

    move = run_one(core, BROKEN)

    assert move.not_before is not None
    assert move.not_before == NEW_YEAR + RetryPolicy().backoff(emitted.id, 1)
    assert look(core, emitted.id).due_at == look(core, emitted.id).not_before == move.not_before
    assert claim_all(core) == []
    clock.advance(seconds=move.not_before - NEW_YEAR + 0.001)
    assert start_one(core).attempts == 2


def backoff_waits(core, clock, *, failures, policy, outcome=BROKEN):
    """Fail `failures` times in a row, and return the wait after each failure."""
    waits = []
    for _ in range(failures):
        move = run_one(core, outcome, policy)
        waits.append(move.not_before - clock.now())
        clock.advance(seconds=waits[-1])
    return waits


def test_four_failures_in_a_row_wait_longer_each_time(core, clock):
    emit(core)

    waits = backoff_waits(core, clock, failures=4, policy=RetryPolicy())

    assert waits == sorted(set(waits))
    assert waits[3] > 4 * waits[0]


def test_backoff_is_never_longer_than_the_cap(core, clock):
    emit(core)

    waits = backoff_waits(core, clock, failures=8, policy=RetryPolicy(max_attempts=99, base=10, cap=15))

    assert max(waits) <= 15


@pytest.mark.parametrize(
    ("code", "retry_after", "wait"),
    [
        ("AGENT_UNAVAILABLE", 500.0, 500.0),
        ("AGENT_UNAVAILABLE", 0.5, None),
        ("AGENT_UNAVAILABLE", None, None),
        ("a code of my own", 500.0, 500.0),
        ("a code of my own", 0.5, None),
        ("RATE_LIMIT", 500.0, 500.0),
        ("RATE_LIMIT", 0.5, 0.5),
        ("RATE_LIMIT", 0.0, None),
        ("RATE_LIMIT", None, None),
    ],
)
def test_retry_after_holds_when_longer_than_the_backoff_or_from_a_rate_limit(core, clock, code, retry_after, wait):
    """A rate limit gives the time of the next attempt. Without that time, the backoff applies."""
    emitted = emit(core)
    failure = Failed(code=code, message="slow down", retryable=True, retry_after=retry_after)

    [waited] = backoff_waits(core, clock, failures=1, policy=RetryPolicy(), outcome=failure)

    assert waited == pytest.approx(wait or RetryPolicy().backoff(emitted.id, 1), abs=1e-6)


def test_trigger_is_a_dead_letter_after_the_last_attempt_and_never_fires_again(core, clock):
    emitted = emit(core)
    backoff_waits(core, clock, failures=4, policy=RetryPolicy())

    last = run_one(core, BROKEN)
    clock.advance(hours=24 * 365)
    core.do(core.claims.reclaim, 2)

    stored = look(core, emitted.id)
    assert (last.status, last.reason) == (TriggerStatus.DEAD, "attempts spent")
    assert (stored.status, stored.attempts) == (TriggerStatus.DEAD, 5)
    assert (stored.error_code, stored.error_message) == ("AGENT_ERROR", "it broke")
    assert claim_all(core, epoch=2) == []


def test_max_attempts_of_a_trigger_overrides_the_policy(core, clock):
    emit(core, max_attempts=2, priority=1)
    backoff_waits(core, clock, failures=1, policy=RetryPolicy(max_attempts=9))

    assert run_one(core, BROKEN, RetryPolicy(max_attempts=9)).status is TriggerStatus.DEAD


def test_first_failure_is_final_with_a_single_attempt(core):
    emit(core)

    assert run_one(core, BROKEN, RetryPolicy(max_attempts=1)).status is TriggerStatus.DEAD


# Outcomes that do not spend the attempt


@pytest.mark.parametrize("outcome", [Snoozed(until=NEW_YEAR), Released(reason="shutdown"), Rerouted(session_id="s")])
def test_release_without_an_outcome_spends_no_attempt_however_often(core, outcome):
    emitted = emit(core)

    for _ in range(10):
        run_one(core, outcome)

    stored = look(core, emitted.id)
    assert (stored.attempts, stored.starts) == (0, 10)
    assert run_one(core, BROKEN, RetryPolicy(max_attempts=2)).status is TriggerStatus.PENDING


def test_snoozed_trigger_is_due_at_the_requested_moment(core, clock):
    emit(core)
    run_one(core, Snoozed(until=FAR))
    clock.advance(seconds=4_999)

    too_early = claim_all(core)
    clock.advance(seconds=1)

    assert too_early == []
    assert claim_one(core).attempts == 0


def test_rerouted_trigger_waits_in_the_lane_of_its_session(core):
    emitted = emit(core)

    run_one(core, Rerouted(session_id="s"))

    assert claim_all(core, busy_lanes=["s"]) == []
    assert (claim_one(core).lane, look(core, emitted.id).session_id) == ("s", None)


def test_running_trigger_can_be_moved_into_a_session_by_a_router(core):
    emitted = emit(core)
    running = start_one(core)

    core.do(core.claims.join_lane, running, "s")

    assert (look(core, emitted.id).session_id, look(core, emitted.id).lane) == (None, "s")


def test_router_cannot_move_a_reclaimed_trigger(core):
    emitted = emit(core)
    late = start_one(core)
    core.do(core.claims.reclaim, 2)

    with pytest.raises(LeaseLost):
        core.do(core.claims.join_lane, late, "s")

    assert look(core, emitted.id).lane is None


def test_unstarted_claims_are_released_and_a_lost_claim_is_left_alone(core):
    first, second = emit(core, priority=1), emit(core)
    claims = claim_all(core)
    core.do(core.triggers.cancel, first.id)

    released = core.do(core.claims.release_unstarted, claims)

    assert released == 1
    assert look(core, first.id).status is TriggerStatus.DONE
    assert (look(core, second.id).status, look(core, second.id).reason) == (TriggerStatus.PENDING, "released")
    assert look(core, second.id).attempts == 0


def test_epoch_end_in_order_releases_every_claim_and_gives_back_its_attempt(core):
    started, unstarted, settled = emit(core, priority=1), emit(core, priority=2), emit(core, priority=0)
    run_claim = claim_all(core)
    ack(core, start(core, run_claim[0]), Succeeded())
    start(core, run_claim[1])

    released = core.do(core.claims.release_epoch, 1)

    assert released == 2
    assert [look(core, one.id).status for one in (started, unstarted)] == [TriggerStatus.PENDING] * 2
    assert [look(core, one.id).attempts for one in (started, unstarted)] == [0, 0]
    assert look(core, settled.id).status is TriggerStatus.DONE


# Poison


@pytest.mark.parametrize(
    ("crash_count", "started_alone", "poison"),
    [(1, False, False), (2, False, False), (9, False, False), (1, True, False), (2, True, False), (3, True, True)],
)
def test_crash_is_proof_of_poison_only_the_third_time_and_alone(crash_count, started_alone, poison):
    assert is_poison(crash_count, started_alone) is poison


@pytest.mark.parametrize(("crash_count", "alone"), [(0, False), (1, False), (2, True), (3, True)])
def test_trigger_runs_alone_after_two_crashes(core, crash_count, alone):
    emit(core)

    assert must_run_alone(claim_one(core)._replace(crash_count=crash_count)) is alone


def test_start_with_a_lost_lease_changes_nothing_and_leaves_the_start_to_its_holder(core):
    """The claim was released and the trigger claimed again, and then the first claimer starts it."""
    trigger_id = emit(core).id
    late = claim_one(core)
    core.do(core.claims.release_unstarted, [late])
    current = claim_one(core)
    before = snapshot(core)

    with pytest.raises(LeaseLost):
        start(core, late)

    assert snapshot(core) == before
    assert (start(core, current).attempts, look(core, trigger_id).starts) == (1, 1)
