"""Reclaim of claims of a killed process, and the crash count of their triggers."""

from __future__ import annotations

import pytest

from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_service import Reclaimed
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Succeeded, must_run_alone
from tests.support.fakes import NEW_YEAR
from tests.support.trigger_steps import BROKEN, ack, claim_all, claim_one, emit, look, run_one, start, start_one


def crash_while_running(core, *, epoch, alone=False):
    """Start all due triggers, simulate a killed process, and boot the next epoch."""
    for claim in claim_all(core, epoch=epoch):
        start(core, claim, alone=alone)
    return core.do(core.claims.reclaim, epoch + 1)


def test_boot_reclaims_every_claim_of_an_earlier_epoch_even_with_a_lease(core):
    started, unstarted = emit(core, priority=1), emit(core, priority=2)
    claims = claim_all(core, epoch=1)
    start(core, claims[0])

    reclaimed = core.do(core.claims.reclaim, 2)

    assert reclaimed == Reclaimed(unstarted=1, crashed=1, poisoned=[])
    assert [look(core, one.id).status for one in (started, unstarted)] == [TriggerStatus.PENDING] * 2
    assert look(core, started.id).reason == "interrupted by a crash"
    assert look(core, unstarted.id).reason == "reclaimed before its start"
    assert look(core, started.id).lease_token is None
    assert len(claim_all(core, epoch=2)) == 2


def test_boot_reclaim_of_an_unstarted_claim_costs_no_attempt_and_no_crash(core):
    emitted = emit(core)
    claim_one(core)

    core.do(core.claims.reclaim, 2)

    stored = look(core, emitted.id)
    assert (stored.attempts, stored.starts, stored.crash_count) == (0, 0, 0)


def test_boot_leaves_settled_and_waiting_triggers_alone(core):
    done = emit(core)
    run_one(core)
    waiting, backoff = emit(core, delay=60), emit(core, priority=1)
    run_one(core, BROKEN)
    before = core.rows("SELECT * FROM triggers ORDER BY seq")

    reclaimed = core.do(core.claims.reclaim, 2)

    assert reclaimed == Reclaimed(unstarted=0, crashed=0, poisoned=[])
    assert core.rows("SELECT * FROM triggers ORDER BY seq") == before
    assert {done.id, waiting.id, backoff.id} == {row["id"] for row in before}


def test_second_boot_has_nothing_more_to_reclaim(core):
    emit(core)
    crash_while_running(core, epoch=1)

    assert core.do(core.claims.reclaim, 3) == Reclaimed(unstarted=0, crashed=0, poisoned=[])


def test_live_daemon_never_reclaims_its_own_claims_however_old_the_lease(core, clock):
    """The machine was suspended for a day."""
    emit(core)
    running = start_one(core)
    clock.advance(hours=24)

    reclaimed = core.do(core.claims.reclaim_strays, 1, {(running.seq, running.lease_token)})

    assert reclaimed == 0
    assert ack(core, running, Succeeded()).status is TriggerStatus.DONE


def test_running_sweep_releases_a_claim_whose_token_has_no_holder(core):
    """The answer to the claim was lost, or a late answer has an older token."""
    held, lost, stale = emit(core, priority=1), emit(core, priority=2), emit(core, priority=3)
    claims = claim_all(core)

    reclaimed = core.do(
        core.claims.reclaim_strays, 1, {(claims[0].seq, claims[0].lease_token), (claims[2].seq, "another token")}
    )

    assert reclaimed == 2
    assert look(core, held.id).status is TriggerStatus.CLAIMED
    assert [look(core, one.id).status for one in (lost, stale)] == [TriggerStatus.PENDING] * 2
    assert look(core, lost.id).reason == "reclaimed: its lease had no holder"


def test_running_sweep_leaves_claims_of_other_epochs_to_the_boot(core):
    emitted = emit(core)
    claim_one(core, epoch=1)

    assert core.do(core.claims.reclaim_strays, 2, set()) == 0
    assert look(core, emitted.id).status is TriggerStatus.CLAIMED


