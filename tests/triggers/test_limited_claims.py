"""Claims within limits: none of a workflow without free slots, and all others unaffected."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.triggers.claim_candidate_store import (
    BEHIND,
    BEHIND_BUT_SCHEDULES,
    CANDIDATES,
    Budget,
    CandidateStore,
)
from craftcore.triggers.model import Claim, TriggerStatus
from craftcore.triggers.settlement import Snoozed
from craftcore.triggers.start_holds import SAFE_MODE_SOURCES, HoldTarget, StartHolds
from tests.support.fakes import NEW_YEAR, VirtualCore, a_trigger
from tests.support.trigger_steps import ack, claim_all, emit, look, start
from tests.triggers.test_claim import ON_A_SHARED_FILE, SECONDS_FROM_NOW
from tests.triggers.test_claim_plans import MANY, connection_of, fill, steps_of, undone

WORKFLOWS = (None, "mail", "fetch", "chat", "free")
SOURCES = ("MESSAGE", "MEMORY", "PROACTIVE", "SCHEDULED")
BY_SOURCE = {"MESSAGE": "mail", "MEMORY": "chat"}
LIMITED = ("mail", "fetch", "chat")


def budget_of(**slots: int) -> Budget:
    return Budget(slots, {source: name for source, name in BY_SOURCE.items() if name in slots})


def expected_claims(
    rows: list[tuple[Any, ...]], now: float, slots: dict[str, int], *, busy: set[str], limit: int, safe_mode: bool
) -> tuple[list[int], bool]:
    """Return the rows that a claim should take, and whether more could be claimed, computed by a plain sort."""
    free, lanes = dict(slots), set(busy)
    found: list[int] = []
    for seq, due_at, _, lane, workflow, source in sorted(rows, key=lambda row: (row[1] + 60 * row[2], row[2], row[0])):
        target = workflow or BY_SOURCE.get(source, "")
        if due_at > now or lane in lanes or (safe_mode and source == "SCHEDULED"):
            continue
        if free.get(target, 1) == 0:
            lanes |= {lane} - {None}
            continue
        if len(found) == limit:
            return found, True
        found.append(seq)
        lanes |= {lane} - {None}
        if target in free:
            free[target] -= 1
    return found, False


PENDING = "SELECT seq, due_at, priority, lane, workflow, source FROM triggers WHERE status = 'PENDING'"

TRIGGERS = st.tuples(
    st.sampled_from([1, 1, 2, 50]),
    st.sampled_from([None, None, "a", "b", "c"]),
    st.sampled_from(WORKFLOWS),
    st.sampled_from(SOURCES),
)
SLOTS = st.fixed_dictionaries({name: st.sampled_from([0, 0, 1, 2, 4]) for name in LIMITED})
BUSY = st.sets(st.sampled_from(["a", "b"]))


@pytest.mark.parametrize("has_more", [False, True], ids=["alone in its lane", "before another of its lane"])
def test_slot_of_a_lane_that_must_wait_goes_to_another_lane(core, has_more):
    """The second trigger of the lane waits for the first, whose workflow is full."""
    emit(core, workflow="chat", session_id="waits")
    emit(core, workflow="fetch", session_id="waits")
    other = emit(core, workflow="fetch", session_id="other")
    if has_more:
        emit(core, workflow="free", session_id="other")

    claims = claim_all(core, budget=budget_of(chat=0, fetch=1))

    assert [claim.id for claim in claims] == [other.id]


@given(
    triggers=st.lists(st.tuples(SECONDS_FROM_NOW, TRIGGERS), max_size=40)
    | st.lists(st.tuples(st.integers(-9, 0), TRIGGERS), min_size=8, max_size=40),
    slots=SLOTS,
    busy=BUSY,
    limit=st.integers(1, 30),
    safe_mode=st.booleans(),
)
@ON_A_SHARED_FILE
def test_limited_workflow_is_claimed_up_to_its_free_slots_best_first(core, triggers, slots, busy, limit, safe_mode):
    specs = [
        a_trigger(at=NEW_YEAR + offset, priority=priority, task_id=lane, workflow=workflow, source=source)
        for offset, (priority, lane, workflow, source) in triggers
    ]
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers")
        core.triggers.emit_all(tx, [core.triggers.accept(spec) for spec in specs])
        rows = list(tx.fetch_tuples(PENDING))

        found, is_more = CandidateStore().due(
            tx,
            NEW_YEAR,
            weight=60.0,
            busy_lanes=busy,
            limit=limit,
            before=None,
            held_sources=SAFE_MODE_SOURCES if safe_mode else (),
            budget=budget_of(**slots),
        )

    expected, more = expected_claims(rows, NEW_YEAR, slots, busy=busy, limit=limit, safe_mode=safe_mode)
    assert found == expected
    assert is_more or not more, "more triggers could be claimed"


def test_limited_trigger_that_returns_is_found_once(core, clock):
    emit(core, workflow="mail", at=NEW_YEAR - 60)
    emit(core, at=NEW_YEAR - 60)
    [claim] = claim_all(core, budget=budget_of(mail=0))
    ack(core, start(core, claim), Snoozed(until=NEW_YEAR))
    other = emit(core)

    claims = claim_all(core, limit=2, budget=budget_of(mail=0))

    assert [found.id for found in claims] == [claim.id, other.id]


@pytest.mark.parametrize(("held", "claimed"), [((), []), (("mail",), ["free"])], ids=["at its limit", "held"])
def test_lane_is_held_by_a_limit_and_not_by_a_hold(core, held, claimed):
    emit(core, workflow="mail", session_id="s")
    emit(core, workflow="free", session_id="s")

    claims = claim_all(core, budget=Budget({"mail": 0}, {}, held))

    assert [claim.workflow for claim in claims] == claimed


def test_poll_that_leaves_only_full_workflows_is_drained(core):
    """Otherwise the engine would poll again at once, without end."""
    for _ in range(3):
        emit(core, workflow="mail")
    emit(core)

    window = core.do(core.claims.claim, epoch=1, limit=10, budget=budget_of(mail=1))

    assert len(window.claims) == 2
    assert window.more is False


def test_trigger_seen_before_its_workflow_filled_up_counts_once(core):
    emitted = [emit(core, workflow=name).id for name in ("free", "mail", "mail", "free", "free")]

    claims = claim_all(core, limit=3, budget=budget_of(mail=1))

    assert [claim.id for claim in claims] == [emitted[0], emitted[1], emitted[3]]


def test_workflow_that_fills_up_during_a_poll_delays_nothing_behind(core):
    """A poll may skip fewer than five hundred triggers of one lane."""
    specs = [a_trigger(workflow=name, priority=1) for name in ("mail", "fetch") * 250]
    core.do(core.triggers.emit_all, [core.triggers.accept(spec) for spec in specs])
    behind = emit(core, priority=99)

    window = core.do(core.claims.claim, epoch=1, limit=4, budget=budget_of(mail=1, fetch=1))

    assert sorted(claim.workflow or "" for claim in window.claims) == ["fetch", "greet", "mail"]
    assert behind.id in {claim.id for claim in window.claims}
    assert window.more is False


def test_urgent_poll_respects_limits(core):
    full, urgent = emit(core, workflow="mail", priority=0), emit(core, priority=1)
    emit(core, priority=50)

    claims = claim_all(core, limit=16, before_rank=NEW_YEAR + 60 * 10, budget=budget_of(mail=0))

    assert [claim.id for claim in claims] == [urgent.id]
    assert look(core, full.id).status is TriggerStatus.PENDING


def test_budget_is_spent_by_its_own_poll_only(core):
    """A poll that meets a corrupt row is repeated with the same budget."""
    budget = budget_of(mail=1)
    first, second = emit(core, workflow="mail"), emit(core, workflow="mail")

    assert [claim.id for claim in claim_all(core, budget=budget)] == [first.id]
    assert [claim.id for claim in claim_all(core, budget=budget)] == [second.id]


# Cost


def candidate_statements(core: VirtualCore, **how: Any) -> set[str]:
    """Return the statements for candidates that a claim executes."""
    statements: set[str] = set()

    def record_statement(_cursor, sql, _bindings):
        statements.update({CANDIDATES, BEHIND, BEHIND_BUT_SCHEDULES} & {sql})
        return True

    with undone(core) as tx:
        connection_of(tx).exec_trace = record_statement
        core.claims.claim(tx, epoch=1, limit=10, **how)
        connection_of(tx).exec_trace = None
    return statements


@pytest.mark.parametrize(
    ("how", "statements"),
    [
        ({}, {CANDIDATES}),
        ({"holds": StartHolds(safe_mode="six crashes")}, {BEHIND_BUT_SCHEDULES}),
        ({"holds": StartHolds(targets={HoldTarget("schedule", "x"): "ada"})}, {BEHIND_BUT_SCHEDULES}),
        ({"budget": budget_of(mail=1)}, {BEHIND}),
        ({"budget": budget_of(mail=0)}, {BEHIND}),
    ],
    ids=["plain", "safe mode", "held schedule", "limits", "full"],
)
def test_claim_without_limits_runs_no_limit_query(core, how, statements):
    emit(core)

    assert candidate_statements(core, **how) == statements


def plan(tx, sql: str, *values: Any) -> list[str]:
    return [row[3] for row in tx.fetch_tuples(f"EXPLAIN QUERY PLAN {sql}", values)]


def test_claim_reads_only_the_index_with_and_without_limits(core):
    statements = (5, NEW_YEAR, "[]", 0.0)
    with undone(core) as tx:
        without = plan(tx, CANDIDATES, *statements)
        behind = plan(tx, BEHIND, *statements, '["mail"]', '["SCHEDULED"]', 0.0, 0)

    assert without[0] == "SEARCH triggers USING COVERING INDEX triggers_pending (priority=? AND due_at<?)"
    assert behind[0].startswith("SEARCH triggers USING COVERING INDEX triggers_pending (priority=? AND due_at>? AND")
    assert not [line for line in without + behind if "TEMP B-TREE" in line]


def claim_steps(core: VirtualCore, number: int, budget: Budget) -> int:
    """Return the VM steps of a claim with `number` due triggers of `greet` before ten others of the same priority."""
    with undone(core) as tx:
        fill(tx, "due-", fire_at=NEW_YEAR - 1e5, many=number)
        tx.run("UPDATE triggers SET priority = 5")
        core.claims.claim(tx, epoch=1, limit=0, budget=budget)
        others = [a_trigger(workflow="free", priority=5) for _ in range(10)]
        core.triggers.emit_all(tx, [core.triggers.accept(spec) for spec in others])
        claims: list[Claim] = []

        def look() -> None:
            claims.extend(core.claims.claim(tx, epoch=1, limit=100, budget=budget).claims)

        steps = steps_of(tx, look)
        assert [claim.workflow for claim in claims].count("free") == 10
    return steps


@pytest.mark.parametrize("free", [0, 1], ids=["full before", "full on the way"])
def test_full_workflow_is_skipped_in_the_index(core, free):
    budget = Budget({"greet": free, "mail": 0}, {})

    few = claim_steps(core, 10, budget)
    many = claim_steps(core, MANY, budget)

    assert many - few < 30 * MANY


def test_unclaimed_rows_are_not_visited_while_no_workflow_is_full(core):
    with undone(core) as tx:
        fill(tx, "due-", fire_at=NEW_YEAR - 1e5)
        budget = Budget({"greet": 100}, {})
        core.claims.claim(tx, epoch=1, limit=0, budget=budget)
        steps = steps_of(tx, lambda: core.claims.claim(tx, epoch=1, limit=10, budget=budget))

    assert steps < 5_000
