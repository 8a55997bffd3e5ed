"""Claims: due triggers in order of rank, one for each lane, and no trigger claimed twice."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from craftcore.services import Services
from craftcore.triggers.claim_service import ClaimService
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Snoozed
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore, a_trigger
from tests.support.trigger_steps import BROKEN, ack, claim_all, emit, look, run_one, start

ON_A_SHARED_FILE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SECONDS_FROM_NOW = st.integers(-600, 600) | st.sampled_from([0, 0.25, -0.25])
PRIORITIES = st.integers(0, 99) | st.sampled_from([3, 10, 10])


def refill(tx, triggers, specs):
    """Replace all triggers by new ones, and return their rows."""
    tx.run("DELETE FROM triggers")
    triggers.emit_all(tx, [triggers.accept(spec) for spec in specs])
    return [tuple(row) for row in tx.fetch_tuples("SELECT seq, due_at, priority, lane FROM triggers ORDER BY seq")]


@pytest.mark.parametrize("weight", [0.0, 60.0])
@given(triggers=st.lists(st.tuples(SECONDS_FROM_NOW, PRIORITIES), max_size=40), limit=st.integers(1, 50))
@ON_A_SHARED_FILE
def test_claim_order_is_a_plain_sort_by_due_time_and_weighted_priority(core, weight, triggers, limit):
    service = ClaimService(priority_weight=weight)
    specs = [a_trigger(at=NEW_YEAR + offset, priority=priority) for offset, priority in triggers]
    with core.transaction() as tx:
        rows = refill(tx, core.triggers, specs)

        claims = service.claim(tx, epoch=1, limit=limit).claims

    due = [row for row in rows if row[1] <= NEW_YEAR]
    expected = sorted(due, key=lambda row: (row[1] + weight * row[2], row[2], row[0]))[:limit]
    assert [claim.seq for claim in sorted(claims, key=service.rank)] == [row[0] for row in expected]


@given(
    triggers=st.lists(st.tuples(SECONDS_FROM_NOW, PRIORITIES, st.sampled_from([None, "a", "b", "c"])), max_size=30),
    busy=st.sets(st.sampled_from(["a", "b", "c", "d"])),
)
@ON_A_SHARED_FILE
def test_claim_takes_the_best_trigger_of_each_free_lane_and_none_of_a_busy_lane(core, triggers, busy):
    service = core.claims
    specs = [a_trigger(at=NEW_YEAR + offset, priority=priority, task_id=lane) for offset, priority, lane in triggers]
    with core.transaction() as tx:
        rows = refill(tx, core.triggers, specs)

        claims = service.claim(tx, epoch=1, limit=100, busy_lanes=busy).claims

    expected, taken = set(), set(busy)
    for seq, due_at, _, lane in sorted(rows, key=lambda row: (row[1] + 60 * row[2], row[2], row[0])):
        if due_at <= NEW_YEAR and lane not in taken:
            expected.add(seq)
            taken |= {lane} - {None}
    assert {claim.seq for claim in claims} == expected


def test_claim_order_with_weight_zero_is_time_then_priority(tmp_path, clock):
    service = ClaimService(priority_weight=0)
    core = VirtualCore(tmp_path / "agent.db", clock)
    late_urgent = emit(core, priority=0, at=NEW_YEAR - 1).id
    early_idle = emit(core, priority=99, at=NEW_YEAR - 2).id
    early_urgent = emit(core, priority=1, at=NEW_YEAR - 2).id

    claims = core.do(service.claim, epoch=1, limit=3).claims

    assert [claim.id for claim in sorted(claims, key=service.rank)] == [early_urgent, early_idle, late_urgent]
    core.close()


def test_idle_trigger_goes_first_after_waiting_for_the_difference_of_priorities(core, clock):
    idle = emit(core, priority=12)
    clock.advance(seconds=119)
    urgent = emit(core, priority=10)
    clock.advance(seconds=2)
    too_late = emit(core, priority=10)

    claims = claim_all(core)

    assert [claim.id for claim in claims] == [urgent.id, idle.id, too_late.id]


def test_equal_triggers_are_claimed_in_the_order_of_emission(core):
    emitted = [emit(core).id for _ in range(20)]

    assert [claim.id for claim in claim_all(core)] == emitted


# Due times


def test_claim_takes_nothing_early_and_everything_at_its_due_moment(core, clock):
    emit(core, delay=10)
    clock.advance(seconds=9.999)
    too_early = claim_all(core)
    clock.advance(seconds=0.001)

    assert too_early == []
    assert len(claim_all(core)) == 1


def test_backoff_postpones_a_trigger_that_was_due_long_ago(core, clock):
    emit(core, at=NEW_YEAR - 3600)
    move = run_one(core, BROKEN)
    assert move.not_before is not None

    clock.advance(seconds=move.not_before - NEW_YEAR - 0.001)
    too_early = claim_all(core)
    clock.advance(seconds=0.001)

    assert too_early == []
    assert len(claim_all(core)) == 1


def test_retry_after_before_the_fire_time_does_not_bring_a_trigger_forward(core, clock):
    emitted = emit(core, delay=100)
    clock.advance(seconds=100)
    running = start(core, claim_all(core)[0])
    clock.set_back(seconds=50)

    ack(core, running, Snoozed(until=clock.now()))

    assert look(core, emitted.id).due_at == NEW_YEAR + 100


def test_claim_result_has_the_next_due_time(core, clock):
    assert core.do(core.claims.claim, epoch=1, limit=10).next_due is None
    emit(core, delay=60, priority=1)
    emit(core, delay=30, priority=99)
    emit(core)

    window = core.do(core.claims.claim, epoch=1, limit=10)

    assert len(window.claims) == 1
    assert window.next_due == NEW_YEAR + 30


@pytest.mark.parametrize(
    ("emitted", "limit", "more"),
    [([], 2, False), ([None] * 2, 3, False), ([None] * 3, 2, True), (["s"] * 2, 3, False), (["s", "t"], 1, True)],
    ids=["no trigger", "all claimed", "over the limit", "waits for its own lane", "another lane over the limit"],
)
def test_claim_result_states_whether_more_could_be_claimed_at_once(core, emitted, limit, more):
    for session_id in emitted:
        emit(core, session_id=session_id)

    assert core.do(core.claims.claim, epoch=1, limit=limit).more is more


# Limits of the window


def test_claim_takes_at_most_limit_and_leaves_the_rest(core):
    emitted = [emit(core).id for _ in range(5)]

    assert [claim.id for claim in claim_all(core, limit=2)] == emitted[:2]
    assert claim_all(core, limit=0) == []
    assert [claim.id for claim in claim_all(core, limit=10)] == emitted[2:]


def test_claim_into_a_full_window_takes_only_better_ranks(core, clock):
    equal, urgent = emit(core, priority=10), emit(core, priority=9)
    worst = NEW_YEAR + 60 * 10

    claims = claim_all(core, before_rank=worst)

    assert [claim.id for claim in claims] == [urgent.id]
    assert look(core, equal.id).status is TriggerStatus.PENDING


def test_crowded_lane_delays_other_lanes_by_a_single_poll_at_most(core):
    specs = [a_trigger(session_id="crowd", priority=1) for _ in range(500)]
    core.do(core.triggers.emit_all, [core.triggers.accept(spec) for spec in specs])
    other = emit(core, session_id="quiet", priority=99)

    first = claim_all(core, limit=4)
    second = claim_all(core, limit=4, busy_lanes={"crowd"})

    assert [claim.lane for claim in first] == ["crowd"]
    assert [claim.id for claim in second] == [other.id]


def test_retry_in_backoff_does_not_hold_its_lane(core, clock):
    first = emit(core, session_id="s")
    second = emit(core, session_id="s")
    [claim] = claim_all(core)
    ack(core, start(core, claim), BROKEN)

    claims = claim_all(core)

    assert claim.id == first.id
    assert [claim.id for claim in claims] == [second.id]


@pytest.mark.parametrize("lane", ["7", "true", "null", "a:b@c+d-e_f.g"])
def test_lane_that_looks_like_another_json_value_is_kept(core, lane):
    emit(core, session_id=lane)

    assert claim_all(core, busy_lanes=[lane]) == []
    assert len(claim_all(core, busy_lanes=["7.0", "1", "x"])) == 1


# Leases


def test_claim_has_a_lease_of_the_configured_time_and_its_epoch(core, clock):
    emitted = emit(core)

    [claim] = claim_all(core, epoch=7)

    stored = look(core, emitted.id)
    assert stored.status is TriggerStatus.CLAIMED
    assert (stored.claimed_epoch, stored.lease_token) == (7, claim.lease_token)
    assert stored.lease_until == NEW_YEAR + core.config.triggers.lease_seconds
    assert (stored.started_at, stored.attempts, stored.starts) == (None, 0, 0)


def test_heartbeat_extends_the_leases_of_its_epoch_only(core, clock):
    claimed, old, waiting = emit(core, id="mine", priority=1), emit(core, id="old"), emit(core, delay=60)
    claim_all(core, epoch=2, limit=1)
    claim_all(core, epoch=1)
    clock.advance(seconds=20)

    assert core.do(core.claims.extend_leases, 2) == 1

    lease = core.config.triggers.lease_seconds
    assert look(core, claimed.id).lease_until == NEW_YEAR + 20 + lease
    assert look(core, old.id).lease_until == NEW_YEAR + lease
    assert look(core, waiting.id).lease_until is None


def test_claim_by_two_claimers_has_a_single_winner(core, clock):
    emit(core)
    other = Services(core.database.path, core.config, clock)

    with other.transaction() as tx:
        second = other.claims.claim(tx, epoch=2, limit=10).claims
    first = claim_all(core)

    assert len(second) == 1
    assert first == []
    other.close()


def test_eight_claimers_share_a_hundred_triggers_without_a_double_claim(core):
    core.do(core.triggers.emit_all, [core.triggers.accept(a_trigger()) for _ in range(100)])

    def claim_until_empty(epoch):
        claimed: list[int] = []
        claimer = Services(core.database.path, core.config, VirtualClock(seed=epoch))
        while True:
            with claimer.transaction() as tx:
                claims = claimer.claims.claim(tx, epoch=epoch, limit=3).claims
            if not claims:
                claimer.close()
                return claimed
            claimed += [claim.seq for claim in claims]

    with ThreadPoolExecutor(8) as pool:
        shares = list(pool.map(claim_until_empty, range(1, 9)))

    assert sorted(seq for share in shares for seq in share) == list(range(1, 101))
