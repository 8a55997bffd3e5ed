"""The mailbox of a task: order, matching waits, and limits."""

from __future__ import annotations

import json

import pytest

from craftcore.errors import InvalidInput, NotFound, PayloadTooLarge, StateRefused
from craftcore.tasks import waits
from craftcore.tasks.model import TaskStatus
from craftcore.tasks.turn_end import Followed
from craftcore.triggers.settlement import Failed, Released
from tests.support.fakes import VirtualCore
from tests.support.task_steps import (
    Running,
    a_question,
    begin,
    enter_next,
    finish,
    for_event,
    go_on,
    look,
    on_event,
    rows,
    suspend,
)
from tests.support.trigger_steps import emit, start_one


@pytest.fixture
def small_mailbox(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "MAILBOX_MAX", 2)


def deliver(core: VirtualCore, task_id: str, **trigger: object) -> Followed:
    """Deliver a message as the engine does."""
    emit(core, **{"workflow": None, "source": "MESSAGE", "task_id": task_id, **trigger})
    claim = start_one(core)
    return core.do(core.turns.deliver, claim, task_id)


def test_messages_of_a_commit_may_exceed_the_mailbox_limit(core, small_mailbox):
    """All limits are checked before the first message is delivered."""
    running = begin(core)

    for _ in range(3):
        deliver(core, running.task.id)

    assert len(rows(core, "mailbox")) == 3
    refused = core.do(core.turns.delivery_refusal, running.task.id)
    assert isinstance(refused, Failed)
    assert refused.retryable


def test_awaited_signal_lets_the_task_continue_with_its_payload(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))

    assert core.do(core.tasks.signal, running.task.id, "paid", {"amount": 3}, sent_by="bank")

    task = look(core, running.task.id)
    assert (task.status, task.reason) == (TaskStatus.RUNNING, "woken: signal")
    entry = enter_next(core).entry
    assert entry.resume == "SIGNAL"
    assert entry.waits["wait_for#1"].value_json == '{"amount":3}'
    [mail] = rows(core, "mailbox")
    assert (mail["status"], mail["sent_by"]) == ("READ", "bank")


def test_unawaited_signal_is_kept_and_wakes_no_task(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))

    assert not core.do(core.tasks.signal, running.task.id, "shipped")

    assert look(core, running.task.id).status is TaskStatus.WAITING
    assert [mail["status"] for mail in rows(core, "mailbox")] == ["UNREAD"]


def test_early_signals_are_read_in_order_by_successive_waits(core):
    running = begin(core)
    for n in range(3):
        core.do(core.tasks.signal, running.task.id, "paid", n)

    values = []
    for n in range(3):
        suspend(core, running, for_event("paid", name=f"wait_for#{n + 1}"))
        running = enter_next(core)
        values.append(running.entry.waits[f"wait_for#{n + 1}"].value_json)

    assert values == ["0", "1", "2"]
    suspend(core, running, for_event("paid", name="wait_for#4"))
    assert look(core, running.task.id).status is TaskStatus.WAITING


def test_second_of_two_signals_at_once_is_kept(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))

    with core.transaction() as tx:
        woken = [core.tasks.signal(tx, running.task.id, "paid", n) for n in range(2)]

    assert woken == [True, False]
    assert [(mail["payload_json"], mail["status"]) for mail in rows(core, "mailbox")] == [
        ("0", "READ"),
        ("1", "UNREAD"),
    ]
    enter_next(core)


def test_continuation_on_an_event_finds_existing_mail(core):
    running = begin(core)
    core.do(core.tasks.signal, running.task.id, "paid", 7)

    go_on(core, running, {"n": 1}, on_event("paid"))

    second = enter_next(core)
    assert (second.task.turn, second.entry.resume) == (2, "SIGNAL")
    assert second.entry.received is not None
    assert second.entry.received.value_json == "7"


