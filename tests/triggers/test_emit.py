"""Emits of triggers: durable rows, dedup keys, and the answer to a duplicate."""

from __future__ import annotations

import pytest

from craftcore.errors import DuplicateTrigger, InvalidInput, LeaseLost
from craftcore.services import Services
from craftcore.storage.transaction import get_single_result
from craftcore.triggers.model import DedupScope, TriggerStatus
from craftcore.triggers.settlement import Succeeded
from tests.support.fakes import NEW_YEAR, a_trigger
from tests.support.trigger_steps import BROKEN, HOPELESS, ack, claim_one, emit, look, run_one, start, start_one


def emit_batch(core, *specs):
    """Emit several triggers in one commit, as the writer does for concurrent callers."""
    rows = [core.triggers.accept(spec) for spec in specs]
    return core.do(core.triggers.emit_all, rows)


def test_emitted_trigger_is_on_disk_for_other_readers(core):
    emitted = emit(core, payload={"name": "Ada"})

    other = Services(core.database.path, core.config)
    with other.reading() as reader:
        rows = reader.fetch_all("SELECT id, status, payload_json FROM triggers")
    assert rows == [{"id": emitted.id, "status": "PENDING", "payload_json": '{"name":"Ada"}'}]
    assert (emitted.created, emitted.status, emitted.due_at) == (True, TriggerStatus.PENDING, NEW_YEAR)


def test_answer_is_the_inserted_row_or_the_holder_of_the_key(core):
    held = emit(core, dedup_key="k")
    rows = [core.triggers.accept(a_trigger()), core.triggers.accept(a_trigger(dedup_key="k"))]

    inserted, duplicate = core.do(core.triggers.emit_rows, rows)

    assert inserted is rows[0]
    assert (duplicate.id, duplicate.created) == (held.id, False)


@pytest.mark.parametrize("count", [1, 31, 127, 128, 300])
def test_rows_of_a_batch_are_those_accepted(core, count):
    rows = [core.triggers.accept(a_trigger(payload={"n": n})) for n in range(count)]

    core.do(core.triggers.emit_rows, rows)

    found = core.rows("SELECT id, status, payload_json FROM triggers ORDER BY seq")
    assert found == [{"id": row.id, "status": "PENDING", "payload_json": row.payload_json} for row in rows]


def test_refusal_undoes_every_trigger_emitted_together(core):
    emit(core, dedup_key="k")
    specs = [a_trigger(), a_trigger(dedup_key="k", on_duplicate="error"), a_trigger()]

    with pytest.raises(DuplicateTrigger):
        core.do(core.triggers.emit_together, [core.triggers.accept(spec) for spec in specs])

    assert len(core.rows("SELECT id FROM triggers")) == 1


def test_rolled_back_emit_leaves_no_trigger(core):
    def emit_and_fail(tx):
        core.triggers.emit(tx, a_trigger())
        return 1 / 0

    with pytest.raises(ZeroDivisionError):
        core.do(emit_and_fail)

    assert core.rows("SELECT id FROM triggers") == []


def test_triggers_without_a_key_never_collide(core):
    emitted = [emit(core, payload={"same": True}) for _ in range(3)]

    assert len({one.id for one in emitted}) == 3
    assert all(one.created for one in emitted)


def test_second_emit_of_a_dedup_key_creates_no_row_and_names_the_first(core):
    first = emit(core, dedup_key="k", payload={"n": 1})

    second = emit(core, dedup_key="k", payload={"n": 1})

    assert (second.id, second.created, second.status) == (first.id, False, TriggerStatus.PENDING)
    assert not second.payload_differs
    assert len(core.rows("SELECT id FROM triggers")) == 1


@pytest.mark.parametrize("scope", ["ever", "active"])
def test_duplicate_with_another_payload_is_reported_and_the_first_payload_stays(core, scope):
    first = emit(core, dedup_key="k", dedup_scope=scope, payload={"n": 1})

    second = emit(core, dedup_key="k", dedup_scope=scope, payload={"n": 2})

    assert (second.id, second.created, second.payload_differs) == (first.id, False, True)
    assert look(core, first.id).payload_json == '{"n":1}'


def test_payload_key_order_does_not_count_as_a_difference(core):
    emit(core, dedup_key="k", payload={"a": 1, "b": 2})

    assert not emit(core, dedup_key="k", payload={"b": 2, "a": 1}).payload_differs


