"""A hundred callers that wait for results while the daemon is killed and restarted."""

from __future__ import annotations

from functools import partial

import anyio
import anyio.to_thread
import pytest

from craftcore import AsyncProducer, Handle, TriggerSpec
from tests.support.processes import PATIENCE, a_daemon, until

CALLERS = 100

ECHO = """
from craftcore import App, TaskContext

app = App("echo")

@app.workflow("echo")
async def echo(n: int) -> int:
    return n

@app.workflow("naps")
async def naps(ctx: TaskContext, n: int) -> int:
    await ctx.sleep(0.3 + n % 10 / 10)
    return n
"""


@pytest.mark.anyio
async def test_callers_receive_their_own_results_over_restarts(tmp_path):
    (tmp_path / "app.py").write_text(ECHO)
    path = tmp_path / "agent.db"
    results: dict[int, int] = {}

    async def ask(n: int, work: Handle[int]) -> None:
        results[n] = await work.result(timeout=PATIENCE)

    def run_until(share: float) -> None:
        with a_daemon(tmp_path, "app:app") as daemon:
            daemon.ready()
            until(lambda: len(results) >= share * CALLERS, f"{share:.0%} of the results")
            daemon.kill()

    async with AsyncProducer(path) as producer, anyio.create_task_group() as callers:
        specs = [TriggerSpec(workflow=("echo", "naps")[n % 2], payload={"n": n}) for n in range(CALLERS)]
        for n, work in enumerate(await producer.emit_many(specs)):
            callers.start_soon(ask, n, work)
        for share in (0.3, 0.7, 1.0):
            await anyio.to_thread.run_sync(partial(run_until, share))

    assert results == {n: n for n in range(CALLERS)}
