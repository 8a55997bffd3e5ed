"""Each call of `WorkCalls` has the same effect for every kind of caller, over a file and over a cluster."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any
from uuid import uuid4

import pytest

from craftcore import App, AsyncProducer, Producer
from craftcore.client.backend import Capability
from craftcore.client.work_calls import WorkCalls
from craftcore.errors import DuplicateTrigger, InvalidInput, NotFound, StateRefused, WorkFailed
from craftcore.temporal.temporal_producer import TemporalProducer
from craftcore.triggers.model import TriggerSpec
from tests.backends.conftest import failed_attempts

pytestmark = pytest.mark.anyio


def store_photo(tx: Any, photo: bytes) -> bytes:
    tx.run("CREATE TABLE IF NOT EXISTS photos (id INTEGER PRIMARY KEY, data BLOB NOT NULL) STRICT")
    tx.run("INSERT INTO photos (data) VALUES (:data)", data=photo)
    stored: bytes = tx.value("SELECT data FROM photos")
    return stored


VERBS = [name for name, member in vars(WorkCalls).items() if inspect.isfunction(member) and not name.startswith("_")]


@pytest.mark.parametrize("face", [App, AsyncProducer, Producer, TemporalProducer])
def test_calls_of_all_faces_are_defined_once(face):
    for name in VERBS:
        if name != "handle" or face in (App, AsyncProducer):
            assert inspect.unwrap(getattr(face, name)) is vars(WorkCalls)[name], name


async def test_emitted_work_has_a_result_and_is_found(caller):
    added = await caller.emit("add", left=1, right=2)

    assert await caller.result(added) == 3
    assert added in [work.id for work in await caller.make("find", workflow="add", status="DONE")]
    with pytest.raises(InvalidInput, match="status 'DOING' is unknown"):
        await caller.make("find", status="DOING")
    with pytest.raises(InvalidInput, match="limit 0 must be"):
        await caller.make("find", limit=0)


async def test_emit_with_a_known_key_creates_nothing(caller):
    key = f"key:{uuid4()}"
    first = await caller.make("emit", "wait", {}, dedup_key=key, dedup_scope="active")
    second = await caller.make("emit", "wait", {}, dedup_key=key, dedup_scope="active")

    assert (first.created, second.created, second.id) == (True, False, first.id)
    with pytest.raises(DuplicateTrigger, match="wait"):
        await caller.make("emit", "add", {"left": 1, "right": 2}, dedup_key=key, dedup_scope="active")


async def test_many_triggers_are_emitted_together(caller):
    specs = [TriggerSpec(workflow="add", payload={"left": number, "right": 1}) for number in range(3)]

    assert [await caller.result(work.id) for work in await caller.make("emit_many", specs)] == [1, 2, 3]


async def test_signal_reaches_a_waiting_task(caller):
    waiting = await caller.emit("wait")
    await caller.wait_for_status(waiting, "WAITING")

    assert await caller.make("signal", waiting, "go", {"n": 1}) is True
    assert await caller.result(waiting) == {"n": 1}
    with pytest.raises(StateRefused):
        await caller.make("signal", waiting, "go")
    with pytest.raises(NotFound):
        await caller.make("signal", "01a21e5f-0000-7007-8d6f-e64bc9e9c616", "go")


async def test_question_is_answered_once(caller):
    asking = await caller.emit("ask")
    question = await caller.wait_for_question(asking)
    with pytest.raises((InvalidInput, StateRefused)):
        await caller.make("answer", question.id, "perhaps", answered_by="ada")

    await caller.make("answer", question.id, "yes", answered_by="ada")

    assert await caller.result(asking) == "yes"
    with pytest.raises((StateRefused, NotFound)):
        await caller.make("answer", question.id, "no", answered_by="ada")


async def test_question_with_a_form_is_answered_with_its_fields(caller):
    ordering = await caller.emit("order")
    question = await caller.wait_for_question(ordering)
    assert (question.addressee, '"count"' in question.form_json) == ("finance", True)
    for wrong in ({"count": 2}, {"item": "tea", "count": 0}, "tea"):
        with pytest.raises((InvalidInput, StateRefused), match=r"count|item"):
            await caller.make("answer", question.id, wrong, answered_by="ada")

    await caller.make("answer", question.id, {"item": "tea", "count": 3}, answered_by="ada")
    again = await caller.wait_for_question(ordering, "an odd count")
    await caller.make("answer", again.id, {"item": "tea"}, answered_by="ada")

    assert await caller.result(ordering) == ["Order", "tea", 2]


async def test_doubt_about_an_action_is_decided(caller):
    buying = await caller.emit("buy")
    question = await caller.wait_for_question(buying)
    with pytest.raises(InvalidInput, match="decision 'perhaps' is unknown"):
        await caller.make("decide", question.activity_key, "perhaps", decided_by="ada")

    await caller.make("decide", question.activity_key, "happened", reference="r1", decided_by="ada")

    assert await caller.result(buying) == "r1"
    with pytest.raises(StateRefused):
        await caller.make("decide", question.activity_key, "happened", reference="r1", decided_by="ada")


async def test_unstarted_trigger_is_cancelled(caller):
    emitted = await caller.make("emit", "add", {"left": 1, "right": 2}, delay="1h")

    await caller.make("cancel", emitted.id)

    with pytest.raises(WorkFailed, match="cancelled"):
        await caller.result(emitted.id)


async def test_waiting_task_is_cancelled(caller):
    waiting = await caller.emit("wait")
    await caller.wait_for_status(waiting, "WAITING")

    await caller.make("cancel_task", waiting)

    await caller.wait_for_status(waiting, "CANCELLED")
    with pytest.raises(StateRefused):
        await caller.make("cancel_task", waiting)
    with pytest.raises(NotFound):
        await caller.make("cancel_task", "01a21e5f-0000-7007-8d6f-e64bc9e9c616")


@pytest.mark.parametrize("call", ["retry_task", "requeue"])
async def test_failed_work_is_tried_again(caller, call):
    failing = await caller.emit("fail")
    with pytest.raises(WorkFailed):
        await caller.result(failing)
    assert failed_attempts.count(failing) == 1

    await caller.make(call, failing)

    with pytest.raises(WorkFailed):
        await caller.result(failing)
    assert failed_attempts.count(failing) == 2


async def test_tasks_are_listed_newest_first(caller):
    first, second = await caller.emit("wait"), await caller.emit("wait")
    for task_id in (first, second):
        await caller.wait_for_status(task_id, "WAITING")

    listed = [task.id for task in await caller.make("tasks", status="WAITING", workflow="wait")]

    assert [task_id for task_id in listed if task_id in (first, second)] == [second, first]
    with pytest.raises(InvalidInput, match="status 'DOING' is unknown"):
        await caller.make("tasks", status="DOING")


LACKED: dict[Capability, list[tuple[str, tuple[Any, ...], dict[str, Any]]]] = {
    Capability.SIGNAL_OR_START: [("signal", (None, "go"), {"start": TriggerSpec(workflow="wait", dedup_key="new")})],
    Capability.STOP_TURN: [("stop_turn", ("{task}",), {})],
    Capability.CANCEL_ALL: [("cancel_all", ("over",), {})],
    Capability.HOLD: [("hold", (), {"workflow": "add"}), ("release", (), {"workflow": "add"})],
    Capability.DEAD_LETTERS: [("dead_letters", (), {})],
    Capability.TRANSACTION: [("transaction", (store_photo, b"\x00\xff"), {})],
    Capability.HISTORY: [("history", ("s",), {"limit": 5}), ("forget_history", ("s",), {})],
}


@pytest.mark.parametrize("capability", LACKED)
async def test_call_is_made_or_refused_with_advice(caller, capability):
    chat = await caller.emit("chat")
    if capability not in caller.lacks:
        await caller.wait_for_status(chat, "WAITING", "go")
        await caller.make("signal", chat, "go")
        await caller.wait_for_status(chat, "WAITING", "more")
    for name, arguments, options in LACKED[capability]:
        given = [chat if argument == "{task}" else argument for argument in arguments]
        if capability in caller.lacks:
            with pytest.raises(InvalidInput) as refused:
                await caller.make(name, *given, **options)
            assert refused.value.message == caller.lacks[capability]
        else:
            await caller.make(name, *given, **options)


async def test_schedules_are_there_or_refused(caller):
    if Capability.SCHEDULES in caller.lacks:
        with pytest.raises(InvalidInput) as refused:
            _ = caller.calls.schedules
        assert refused.value.message == caller.lacks[Capability.SCHEDULES]
        return
    call: Callable[..., Any] = caller.calls.schedules.add
    added = call("nightly", "every 1d", workflow="add", payload={"left": 1, "right": 1})
    assert (await added if inspect.isawaitable(added) else added).id == "nightly"


async def test_message_has_its_reply_or_the_turn_is_refused(caller):
    emitted = [await caller.make("emit", "reply", {"text": "one"}, source="MESSAGE", session_id="s")]
    if Capability.REPLY in caller.lacks:
        with pytest.raises(WorkFailed) as refused:
            await caller.result(emitted[0].id)
        assert caller.lacks[Capability.REPLY] in refused.value.message
        return
    emitted.append(await caller.make("emit", None, {"text": "two"}, source="MESSAGE", session_id="s"))
    emitted.append(await caller.make("emit", "reply", {"text": "three"}, source="MESSAGE", session_id="s"))

    assert [await caller.result(work.id) for work in emitted] == ["one?", "two?", "three?"]
    assert len(await caller.make("tasks", workflow="reply")) == 1


async def test_streams_are_read_or_refused(caller):
    work = await caller.emit("add", left=1, right=2)
    await caller.result(work)  # a blocking call must not wait on the loop of the engine
    handle = caller.calls.handle(work)
    if Capability.STREAMS in caller.lacks:
        with pytest.raises(InvalidInput) as refused:
            handle.stream("answer")
        assert refused.value.message == caller.lacks[Capability.STREAMS]
        return
    stream = handle.stream("answer")
    chunks = [chunk async for chunk in stream] if hasattr(stream, "__aiter__") else list(stream)
    assert chunks == []


def test_capabilities_all_have_a_test():
    assert {*LACKED, Capability.SCHEDULES, Capability.REPLY, Capability.STREAMS} == set(Capability)
