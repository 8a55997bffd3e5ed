"""Claim: what is due, best rank first, one of a lane at a time, and nobody gets what another has."""

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

ON_ONE_FILE = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)
SECONDS_FROM_NOW = st.integers(-600, 600) | st.sampled_from([0, 0.25, -0.25])
PRIORITIES = st.integers(0, 99) | st.sampled_from([3, 10, 10])


def refill(tx, triggers, specs):
    """A table with these triggers only."""
    tx.run("DELETE FROM triggers")
    triggers.emit_all(tx, [triggers.accept(spec) for spec in specs])
    return [tuple(row) for row in tx.fetch_tuples("SELECT seq, due_at, priority, lane FROM triggers ORDER BY seq")]


@pytest.mark.parametrize("weight", [0.0, 60.0])
@given(wanted=st.lists(st.tuples(SECONDS_FROM_NOW, PRIORITIES), max_size=40), limit=st.integers(1, 50))
@ON_ONE_FILE
def test_the_order_is_that_of_a_plain_sort_by_due_time_and_what_priority_is_worth(core, weight, wanted, limit):
    service = ClaimService(priority_weight=weight)
    specs = [a_trigger(at=NEW_YEAR + offset, priority=priority) for offset, priority in wanted]
    with core.transaction() as tx:
        rows = refill(tx, core.triggers, specs)

        claims = service.claim(tx, epoch=1, limit=limit).claims

    due = [row for row in rows if row[1] <= NEW_YEAR]
    expected = sorted(due, key=lambda row: (row[1] + weight * row[2], row[2], row[0]))[:limit]
    assert [claim.seq for claim in sorted(claims, key=service.rank)] == [row[0] for row in expected]


@given(
    wanted=st.lists(st.tuples(SECONDS_FROM_NOW, PRIORITIES, st.sampled_from([None, "a", "b", "c"])), max_size=30),
    busy=st.sets(st.sampled_from(["a", "b", "c", "d"])),
)
@ON_ONE_FILE
def test_of_each_free_lane_the_best_one_is_claimed_and_of_a_busy_lane_none(core, wanted, busy):
    service = core.claims
    specs = [a_trigger(at=NEW_YEAR + offset, priority=priority, task_id=lane) for offset, priority, lane in wanted]
    with core.transaction() as tx:
        rows = refill(tx, core.triggers, specs)

        claims = service.claim(tx, epoch=1, limit=100, busy_lanes=busy).claims

    expected, taken = set(), set(busy)
    for seq, due_at, _, lane in sorted(rows, key=lambda row: (row[1] + 60 * row[2], row[2], row[0])):
        if due_at <= NEW_YEAR and lane not in taken:
            expected.add(seq)
            taken |= {lane} - {None}
    assert {claim.seq for claim in claims} == expected


def test_a_weight_of_zero_is_the_plain_order_of_time_and_then_priority(tmp_path, clock):
    service = ClaimService(priority_weight=0)
    core = VirtualCore(tmp_path / "agent.db", clock)
    late_urgent = emit(core, priority=0, at=NEW_YEAR - 1).id
    early_idle = emit(core, priority=99, at=NEW_YEAR - 2).id
    early_urgent = emit(core, priority=1, at=NEW_YEAR - 2).id

    claims = core.do(service.claim, epoch=1, limit=3).claims

    assert [claim.id for claim in sorted(claims, key=service.rank)] == [early_urgent, early_idle, late_urgent]
    core.close()


def test_an_idle_trigger_goes_first_once_it_has_waited_for_what_the_priorities_are_apart(core, clock):
    idle = emit(core, priority=12)
    clock.advance(seconds=119)
    urgent = emit(core, priority=10)
    clock.advance(seconds=2)
    too_late = emit(core, priority=10)

    claims = claim_all(core)

    assert [claim.id for claim in claims] == [urgent.id, idle.id, too_late.id]


def test_equals_go_in_the_order_in_which_they_were_emitted(core):
    emitted = [emit(core).id for _ in range(20)]

    assert [claim.id for claim in claim_all(core)] == emitted


# Not before it is due


def test_nothing_is_claimed_before_it_is_due_and_it_is_at_that_very_moment(core, clock):
    emit(core, delay=10)
    clock.advance(seconds=9.999)
    too_early = claim_all(core)
    clock.advance(seconds=0.001)

    assert too_early == []
    assert len(claim_all(core)) == 1


def test_a_backoff_puts_off_what_was_due_long_ago(core, clock):
    emit(core, at=NEW_YEAR - 3600)
    move = run_one(core, BROKEN)
    assert move.not_before is not None

    clock.advance(seconds=move.not_before - NEW_YEAR - 0.001)
    too_early = claim_all(core)
    clock.advance(seconds=0.001)

    assert too_early == []
    assert len(claim_all(core)) == 1


def test_a_retry_that_asks_for_less_than_the_fire_time_brings_nothing_forward(core, clock):
    emitted = emit(core, delay=100)
    clock.advance(seconds=100)
    running = start(core, claim_all(core)[0])
    clock.set_back(seconds=50)

    ack(core, running, Snoozed(until=clock.now()))

    assert look(core, emitted.id).due_at == NEW_YEAR + 100