def test_stray_started_claim_gets_its_attempt_back(core):
    """The answer to the start was lost, so the attempt does not count."""
    emitted = emit(core)
    start_one(core)

    core.do(core.claims.reclaim_strays, 1, set())

    stored = look(core, emitted.id)
    assert (stored.attempts, stored.starts, stored.crash_count) == (0, 1, 0)


def test_waiting_triggers_run_once_and_on_time_after_a_boot(core, clock):
    due = [emit(core, priority=priority).id for priority in (1, 2)]
    later = [emit(core, delay=60 * n).id for n in (1, 2, 3)]
    backoff = emit(core, priority=0).id
    ack(core, start(core, claim_all(core, limit=1)[0]), BROKEN)

    crash_while_running(core, epoch=1)
    at_boot = [claim.id for claim in claim_all(core, epoch=2)]
    clock.advance(minutes=1)
    after = {claim.id for claim in claim_all(core, epoch=2)}

    assert at_boot == due
    assert after == {later[0], backoff}


# Crashes and attempts


def test_attempts_that_ended_with_the_process_are_not_spent(core, clock):
    emitted = emit(core)
    for epoch in (1, 2):
        crash_while_running(core, epoch=epoch)

    move = run_one(core, BROKEN, RetryPolicy(max_attempts=2))

    stored = look(core, emitted.id)
    assert move.status is TriggerStatus.PENDING
    assert (stored.attempts, stored.crash_count, stored.starts) == (3, 2, 3)
    assert move.not_before == pytest.approx(clock.now() + RetryPolicy().backoff(emitted.id, 1))


def test_poison_trigger_runs_alone_at_the_third_start_and_is_then_dead(core):
    poison = emit(core)
    crash_while_running(core, epoch=1)
    crash_while_running(core, epoch=2)
    third = claim_one(core, epoch=3)
    start(core, third, alone=True)

    reclaimed = core.do(core.claims.reclaim, 4)

    stored = look(core, poison.id)
    assert must_run_alone(third)
    assert reclaimed == Reclaimed(unstarted=0, crashed=0, poisoned=[poison.id])
    assert (stored.status, stored.reason, stored.error_code) == (TriggerStatus.DEAD, "poison", "POISON")
    assert stored.error_message is not None
    assert "the process died 3 times while this ran" in stored.error_message
    assert stored.crash_count == 3
    assert claim_all(core, epoch=4) == []


def test_triggers_beside_a_poison_trigger_are_not_dead_lettered(core):
    poison = emit(core)
    others = [emit(core) for _ in range(15)]
    crash_while_running(core, epoch=1)
    crash_while_running(core, epoch=2)
    claims = {claim.id: claim for claim in claim_all(core, epoch=3)}
    for one in others:
        ack(core, start(core, claims[one.id], alone=True), Succeeded())
    start(core, claims[poison.id], alone=True)

    reclaimed = core.do(core.claims.reclaim, 4)

    assert reclaimed.poisoned == [poison.id]
    assert {look(core, one.id).status for one in others} == {TriggerStatus.DONE}


def test_crashes_beside_others_make_no_dead_letter(core):
    emitted = emit(core)

    for epoch in range(1, 10):
        crash_while_running(core, epoch=epoch)

    assert look(core, emitted.id).status is TriggerStatus.PENDING
    assert look(core, emitted.id).crash_count == 9


def test_two_crashes_while_alone_do_not_prove_poison(core):
    emitted = emit(core)

    for epoch in (1, 2):
        crash_while_running(core, epoch=epoch, alone=True)

    assert look(core, emitted.id).status is TriggerStatus.PENDING


def restart_machine(core, epoch, *, alone=False):
    """Start the trigger, simulate a restart of the machine, and boot the next epoch."""
    claim = start_one(core, epoch=epoch, alone=alone)
    return claim, core.do(core.claims.reclaim, epoch + 1, machine_restarted=True)