@pytest.mark.parametrize(
    ("outcome", "settled"), [(None, TriggerStatus.DONE), (HOPELESS, TriggerStatus.FAILED)], ids=["done", "failed"]
)
def test_dedup_scope_ever_blocks_after_settlement_and_scope_active_does_not(core, outcome, settled):
    ever = emit(core, dedup_key="once", dedup_scope="ever")
    run_one(core, outcome)
    emit(core, dedup_key="again", dedup_scope="active")
    run_one(core, outcome)

    once, again = (emit(core, dedup_key=key) for key in ("once", "again"))

    assert (once.id, once.created, once.status) == (ever.id, False, settled)
    assert again.created


def test_active_dedup_key_blocks_while_the_first_is_claimed_or_running(core):
    emit(core, dedup_key="k", dedup_scope="active")
    claim = claim_one(core)
    while_claimed = emit(core, dedup_key="k", dedup_scope="active")
    start(core, claim)

    while_running = emit(core, dedup_key="k", dedup_scope="active")

    assert not while_claimed.created
    assert (while_running.created, while_running.status) == (False, TriggerStatus.CLAIMED)


def test_dedup_scope_of_the_existing_row_decides(core):
    first = emit(core, dedup_key="k", dedup_scope="ever")
    run_one(core)

    assert emit(core, dedup_key="k", dedup_scope="active").id == first.id


def test_duplicate_answer_has_the_scope_and_its_duration(core):
    first = emit(core, dedup_key="once", dedup_scope="ever")
    again = emit(core, dedup_key="once")
    by_source = emit(core, dedup_key="again")
    plain = emit(core)
    own = emit(core, id="mine")

    assert (first.held, first.dedup_scope) == (None, DedupScope.EVER)
    assert (again.id, again.held, again.dedup_scope) == (first.id, "dedup_key", DedupScope.EVER)
    assert (by_source.held, by_source.dedup_scope) == (None, DedupScope.ACTIVE)
    assert (plain.held, plain.dedup_scope) == (None, None)
    assert (own.held, emit(core, id="mine").held) == (None, "id")


def test_same_id_emitted_twice_is_a_single_row(core):
    """The outcome of the first emit was unknown to its caller, who emits the same spec again."""
    first = emit(core, id="mine", payload={"n": 1})

    again = emit(core, id="mine", payload={"n": 1})
    run_one(core)
    settled = emit(core, id="mine", payload={"n": 2})

    assert (first.created, again.created) == (True, False)
    assert (settled.id, settled.status, settled.payload_differs) == ("mine", TriggerStatus.DONE, True)
    assert len(core.rows("SELECT id FROM triggers")) == 1


def test_emit_looks_up_the_id_before_the_dedup_key(core):
    emit(core, id="a", dedup_key="k")
    emit(core, id="b")

    assert emit(core, id="b", dedup_key="k").id == "b"
    assert emit(core, id="c", dedup_key="k").id == "a"


# on_duplicate = error


@pytest.mark.parametrize("held", [{"dedup_key": "k"}, {"id": "mine"}], ids=["key", "id"])
def test_duplicate_error_names_the_existing_trigger(core, held):
    first = emit(core, payload={"n": 1}, **held)

    with pytest.raises(DuplicateTrigger) as refused:
        emit(core, payload={"n": 2}, on_duplicate="error", **held)

    assert refused.value.details["id"] == first.id
    assert "nothing was written" in refused.value.message
    assert look(core, first.id).payload_json == '{"n":1}'
    assert len(core.rows("SELECT id FROM triggers")) == 1


@pytest.mark.parametrize("on_duplicate", ["keep", "replace", "error"])
@pytest.mark.parametrize("held", [{"dedup_key": "order-1"}, {"id": "order-1"}])
def test_key_or_id_of_another_workflow_is_refused_and_names_its_holder(core, held, on_duplicate):
    """Otherwise the caller would get the result of the other workflow."""
    invoice = emit(core, workflow="invoice", dedup_scope="ever" if "dedup_key" in held else None, **held)

    with pytest.raises(DuplicateTrigger, match="which runs another workflow, invoice; nothing was written") as refused:
        emit(core, workflow="ship", on_duplicate=on_duplicate, **held)
    assert refused.value.details["id"] == invoice.id
    run_one(core, Succeeded())
    with pytest.raises(DuplicateTrigger):
        emit(core, workflow="ship", on_duplicate=on_duplicate, **held)
    with core.reading() as reader:
        assert reader.fetch_all("SELECT workflow FROM triggers") == [{"workflow": "invoice"}]