def test_message_to_a_task_wakes_the_task_as_a_message(core):
    running = begin(core)
    go_on(core, running, None, on_event("message"))

    assert deliver(core, running.task.id, payload={"text": "hi"}) == Followed(due_at=core.clock.now())

    second = enter_next(core)
    assert second.entry.resume == "MESSAGE"
    assert second.entry.received is not None
    assert json.loads(second.entry.received.value_json or "") == {"text": "hi"}


def test_trigger_of_another_source_to_a_task_is_an_event_of_that_name(core):
    running = begin(core)

    deliver(core, running.task.id, source="SYSTEM", payload={"kind": "low disk"})

    assert [mail["event"] for mail in rows(core, "mailbox")] == ["system"]


# Refusals


@pytest.mark.parametrize("event", ["", "two words", "x" * 201, "ü", "a\n"])
def test_signal_with_an_invalid_event_name_is_refused(core, event):
    running = begin(core)

    with pytest.raises(InvalidInput, match="event"):
        core.do(core.tasks.signal, running.task.id, event)
    assert rows(core, "mailbox") == []


@pytest.mark.parametrize(("payload", "refusal"), [(object(), InvalidInput), ("x" * 300_000, PayloadTooLarge)])
def test_signal_with_an_unstorable_payload_is_refused(core, payload, refusal):
    running = begin(core)

    with pytest.raises(refusal, match="payload"):
        core.do(core.tasks.signal, running.task.id, "paid", payload)
    assert rows(core, "mailbox") == []


@pytest.mark.parametrize("sender", ["x" * 4_001, "\ud800"])
def test_signal_sender_needs_a_storable_name(core, sender):
    running = begin(core)

    with pytest.raises(InvalidInput):
        core.do(core.tasks.signal, running.task.id, "paid", sent_by=sender)
    assert rows(core, "mailbox") == []


def test_signal_to_an_ended_task_is_refused(core):
    running = begin(core)
    finish(core, running)

    with pytest.raises(StateRefused, match="is DONE"):
        core.do(core.tasks.signal, running.task.id, "paid")
    assert rows(core, "mailbox") == []


def test_signal_to_an_unknown_task_is_refused(core):
    with pytest.raises(NotFound, match="no task nobody"):
        core.do(core.tasks.signal, "nobody", "paid")


def test_signal_to_a_full_mailbox_is_refused_until_mail_is_read(core, small_mailbox):
    running = begin(core)
    for n in range(2):
        core.do(core.tasks.signal, running.task.id, "paid", n)
    with pytest.raises(StateRefused, match="unread mails"):
        core.do(core.tasks.signal, running.task.id, "paid", 2)

    suspend(core, running, for_event("paid"))

    core.do(core.tasks.signal, running.task.id, "paid", 2)
    assert [mail["status"] for mail in rows(core, "mailbox")] == ["READ", "UNREAD", "UNREAD"]


def test_message_to_a_task_that_has_ended_meanwhile_is_routed_again(core):
    running = begin(core)
    finish(core, running)

    assert core.do(core.turns.delivery_refusal, running.task.id) == Released(reason=f"task {running.task.id} has ended")


# Messages that answer a question


def suspend_with_question(core: VirtualCore, **question: object) -> Running:
    running = begin(core)
    suspend(core, running, a_question(**question))  # type: ignore[arg-type]
    return running


@pytest.mark.parametrize(
    ("payload", "answer"),
    [
        ({"text": "send"}, "send"),
        ({"text": "  SEND\n"}, "send"),
        ({"text": "send it"}, None),
        ({"text": ""}, None),
        ({"text": 7}, None),
        ({}, None),
        ({"note": "send"}, None),
    ],
)
def test_message_answers_a_question_with_options_when_equal_to_an_option(core, payload, answer):
    running = suspend_with_question(core, by_message=True)

    deliver(core, running.task.id, payload=payload)

    [question] = rows(core, "questions")
    assert (question["status"], question["answer"]) == (("ANSWERED", "send") if answer else ("OPEN", None))
    assert [mail["status"] for mail in rows(core, "mailbox")] == ["READ" if answer else "UNREAD"]