def test_three_restarts_of_the_machine_make_no_suspect_and_cost_no_attempt(core):
    """Power cuts interrupt the same long job three times, and then it fails for the first time."""
    emitted = emit(core)
    for epoch in range(1, 4):
        _, reclaimed = restart_machine(core, epoch)
        assert reclaimed == Reclaimed(unstarted=0, crashed=1, poisoned=[])

    claim = start_one(core, epoch=4)
    move = ack(core, claim, BROKEN, RetryPolicy(max_attempts=2))

    stored = look(core, emitted.id)
    assert not must_run_alone(claim)
    assert (stored.crash_count, stored.attempts - stored.crash_count, stored.starts) == (1, 1, 4)
    assert move.status is TriggerStatus.PENDING


def test_machine_restarts_isolate_after_four_and_prove_poison_after_two_more(core):
    poison = emit(core)
    claims, poisoned = [], []
    for epoch in range(1, 7):
        claim, reclaimed = restart_machine(core, epoch, alone=epoch > 4)
        claims.append(must_run_alone(claim))
        poisoned += reclaimed.poisoned

    stored = look(core, poison.id)
    assert claims == [False, False, False, False, True, True]
    assert poisoned == [poison.id]
    assert (stored.status, stored.reason) == (TriggerStatus.DEAD, "poison")
    assert stored.error_message is not None
    assert "The machine restarted 6 times: two of those count as one" in stored.error_message


def test_long_job_hit_by_power_cuts_is_never_dead_lettered(core):
    """No power cut happens while the job runs alone, so none proves poison."""
    emitted = emit(core)
    for epoch in range(1, 21):
        restart_machine(core, epoch)

    assert look(core, emitted.id).status is TriggerStatus.PENDING


def test_requeue_resets_the_restart_count(core):
    poison = emit(core)
    for epoch in range(1, 7):
        restart_machine(core, epoch, alone=epoch > 4)
    core.do(core.triggers.requeue, poison.id)

    restart_machine(core, 7)

    assert look(core, poison.id).crash_count == 0


def test_crash_of_a_suspect_beside_another_trigger_does_not_prove_poison(core):
    emitted = emit(core)
    for epoch in (1, 2):
        crash_while_running(core, epoch=epoch)
    claim = start_one(core, epoch=3, alone=True)
    core.do(core.claims.note_joined, claim)

    reclaimed = core.do(core.claims.reclaim, 4)

    assert reclaimed.poisoned == []
    assert look(core, emitted.id).crash_count == 3


# Cancelled work does not run again


@pytest.mark.parametrize("machine_restarted", [False, True])
def test_cancel_request_survives_a_crash_and_the_trigger_does_not_run_again(core, clock, machine_restarted):
    emitted = emit(core)
    start_one(core)
    core.do(core.triggers.cancel, emitted.id)
    clock.advance(seconds=1)

    core.do(core.claims.reclaim, 2, machine_restarted=machine_restarted)

    stored = look(core, emitted.id)
    assert (stored.status, stored.reason) == (TriggerStatus.DONE, "cancelled")
    assert (stored.error_code, stored.settled_at) == ("WORKFLOW_ABORTED", NEW_YEAR + 1)
    assert claim_all(core, epoch=2) == []


def test_work_cancelled_by_cancel_all_does_not_run_after_a_crash(core):
    running, unstarted, waiting = emit(core, priority=1), emit(core, priority=2), emit(core, delay=60)
    claims = claim_all(core)
    start(core, claims[0])

    cancelled = core.do(core.cancel_all)
    core.do(core.claims.reclaim, 2)

    assert len(cancelled.triggers) == 3
    assert {look(core, one.id).status for one in (running, unstarted, waiting)} == {TriggerStatus.DONE}


def test_work_cancelled_by_cancel_all_does_not_run_after_a_clean_shutdown(core):
    emitted = emit(core)
    start_one(core)
    core.do(core.cancel_all)

    core.do(core.claims.release_epoch, 1)

    assert look(core, emitted.id).status is TriggerStatus.DONE
    assert claim_all(core, epoch=2) == []


def test_epoch_that_ends_releases_its_own_claims(core):
    emitted = emit(core)
    start_one(core)

    assert core.do(core.claims.release_epoch, 2) == 0
    assert look(core, emitted.id).status is TriggerStatus.CLAIMED
    assert core.do(core.claims.release_epoch, 1) == 1
    assert look(core, emitted.id).status is TriggerStatus.PENDING