def test_signal_that_would_start_a_task_with_the_key_of_another_workflow_is_refused(core):
    emit(core, workflow="invoice", dedup_key="order-1")
    start = core.triggers.accept(a_trigger(workflow="ship", dedup_key="order-1"))

    with pytest.raises(DuplicateTrigger):
        core.do(core.signal, None, "paid", None, sent_by=None, start=start)


def test_occurrence_that_another_workflow_of_its_schedule_has_is_a_duplicate(core):
    """The schedule was given another workflow after the occurrence had fired."""
    slot = {"schedule_id": "daily", "nominal_at": NEW_YEAR, "not_before": None}
    fired = core.do(core.triggers.emit_scheduled, a_trigger(workflow="invoice", dedup_key="slot-1"), **slot)

    again = core.do(core.triggers.emit_scheduled, a_trigger(workflow="ship", dedup_key="slot-1"), **slot)
    assert (again.created, again.id) == (False, fired.id)


def test_key_held_by_a_version_or_by_routed_work_is_a_plain_duplicate(core):
    brief = emit(core, workflow="brief@2.0", dedup_key="brief-1")
    routed = emit(core, workflow=None, source="MESSAGE", dedup_key="message-1")

    assert emit(core, workflow="brief", dedup_key="brief-1").id == brief.id
    assert emit(core, workflow="chat", source="MESSAGE", dedup_key="message-1").id == routed.id


def test_duplicate_error_option_changes_nothing_without_a_duplicate(core):
    assert emit(core, dedup_key="k", on_duplicate="error").created


# on_duplicate = replace


def test_replace_gives_a_waiting_trigger_the_new_payload_time_and_priority(core, clock):
    first = emit(core, dedup_key="k", payload={"n": 1}, description="old", delay=60)
    clock.advance(seconds=1)

    second = emit(core, dedup_key="k", on_duplicate="replace", payload={"n": 2}, delay=600, priority=3, expires_at=2e9)

    stored = look(core, first.id)
    assert (second.id, second.created, second.payload_differs) == (first.id, False, False)
    assert second.due_at == stored.due_at == NEW_YEAR + 601
    assert (stored.payload_json, stored.priority, stored.description, stored.expires_at) == ('{"n":2}', 3, None, 2e9)
    assert (stored.created_at, stored.updated_at) == (NEW_YEAR, NEW_YEAR + 1)


def test_replaced_trigger_loses_its_backoff(core):
    emit(core, dedup_key="k")
    run_one(core, BROKEN)

    replaced = emit(core, dedup_key="k", on_duplicate="replace")

    assert replaced.due_at == look(core, replaced.id).due_at == NEW_YEAR


def test_replace_of_an_unstarted_claim_revokes_the_claim(core):
    """The queue of an engine holds the claim with the old payload, so its start must be refused."""
    emit(core, dedup_key="k", payload={"n": 1})
    old = claim_one(core)

    replaced = emit(core, dedup_key="k", on_duplicate="replace", payload={"n": 2})

    assert replaced.status is TriggerStatus.PENDING
    with pytest.raises(LeaseLost):
        start(core, old)
    assert start_one(core).payload_json == '{"n":2}'


def test_replace_of_a_started_trigger_is_refused_and_reported(core):
    emit(core, dedup_key="k", payload={"n": 1})
    running = start_one(core)

    refused = emit(core, dedup_key="k", on_duplicate="replace", payload={"n": 2})

    assert (refused.id, refused.created, refused.payload_differs) == (running.id, False, True)
    assert refused.status is TriggerStatus.CLAIMED
    assert look(core, running.id).payload_json == '{"n":1}'
    assert ack(core, running, BROKEN).status is TriggerStatus.PENDING


def test_replace_of_a_settled_trigger_is_refused(core):
    first = emit(core, dedup_key="k", dedup_scope="ever", payload={"n": 1})
    run_one(core)

    refused = emit(core, dedup_key="k", on_duplicate="replace", payload={"n": 2})

    assert (refused.id, refused.status, refused.payload_differs) == (first.id, TriggerStatus.DONE, True)
    assert look(core, first.id).status is TriggerStatus.DONE


