"""Lost and late answers of the cluster: the journal has each call once, and possible repetitions are reported."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import anyio
import pytest
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client, WorkflowHandle

from craftcore import ActivityUnknown, App, Call, Continue, RetryPolicy, TaskContext
from craftcore.activities.model import Decision
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.update_sender import UpdateSender
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.journal_messages import (
    LEASE_LOST,
    Intent,
    JournalAnswer,
    JournalBatch,
    JournalCall,
    Outcome,
    Written,
    read_answers,
    write_batch,
)
from craftcore.temporal.workflow.messages import OpenQuestion, TaskView
from tests.support.processes import PATIENCE
from tests.temporal.broken_line import faulty_proxy
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio
COMPLETED = EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED
DONE = Outcome(status="DONE", reason="the provider answered", provider_ref="ref-1")


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app = App(request.node.name.partition("[")[0])
    app.default_retry = RetryPolicy(max_attempts=3, base=0, cap=0)
    return app


@pytest.fixture
async def connection(app: App, cluster: TemporalSettings) -> AsyncIterator[Client]:
    with anyio.fail_after(PATIENCE):
        async with working(app, replace(cluster, task_queue=app.name)) as connection:
            yield connection


@pytest.fixture
async def client(app: App, cluster: TemporalSettings, connection: Client) -> TaskClient:
    return TaskClient(connection, app, replace(cluster, task_queue=app.name))


@pytest.fixture
def entered(app: App) -> anyio.Event:
    """Return an event that the workflow `waits` sets at the start of a turn. The turn waits for its cancellation."""
    entered = anyio.Event()

    @app.workflow("waits")
    async def waits(ctx: TaskContext) -> None:
        entered.set()
        await anyio.sleep_forever()

    return entered


def handle_of(connection: Client, task: str) -> WorkflowHandle[Any, Any]:
    return connection.get_workflow_handle(workflow_id_of_task(task))


def entry_of(connection: Client, task: str, token: int = 1) -> OpenEntry:
    """Return the open entry of a task as on its worker."""
    return OpenEntry(client=connection, workflow_id=workflow_id_of_task(task), task_id=task, token=token)


def begin(key: str) -> JournalCall:
    """Return the intent of an act."""
    intent = Intent(key=key, action="send", policy="ask", args_hash="hash", request_json=None, ends_at=0.0)
    return JournalCall(kind="begin", intent=intent)


def settle(key: str) -> JournalCall:
    return JournalCall(kind="settle", key=key, calls=1, outcome=DONE)


async def count_completed(handle: WorkflowHandle[Any, Any]) -> int:
    return [event.event_type async for event in handle.fetch_history_events()].count(COMPLETED)


async def question_of(client: TaskClient, task: str) -> OpenQuestion:
    while not (questions := (await client.view(task)).questions):  # noqa: ASYNC110 - there is no event
        await anyio.sleep(0.05)
    return questions[0]


async def test_update_whose_answer_is_lost_is_sent_again_and_recorded_once(client, connection, cluster, entered):
    """The caller is cancelled meanwhile, and still waits for the record."""
    task = await client.emit("waits")
    await entered.wait()
    key, handle = f"activity:{task}:1.1", handle_of(connection, task)
    answers: list[JournalAnswer] = []
    given_up = anyio.Event()

    async def send() -> None:
        answers.append(await updates.send(begin(key)))

    async def send_and_give_up() -> None:
        with anyio.move_on_after(0.01):
            await updates.send(JournalCall(kind="record", text="{}", memo="note:1"))
        given_up.set()

    async with faulty_proxy(cluster.address) as line:
        updates = UpdateSender(entry_of(await Client.connect(line.address), task))
        line.loses_answers = True
        async with anyio.create_task_group() as group:
            group.start_soon(send)
            group.start_soon(send_and_give_up)
            while not await count_completed(handle):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            assert (answers, given_up.is_set()) == ([], False)
            line.break_off()
        await updates.send(settle(key))

    assert answers[0].is_begun
    assert [(one.status, one.calls) for one in (await client.view(task)).activities] == [("DONE", 1)]
    assert await count_completed(handle) == 2
    await client.cancel(task)


@pytest.mark.cluster
async def test_task_that_reuses_a_key_takes_nothing_from_the_entries_of_its_predecessor(client, connection, entered):
    """Both tasks have the same workflow id and an entry 1, and the worker of the first task was frozen."""
    first = await client.emit("waits", dedup_key="again", dedup_scope="active")
    await entered.wait()
    run = (await handle_of(connection, first).describe()).run_id
    late = UpdateSender(replace(entry_of(connection, first), run_id=run))
    await client.cancel(first)
    await client.result(first)
    second = await client.emit("waits", dedup_key="again", dedup_scope="active")
    while (await client.view(second)).entries == 0:  # noqa: ASYNC110 - there is no event
        await anyio.sleep(0.02)

    key, own = f"activity:{first}:1.1", f"activity:{second}:1.1"
    answers = [await late.send(call) for call in (begin(key), settle(key))]
    assert [(one.error, one.is_begun, one.is_late) for one in answers] == [
        (LEASE_LOST, False, False),
        (LEASE_LOST, False, True),
    ]
    updates = UpdateSender(entry_of(connection, second))
    assert (await updates.send(begin(own))).is_begun  # the answer is not that of the first task
    assert [one.key for one in (await client.view(second)).activities] == [own]
    assert await late.query("act_keys", [], list[str]) == []
    await updates.send(settle(own))
    await client.cancel(second)
    await client.result(second)


@pytest.mark.cluster
async def test_decision_before_the_question_of_the_turn_ends_the_doubt(app, client):
    calls: list[str] = []

    @app.action("send", irreversible=True)
    async def send(call: Call) -> None:
        calls.append(call.key)
        raise ConnectionError("the answer of the provider is lost")

    @app.workflow("order")
    async def order(ctx: TaskContext) -> object:
        try:
            return await ctx.act(send)
        finally:
            if ctx.resume == "FIRST":  # the turn is suspended, and its question has not yet reached the workflow
                with anyio.CancelScope(shield=True):
                    await client.decide(ctx.task_id, calls[0], Decision.HAPPENED, by="ada", reference="ref-1")

    task = await client.emit("order")
    assert (await client.result(task)).result_json == '"ref-1"'
    assert len(calls) == 1


@pytest.mark.cluster
async def test_late_outcome_after_a_decision_is_noted_for_a_person(app, client, connection):
    @app.action("send", irreversible=True)
    async def send(call: Call) -> None:
        raise ConnectionError("the answer of the provider is lost")

    @app.workflow("order")
    async def order(ctx: TaskContext) -> None:
        try:
            await ctx.act(send)
        except ActivityUnknown:
            pass
        await ctx.wait_for("go")

    async def report_late() -> TaskView:
        batch = JournalBatch(token=1, calls=[settle(key)])
        sent = await handle.execute_update("journal", write_batch(batch), id="late", result_type=list[Written])
        assert [(answer.is_late, answer.error) for answer in read_answers(sent)] == [(True, LEASE_LOST)]
        view: TaskView = await client.view(task)
        return view

    task = await client.emit("order")
    key, handle = f"activity:{task}:1.1", handle_of(connection, task)
    await client.answer(task, (await question_of(client, task)).id, "give up", by="ada")
    while (await client.view(task)).status != "WAITING":  # noqa: ASYNC110 - there is no event
        await anyio.sleep(0.02)
    view = await report_late()

    assert [(one.key, one.call, one.provider_ref) for one in view.late] == [(key, 1, "ref-1")]
    assert [(one.status, one.decision) for one in view.activities] == [("UNKNOWN", "give up")]
    assert [one["key"] for one in await (await handle.describe()).memo_value("done_late")] == [key]
    await client.cancel(task)


@pytest.mark.cluster
async def test_keyed_act_is_called_once_over_the_turns_of_a_task(app, client):
    calls: list[str] = []

    @app.action("send", irreversible=True)
    async def send(call: Call) -> int:
        calls.append(call.key)
        return len(calls)

    @app.workflow("order")
    async def order(ctx: TaskContext) -> object:
        found = [await ctx.act(send, key="letter"), await ctx.act(send)]
        return Continue(None) if ctx.turn == 1 else found

    task = await client.emit("order")
    assert (await client.result(task)).result_json == "[1,3]"
    assert calls == [f"activity:{task}:{place}" for place in ("letter", "1.1", "2.1")]