def test_the_window_tells_when_the_next_trigger_is_due(core, clock):
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
    ids=["nothing", "all were taken", "over the limit", "waits for its own lane", "another lane over the limit"],
)
def test_the_window_tells_whether_it_left_something_that_could_be_claimed_at_once(core, emitted, limit, more):
    for session_id in emitted:
        emit(core, session_id=session_id)

    assert core.do(core.claims.claim, epoch=1, limit=limit).more is more


# Limits of the window


def test_at_most_limit_are_claimed_and_the_rest_stays(core):
    emitted = [emit(core).id for _ in range(5)]

    assert [claim.id for claim in claim_all(core, limit=2)] == emitted[:2]
    assert claim_all(core, limit=0) == []
    assert [claim.id for claim in claim_all(core, limit=10)] == emitted[2:]


def test_only_what_ranks_before_the_worst_of_a_full_window_is_claimed(core, clock):
    equal, urgent = emit(core, priority=10), emit(core, priority=9)
    worst = NEW_YEAR + 60 * 10

    claims = claim_all(core, before_rank=worst)

    assert [claim.id for claim in claims] == [urgent.id]
    assert look(core, equal.id).status is TriggerStatus.PENDING


def test_a_crowded_lane_keeps_other_lanes_waiting_for_one_look_at_most(core):
    specs = [a_trigger(session_id="crowd", priority=1) for _ in range(500)]
    core.do(core.triggers.emit_all, [core.triggers.accept(spec) for spec in specs])
    other = emit(core, session_id="quiet", priority=99)

    first = claim_all(core, limit=4)
    second = claim_all(core, limit=4, busy_lanes={"crowd"})

    assert [claim.lane for claim in first] == ["crowd"]
    assert [claim.id for claim in second] == [other.id]


def test_a_retry_in_backoff_does_not_hold_its_lane(core, clock):
    first = emit(core, session_id="s")
    second = emit(core, session_id="s")
    [claim] = claim_all(core)
    ack(core, start(core, claim), BROKEN)

    claims = claim_all(core)

    assert claim.id == first.id
    assert [claim.id for claim in claims] == [second.id]


@pytest.mark.parametrize("lane", ["7", "true", "null", "a:b@c+d-e_f.g"])
def test_a_lane_that_looks_like_another_json_value_is_still_that_lane(core, lane):
    emit(core, session_id=lane)

    assert claim_all(core, busy_lanes=[lane]) == []
    assert len(claim_all(core, busy_lanes=["7.0", "1", "x"])) == 1


# Leases


def test_a_claim_is_leased_for_the_configured_time_to_its_epoch(core, clock):
    emitted = emit(core)

    [claim] = claim_all(core, epoch=7)

    stored = look(core, emitted.id)
    assert stored.status is TriggerStatus.CLAIMED
    assert (stored.claimed_epoch, stored.lease_token) == (7, claim.lease_token)
    assert stored.lease_until == NEW_YEAR + core.config.triggers.lease_seconds
    assert (stored.started_at, stored.attempts, stored.starts) == (None, 0, 0)


def test_a_heartbeat_extends_every_lease_of_its_epoch_and_of_no_other(core, clock):
    mine, old, waiting = emit(core, id="mine", priority=1), emit(core, id="old"), emit(core, delay=60)
    claim_all(core, epoch=2, limit=1)
    claim_all(core, epoch=1)
    clock.advance(seconds=20)

    assert core.do(core.claims.extend_leases, 2) == 1

    lease = core.config.triggers.lease_seconds
    assert look(core, mine.id).lease_until == NEW_YEAR + 20 + lease
    assert look(core, old.id).lease_until == NEW_YEAR + lease
    assert look(core, waiting.id).lease_until is None


def test_of_two_claimers_one_wins(core, clock):
    emit(core)
    other = Services(core.database.path, core.config, clock)

    with other.transaction() as tx:
        second = other.claims.claim(tx, epoch=2, limit=10).claims
    first = claim_all(core)

    assert len(second) == 1
    assert first == []
    other.close()


def test_eight_claimers_at_once_share_a_hundred_triggers_without_one_in_two_hands(core):
    core.do(core.triggers.emit_all, [core.triggers.accept(a_trigger()) for _ in range(100)])

    def claim_until_empty(epoch):
        mine: list[int] = []
        claimer = Services(core.database.path, core.config, VirtualClock(seed=epoch))
        while True:
            with claimer.transaction() as tx:
                claims = claimer.claims.claim(tx, epoch=epoch, limit=3).claims
            if not claims:
                claimer.close()
                return mine
            mine += [claim.seq for claim in claims]

    with ThreadPoolExecutor(8) as pool:
        hands = list(pool.map(claim_until_empty, range(1, 9)))

    assert sorted(seq for hand in hands for seq in hand) == list(range(1, 101))