# Many in one commit


def test_batch_emit_answers_in_the_given_order(core):
    existing = emit(core, dedup_key="k")

    a, b, c, d = emit_batch(
        core,
        a_trigger(id="a"),
        a_trigger(dedup_key="k"),
        a_trigger(dedup_key="k", on_duplicate="error"),
        a_trigger(),
    )

    assert (a.id, a.created) == ("a", True)
    assert (b.id, b.created) == (existing.id, False)
    assert isinstance(c, DuplicateTrigger)
    assert d.created
    assert {row["id"] for row in core.rows("SELECT id FROM triggers")} == {existing.id, "a", d.id}


def test_batch_emit_of_a_repeated_key_makes_a_single_row(core):
    first, second = emit_batch(core, a_trigger(dedup_key="k"), a_trigger(dedup_key="k"))

    assert first.created
    assert (second.id, second.created) == (first.id, False)


def test_batch_emit_stores_triggers_in_the_given_order(core):
    """Messages of a session with equal time and priority run in the order of emission."""
    specs = [
        a_trigger(id="1"),
        a_trigger(payload={"n": 2}),
        a_trigger(dedup_key="3"),
        a_trigger(payload={"n": 4}),
        a_trigger(session_id="s", supersedes="session"),
        a_trigger(payload={"n": 6}),
    ]

    answers = [get_single_result([answer]) for answer in emit_batch(core, *specs)]

    stored = [row["id"] for row in core.rows("SELECT id FROM triggers ORDER BY seq")]
    assert stored == [answer.id for answer in answers]


# Supersede


def test_newer_trigger_of_a_session_supersedes_the_older_and_both_are_linked(core, clock):
    older = emit(core, source="MESSAGE", session_id="s")
    clock.advance(seconds=1)

    newer = emit(core, source="MESSAGE", session_id="s", supersedes="session")

    settled = look(core, older.id)
    assert (settled.status, settled.reason, settled.superseded_by) == (TriggerStatus.DONE, "superseded", newer.id)
    assert settled.settled_at == clock.now()
    assert claim_one(core).id == newer.id


def test_supersede_affects_only_the_same_source_and_session(core):
    kept = [
        emit(core, source="MESSAGE", session_id="other"),
        emit(core, source="MEMORY", session_id="s"),
        emit(core, source="MESSAGE"),
    ]

    emit(core, source="MESSAGE", session_id="s", supersedes="session")

    assert [look(core, one.id).status for one in kept] == [TriggerStatus.PENDING] * 3


def test_supersede_revokes_an_unstarted_claim_and_refuses_its_start(core):
    emit(core, source="MESSAGE", session_id="s")
    old = claim_one(core)

    emit(core, source="MESSAGE", session_id="s", supersedes="session")

    with pytest.raises(LeaseLost):
        start(core, old)
    assert look(core, old.id).reason == "superseded"


def test_started_trigger_is_not_superseded_and_settles_as_usual(core):
    emit(core, source="MESSAGE", session_id="s")
    running = start_one(core)

    emit(core, source="MESSAGE", session_id="s", supersedes="session")

    assert look(core, running.id).superseded_by is None
    assert ack(core, running, Succeeded()).reason == "succeeded"


def test_supersede_applies_within_a_batch(core):
    older, newer = emit_batch(core, a_trigger(session_id="s"), a_trigger(session_id="s", supersedes="session"))

    assert look(core, older.id).superseded_by == newer.id


def test_superseded_trigger_is_not_revived_by_a_restart(core):
    older = emit(core, session_id="s")
    newer = emit(core, session_id="s", supersedes="session")

    core.do(core.claims.reclaim, 2)

    assert look(core, older.id).status is TriggerStatus.DONE
    assert claim_one(core, epoch=2).id == newer.id


def test_duplicate_supersedes_nothing_of_its_session(core):
    older = emit(core, session_id="s", dedup_key="k")

    emit(core, session_id="s", dedup_key="k", supersedes="session")

    assert look(core, older.id).status is TriggerStatus.PENDING


def test_superseding_without_a_session_is_refused(core):
    with pytest.raises(InvalidInput, match="needs a session_id"):
        emit(core, supersedes="session")
