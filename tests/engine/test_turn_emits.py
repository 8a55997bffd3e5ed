"""Cancellation of an emit of a turn during its commit: the feeder still wakes for the trigger."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from craftcore import App, TaskContext
from tests.support.engine_harness import Lab, lab
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


class WriterBlock:
    """A unit of work that blocks the writer until it is released."""

    def __init__(self) -> None:
        self.inside = threading.Event()
        self.release = threading.Event()

    def hold(self, _tx: Any) -> None:
        self.inside.set()
        self.release.wait(PATIENCE)


async def wait_for_work(harness: Lab, work: str) -> None:
    """Wait until work of the given name is in the queue of the writer."""
    with anyio.fail_after(PATIENCE):
        while all(getattr(piece.work, "__name__", "") != work for piece in list(harness.engine.writer.queue)):  # noqa: ASYNC110
            await anyio.sleep(0.001)


async def test_emit_of_a_turn_cancelled_during_the_commit_still_wakes_the_feeder(tmp_path):
    """The turn waits for the end of the commit and notifies the feeder, which would otherwise poll minutes later."""
    app = App()
    ran = anyio.Event()
    first, second = WriterBlock(), WriterBlock()

    @app.workflow("emits")
    async def emits(ctx: TaskContext) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(harness.engine.writer.commit, first.hold)
            await anyio.to_thread.run_sync(first.inside.wait)
            tasks.start_soon(harness.engine.writer.commit, second.hold)
            await wait_for_work(harness, "hold")
            with anyio.CancelScope() as scope:

                async def cancel() -> None:
                    await wait_for_work(harness, "emit_recorded")
                    first.release.set()
                    await anyio.to_thread.run_sync(second.inside.wait)
                    scope.cancel()
                    second.release.set()

                tasks.start_soon(cancel)
                await ctx.emit("other", session_id="s")
        await ran.wait()

    @app.workflow("other")
    async def other() -> None:
        ran.set()

    async with lab(app, tmp_path) as harness:
        await harness.idle_window()
        assert (await harness.ended((await app.emit("emits")).id))["status"] == "DONE"