def test_any_text_answers_a_question_without_options(core):
    running = suspend_with_question(core, by_message=True, options=None)

    deliver(core, running.task.id, payload={"text": "tomorrow, please"})

    second = enter_next(core)
    assert (second.entry.resume, second.entry.waits["ask#1"].value_json) == ("ANSWER", '"tomorrow, please"')


def test_message_does_not_answer_a_question_without_by_message(core):
    running = suspend_with_question(core, by_message=False)

    deliver(core, running.task.id, payload={"text": "send"})

    assert look(core, running.task.id).status is TaskStatus.WAITING
    assert [mail["status"] for mail in rows(core, "mailbox")] == ["UNREAD"]


def test_message_before_the_question_answers_and_other_messages_stay(core):
    running = begin(core)
    for text in ("hello", "hold", "send"):
        deliver(core, running.task.id, payload={"text": text})

    suspend(core, running, a_question(by_message=True))

    [question] = rows(core, "questions")
    assert (question["answer"], [mail["status"] for mail in rows(core, "mailbox")]) == (
        "hold",
        ["UNREAD", "READ", "UNREAD"],
    )
    assert question["answered_by"].startswith("message ")


def test_answer_by_signal_has_the_name_of_the_sender(core):
    running = suspend_with_question(core, by_message=True)

    core.do(core.tasks.signal, running.task.id, "message", {"text": "send"}, sent_by="ada")

    [question] = rows(core, "questions")
    assert question["answered_by"] == "ada"


# The end of the task


def test_task_end_leaves_signals_unread_and_emits_messages_again_in_order(core):
    running = begin(core, session_id="s")
    core.do(core.tasks.signal, running.task.id, "paid")
    sent = []
    for n in range(3):
        deliver(core, running.task.id, payload={"n": n}, description=f"message {n}")
        sent.append(rows(core, "triggers")[-1])

    followed = finish(core, running)

    assert followed.due_at == core.clock.now()
    assert [mail["status"] for mail in rows(core, "mailbox")] == ["LEFT", "EMITTED", "EMITTED", "EMITTED"]
    emitted = rows(core, "triggers")[-3:]
    same = ("source", "payload_json", "description", "priority", "fire_at", "task_id", "session_id", "lane")
    assert [[row[name] for name in same] for row in emitted] == [[row[name] for name in same] for row in sent]
    assert {row["status"] for row in emitted} == {"PENDING"}
    assert not {row["id"] for row in emitted} & {row["id"] for row in sent}


def test_message_emitted_again_has_no_dedup_key(core):
    running = begin(core)
    deliver(core, running.task.id, dedup_key="mail-17")

    finish(core, running)

    assert [row["dedup_key"] for row in rows(core, "triggers")] == [None, "mail-17", None]
    assert not emit(core, dedup_key="mail-17").created


def test_message_that_a_turn_read_is_not_emitted_again(core):
    running = begin(core)
    deliver(core, running.task.id)
    suspend(core, running, for_event("message"))

    finish(core, enter_next(core))

    assert [mail["status"] for mail in rows(core, "mailbox")] == ["READ"]
    assert core.rows("SELECT 1 FROM triggers WHERE status = 'PENDING'") == []


def test_message_emitted_again_keeps_its_expiry_and_settles_as_stale(core, clock):
    running = begin(core)
    deliver(core, running.task.id, expires_at=clock.now() + 60)
    clock.advance(61)

    finish(core, running)
    with pytest.raises(StateRefused, match="expired"):
        start_one(core)

    assert rows(core, "triggers")[-1]["reason"] == "stale"


def test_message_without_a_trigger_is_left_visibly(core):
    running = begin(core)
    deliver(core, running.task.id)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers WHERE source = 'MESSAGE'")

    finish(core, running)

    assert [mail["status"] for mail in rows(core, "mailbox")] == ["LEFT"]
