"""Refusal of workflow code that waits for other work, because it would block the slot that the work needs."""

from __future__ import annotations

from typing import Any

import anyio
import pytest

from craftcore import App, AsyncProducer, Producer, TaskContext
from tests.support import process_functions
from tests.support.engine_harness import Lab, lab, settings

pytestmark = pytest.mark.anyio

ADVICE = "await child.result()"


def build_app() -> App:
    app = App()

    @app.workflow("inner")
    async def inner() -> int:
        return 1

    return app


async def refusal(host: Lab, workflow: str) -> str:
    """Return the message of a workflow that fails at once, although it has attempts left."""
    row = await host.settled((await host.app.emit(workflow)).id)
    assert (row["status"], row["attempts"], row["error_code"]) == ("FAILED", 1, "VALIDATION_ERROR"), row
    return str(row["error_message"])


@pytest.mark.parametrize("call", ["result", "events"])
async def test_waiting_for_a_handle_in_a_workflow_is_refused(tmp_path, call):
    """With a single slot the wait would never end."""
    app = build_app()

    @app.workflow("outer")
    async def outer() -> None:
        handle = await app.emit("inner")
        if call == "result":
            await handle.result()
        async for _ in handle.events():
            pass

    async with lab(app, tmp_path, settings(concurrency=1)) as host:
        message = await refusal(host, "outer")

    assert ADVICE in message
    assert f"handle.{call}()" in message


@pytest.mark.parametrize("where", ["plain", "step", "step in a process", "async producer", "task beside it"])
async def test_waiting_for_a_producer_in_a_workflow_is_refused(tmp_path, where):
    app, path = build_app(), tmp_path / "agent.db"

    def wait() -> Any:
        with Producer(path) as producer:
            return producer.emit("inner").result()

    if where == "plain":
        app.workflow("outer")(wait)
    else:

        @app.workflow("outer")
        async def outer(ctx: TaskContext) -> None:
            match where:
                case "step":
                    await ctx.step("waits", wait)
                case "step in a process":
                    await ctx.step("waits", process_functions.wait_for_work, str(path), executor="process")
                case "async producer":
                    async with AsyncProducer(path) as producer:
                        await (await producer.emit("inner")).result()
                case "task beside it":
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(anyio.to_thread.run_sync, wait)

    async with lab(app, tmp_path, settings(concurrency=1)) as host:
        assert ADVICE in await refusal(host, "outer")


async def test_result_that_exists_is_read_in_a_workflow_with_a_timeout_of_zero(tmp_path):
    app = build_app()

    @app.workflow("outer")
    async def outer(id: str) -> int:
        found: int = await app.handle(id).result(timeout=0)
        return found

    async with lab(app, tmp_path):
        inner = await app.emit("inner")
        assert await inner.result() == 1
        assert await (await app.emit("outer", {"id": inner.id})).result() == 1


async def test_workflow_may_wait_for_the_work_of_another_database(tmp_path):
    """Another engine runs the work, in slots of its own."""
    (tmp_path / "other").mkdir()
    other, app = build_app(), App()

    @app.workflow("outer")
    async def outer() -> int:
        found: int = await (await other.emit("inner")).result()
        return found

    async with lab(other, tmp_path / "other"), lab(app, tmp_path):
        assert await (await app.emit("outer")).result() == 1


async def test_code_that_outlives_its_workflow_may_wait(tmp_path):
    """A background task that a workflow starts occupies no slot after the end of the workflow."""
    app, found, task_groups = build_app(), list[Any](), list[Any]()
    has_ended = anyio.Event()

    async def report() -> None:
        await has_ended.wait()
        found.append(await (await app.emit("inner")).result())

    @app.workflow("outer")
    async def outer() -> None:
        task_groups[0].start_soon(report)

    async with lab(app, tmp_path, settings(concurrency=1)) as host, anyio.create_task_group() as tasks:
        task_groups.append(tasks)
        await (await app.emit("outer")).result()
        await host.idle()
        has_ended.set()

    assert found == [1]
