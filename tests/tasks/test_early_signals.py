"""Signals to a task that has not begun, kept for its first turn."""

from __future__ import annotations

import json

import pytest

from craftcore import Producer, TriggerSpec
from craftcore.errors import InvalidInput, NotFound, StateRefused
from craftcore.tasks import service
from craftcore.triggers.settlement import Succeeded
from tests.support.fakes import VirtualCore
from tests.support.retention_harness import DAY, sweep
from tests.support.task_steps import enter, enter_next, for_event, rows, suspend
from tests.support.trigger_steps import BROKEN, HOPELESS, ack, claim_all, emit, look, run_one, start_one


def signal(core: VirtualCore, task_id: str, event: str = "paid", payload: object = None) -> bool:
    return core.do(core.tasks.signal, task_id, event, payload, sent_by="ada")


def test_signals_right_after_the_emit_are_read_by_the_first_turn_in_order(core):
    task_id = emit(core).id
    assert [signal(core, task_id, "paid", n) for n in (1, 2)] == [False, False]

    running = enter_next(core)
    assert signal(core, task_id, "paid", 3) is False
    suspend(core, running, for_event("paid"))

    mails = rows(core, "mailbox")
    assert [(json.loads(mail["payload_json"]), mail["status"], mail["sent_by"]) for mail in mails] == [
        (1, "READ", "ada"),
        (2, "UNREAD", "ada"),
        (3, "UNREAD", "ada"),
    ]
    assert core.rows("SELECT status FROM tasks") == [{"status": "RUNNING"}]
    assert rows(core, "early_mail") == []


def test_early_mail_is_delivered_to_the_right_task(core):
    first, second = emit(core).id, emit(core).id
    signal(core, second, "b")
    signal(core, first, "a")

    emit(core)  # a third task, without a signal
    for claim in claim_all(core):
        enter(core, claim)

    found = core.rows("SELECT tasks.id, event FROM mailbox JOIN tasks ON tasks.seq = task_seq ORDER BY event")
    assert found == [{"id": first, "event": "a"}, {"id": second, "event": "b"}]
    assert rows(core, "early_mail") == []


def test_early_mail_is_limited_to_a_mailbox(core, monkeypatch):
    monkeypatch.setattr(service, "MAILBOX_MAX", 2)
    task_id = emit(core).id
    signal(core, task_id)
    signal(core, task_id)

    with pytest.raises(StateRefused, match="has 2 unread mails; nothing was written"):
        signal(core, task_id)
    assert len(rows(core, "early_mail")) == 2


def test_early_mail_that_is_not_a_valid_signal_is_refused(core):
    with pytest.raises(InvalidInput):
        signal(core, emit(core).id, "no name")
    with pytest.raises(NotFound):
        signal(core, "nowhere")
    assert rows(core, "early_mail") == []


@pytest.mark.parametrize("end", ["cancelled", "failed"])
def test_early_mail_is_removed_with_a_trigger_that_ends_first(core, clock, end):
    task_id = emit(core, dedup_key="k", dedup_scope="ever").id
    signal(core, task_id, payload={"secret": "x"})
    if end == "cancelled":
        core.do(core.triggers.cancel, task_id)
    else:
        run_one(core, HOPELESS)

    with pytest.raises(NotFound, match="it is a settled trigger that has no task"):
        signal(core, task_id)
    assert len(rows(core, "early_mail")) == 1
    emit(core, delay=500 * DAY)
    clock.advance(2 * DAY)
    sweep(core)
    assert look(core, task_id).stripped_at is not None
    assert rows(core, "early_mail") == []


def test_early_mail_is_removed_with_its_trigger(core, clock):
    task_id = emit(core).id
    signal(core, task_id)
    core.do(core.triggers.cancel, task_id)
    emit(core, delay=500 * DAY)
    clock.advance(2 * DAY)

    sweep(core)

    assert rows(core, "early_mail") == []


def test_requeued_dead_letter_finds_its_early_mail(core):
    emitted = emit(core, max_attempts=1)
    signal(core, emitted.id, "paid", 7)
    ack(core, start_one(core), BROKEN)
    core.do(core.triggers.requeue, emitted.id)

    running = enter_next(core)
    suspend(core, running, for_event("paid"))

    assert core.rows("SELECT status FROM tasks") == [{"status": "RUNNING"}]
    assert [mail["status"] for mail in rows(core, "mailbox")] == ["READ"]


def test_early_signal_from_another_program_is_accepted_for_tasks_only(tmp_path):
    with Producer(tmp_path / "agent.db") as producer:
        emitted = producer.emit("greet")
        assert producer.signal(emitted.id, "paid") is False

        with pytest.raises(StateRefused, match=f"{emitted.id} is a trigger that has no task: it has not begun, or"):
            producer.cancel_task(emitted.id)
        with pytest.raises(InvalidInput, match=r"\('tick', \{\}\) is not a TriggerSpec; give TriggerSpec\("):
            producer.emit_many([("tick", {})])  # type: ignore[list-item]
        assert producer.emit_many([TriggerSpec(workflow="greet")])[0].created


def test_ended_plain_trigger_has_no_task_to_cancel(core):
    emitted = emit(core)
    run_one(core, Succeeded())

    with pytest.raises(NotFound, match="it is a settled trigger that has no task"):
        core.do(core.tasks.cancel, emitted.id)


def test_database_in_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(InvalidInput, match=":memory: is not a file"):
        Producer(":memory:")
    assert list(tmp_path.iterdir()) == []
