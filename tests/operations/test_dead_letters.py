"""Changes of all dead letters of one error: one audit row each, and refused ones stay unchanged."""

from __future__ import annotations

from contextlib import closing

import pytest

from craftcore.audit.model import Actor
from craftcore.audit.store import list_rows
from craftcore.operations import triggers
from craftcore.operations.audit_scope import audited_transaction
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Failed
from tests.support.fakes import VirtualCore
from tests.support.trigger_steps import ack, claim_all, emit, look, start

ADA = Actor(uid=1000, name="ada")
LATE = Failed(code="AGENT_TIMEOUT", message="too long", retryable=True)
BROKEN = Failed(code="AGENT_ERROR", message="it broke", retryable=True)


def bury(core: VirtualCore, outcome: Failed, **spec: object) -> str:
    """Emit a trigger, fail its only attempt, and return its id."""
    emitted = emit(core, max_attempts=1, **spec)
    [claim] = claim_all(core)
    ack(core, start(core, claim), outcome)
    assert look(core, emitted.id).status is TriggerStatus.DEAD
    return emitted.id


def status_of(core: VirtualCore, id: str) -> str:
    """Return the status of a row, also of a damaged one."""
    [row] = core.rows("SELECT status FROM triggers WHERE id = :id", id=id)
    return str(row["status"])


def change(core: VirtualCore, operation: object, error: str, until: float | None = None) -> triggers.DeadDone:
    with closing(core), audited_transaction(core, ADA, "dead requeue") as (tx, scope):
        return operation(tx, scope, core, error, tx.now if until is None else until)  # type: ignore[operator, no-any-return]


@pytest.mark.parametrize(
    ("operation", "status"),
    [(triggers.requeue_error, TriggerStatus.PENDING), (triggers.discard_error, TriggerStatus.FAILED)],
)
def test_dead_letters_of_an_error_are_changed_with_an_audit_row_each(core, operation, status):
    late = [bury(core, LATE) for _ in range(3)]
    broken = bury(core, BROKEN)

    result = change(core, operation, "AGENT_TIMEOUT")

    assert {row.id for row in result.done} == set(late)
    assert result.refused == []
    assert {look(core, id).status for id in late} == {status}
    assert look(core, broken).status is TriggerStatus.DEAD
    with core.reading() as reader:
        assert {row.subject for row in list_rows(reader)} == set(late)


def test_requeue_leaves_a_dead_letter_whose_key_is_taken(core):
    first = bury(core, LATE, dedup_key="daily", dedup_scope="active")
    second = bury(core, LATE)
    holder = emit(core, dedup_key="daily", dedup_scope="active")

    result = change(core, triggers.requeue_error, "AGENT_TIMEOUT")

    assert [row.id for row in result.done] == [second]
    assert result.refused == [f"the dedup key daily is held by trigger {holder.id} now"]
    assert look(core, first).status is TriggerStatus.DEAD


def test_dead_letters_beyond_the_limit_stay(core, clock, monkeypatch):
    monkeypatch.setattr(triggers, "OF_AN_ERROR_MAX", 2)
    oldest = bury(core, LATE)
    for _ in range(2):
        clock.advance(1)
        bury(core, LATE)

    result = change(core, triggers.discard_error, "AGENT_TIMEOUT")

    assert len(result.done) == 2
    assert look(core, oldest).status is TriggerStatus.DEAD


def test_damaged_dead_letter_is_named_and_not_requeued(core):
    damaged = bury(core, LATE)
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET description = CAST(X'ff' AS TEXT)")

    result = change(core, triggers.requeue_error, "AGENT_TIMEOUT")

    assert result.done == []
    assert result.refused[0].startswith(f"trigger {damaged} is damaged: ")
    assert status_of(core, damaged) == "DEAD"


def test_damaged_dead_letter_is_discarded_with_others_of_its_error(core):
    damaged, whole = bury(core, LATE), bury(core, LATE)
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET description = CAST(X'ff' AS TEXT) WHERE id = :id", id=damaged)

    result = change(core, triggers.discard_error, "AGENT_TIMEOUT")

    assert {row.id for row in result.done} == {damaged, whole}
    assert result.refused == []
    assert status_of(core, damaged) == status_of(core, whole) == "FAILED"


def test_error_without_dead_letters_changes_nothing(core):
    bury(core, LATE)

    assert change(core, triggers.requeue_error, "AGENT_ERROR") == triggers.DeadDone([], [])


@pytest.mark.parametrize("operation", [triggers.requeue_error, triggers.discard_error])
def test_dead_letter_buried_after_the_page_was_read_stays(core, clock, operation):
    seen = bury(core, LATE)
    until = look(core, seen).settled_at
    clock.advance(1)
    later = bury(core, LATE)

    result = change(core, operation, "AGENT_TIMEOUT", until)

    assert [row.id for row in result.done] == [seen]
    assert look(core, later).status is TriggerStatus.DEAD
