"""The search attributes of tasks: the lists of a cluster, and a namespace without the attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event

import anyio
import pytest

from craftcore import App, Call, RetryPolicy, TaskContext
from craftcore.errors import ConfigInvalid
from craftcore.temporal.attribute_setup import register
from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.search_attributes import ASKS_KEY, DOUBTS_KEY, QUESTIONS_MEMO, STATUS_KEY, WORKFLOW_KEY
from tests.support.processes import PATIENCE
from tests.temporal.dev_server import DevServer
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio


def make_asking_app(name: str) -> App:
    app = App(name)
    app.default_retry = RetryPolicy(max_attempts=1, base=0, cap=0)

    @app.action("pay", irreversible=True, timeout=1)
    async def pay(call: Call) -> str:
        raise TimeoutError("no answer")

    @app.workflow("asks")
    async def asks(ctx: TaskContext) -> str | None:
        return await ctx.ask("Well?", ["yes", "no"])

    @app.workflow("doubts")
    async def doubts(ctx: TaskContext) -> str:
        return await ctx.act(pay)

    return app


async def test_state_of_a_task_is_in_its_attributes_and_its_question_in_the_memo(cluster):
    app = make_asking_app("attributes")
    with anyio.fail_after(PATIENCE):
        async with working(app, cluster) as connection:
            client = TaskClient(connection, app, cluster)
            task = await client.emit("asks")
            handle = connection.get_workflow_handle(workflow_id_of_task(task))
            while not (await client.view(task)).questions:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            [question] = (await client.view(task)).questions

            found = await handle.describe()
            assert found.typed_search_attributes[WORKFLOW_KEY] == "asks"
            assert found.typed_search_attributes[STATUS_KEY] == "WAITING"
            assert found.typed_search_attributes[ASKS_KEY] == [question.id]
            [kept] = await found.memo_value(QUESTIONS_MEMO)
            assert (kept["id"], kept["question"], kept["options"]) == (question.id, "Well?", ["yes", "no"])

            await client.answer(task, question.id, "yes", by="ada")
            await client.result(task)
            found = await handle.describe()
            assert found.typed_search_attributes[STATUS_KEY] == "DONE"
            assert not found.typed_search_attributes.get(ASKS_KEY)
            assert await found.memo_value(QUESTIONS_MEMO, None) is None


async def test_answered_question_is_in_no_list_while_its_task_waits_for_its_session(cluster):
    app, settings = make_asking_app("answered"), replace(cluster, task_queue="answered")
    released = Event()

    @app.workflow("holds")
    async def holds(ctx: TaskContext) -> None:
        while not released.is_set():  # noqa: ASYNC110 - another loop runs this
            await anyio.sleep(0.02)

    with anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, app, settings)
            task = await client.emit("asks", session_id="ada")
            handle = connection.get_workflow_handle(workflow_id_of_task(task))
            while not await (await handle.describe()).memo_value(QUESTIONS_MEMO, None):  # noqa: ASYNC110
                await anyio.sleep(0.02)
            holder = await client.emit("holds", session_id="ada")
            while (await client.view(holder)).entries == 0:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            await client.answer(task, f"{task}.1", "yes", by="ada")
            with anyio.fail_after(10):
                while (found := await handle.describe()).typed_search_attributes.get(ASKS_KEY):  # noqa: ASYNC110
                    await anyio.sleep(0.02)
            assert found.typed_search_attributes[STATUS_KEY] == "WAITING"
            assert await found.memo_value(QUESTIONS_MEMO, None) is None
            released.set()
            assert (await client.result(task)).result_json == '"yes"'


async def test_action_in_doubt_is_listed_by_its_key(cluster):
    app = make_asking_app("doubtful")
    with anyio.fail_after(PATIENCE):
        async with working(app, cluster) as connection:
            client = TaskClient(connection, app, cluster)
            task = await client.emit("doubts")
            while not (await client.view(task)).questions:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
            [activity] = (await client.view(task)).activities
            found = await connection.get_workflow_handle(workflow_id_of_task(task)).describe()
            assert found.typed_search_attributes[DOUBTS_KEY] == [activity.key]
            await client.cancel(task)


@pytest.fixture
def bare_server() -> Iterator[DevServer]:
    """Run a server without the attributes."""
    server = DevServer(is_set_up=False)
    yield server
    server.close()


async def test_namespace_without_attributes_is_refused_until_its_setup(bare_server):
    app = make_asking_app("bare")
    settings = replace(bare_server.settings, task_queue="bare")
    with anyio.fail_after(PATIENCE):
        connection = await connect(settings)
        client = TaskClient(connection, app, settings)
        with pytest.raises(ConfigInvalid, match="craftcore temporal setup"):
            async with working(app, settings):
                pass
        with pytest.raises(ConfigInvalid, match="craftcore temporal setup"):
            await client.emit("asks")
        assert len(await register(connection)) == 5
        assert await register(connection) == []
        async with working(app, settings):
            pass
