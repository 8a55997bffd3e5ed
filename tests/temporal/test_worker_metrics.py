"""The metrics of workers: their counts, and the port that Prometheus scrapes."""

from __future__ import annotations

import re
import socket
import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from craftcore.config.temporal_settings import replace_settings
from craftcore.errors import CannotCreate, ConfigInvalid
from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker_metrics import open_metrics
from tests.support.code_blocks import PAGES
from tests.support.metrics_client import Scrape, free_port
from tests.support.processes import PATIENCE
from tests.support.warm_parent import WarmProcess
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import start_on_cluster

pytestmark = pytest.mark.anyio

APP = """
import os
from pathlib import Path

from craftcore import App, Call, Fail, RetryPolicy, TaskContext

app = App("counted")
app.default_retry = RetryPolicy(max_attempts=2, base=0, cap=0)

@app.action("send", irreversible=True, timeout=5)
async def send(call: Call, to: str) -> None:
    if to == "nobody":
        os._exit(1)

@app.workflow("order")
async def order(ctx: TaskContext, to: str) -> None:
    await ctx.step("price", lambda: 40)
    await ctx.act(send, to=to)

@app.workflow("breaks")
async def breaks(ctx: TaskContext) -> None:
    await ctx.step("price", lambda: 1 / 0, retry=RetryPolicy(max_attempts=2, base=0, cap=0))

@app.workflow("fails")
async def fails() -> None:
    raise Fail("AGENT_ERROR", "no more")
"""


@pytest.fixture
def settings(cluster: TemporalSettings) -> TemporalSettings:
    return replace(cluster, task_queue="counted", heartbeat_timeout=2)


@contextmanager
def running_worker(settings: TemporalSettings, folder: Path, port: int) -> Iterator[WarmProcess]:
    (folder / "shop.py").write_text(APP)
    words = ["--address", settings.address, "--sticky-timeout", "1s", "--metrics", f"127.0.0.1:{port}"]
    process = start_on_cluster(
        ["-m", "craftcore", "temporal", "worker", "shop:app", *words], cwd=folder, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()
        assert process.stderr is not None
        process.stderr.close()


async def scrape(port: int) -> Scrape:
    def read() -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
            text: str = answer.read().decode()
            return text

    return Scrape(await anyio.to_thread.run_sync(read))


async def wait_for(port: int, condition: Callable[[Scrape], object]) -> Scrape:
    with anyio.fail_after(PATIENCE):
        while True:
            with suppress(OSError):  # the worker starts
                if condition(scraped := await scrape(port)):
                    return scraped
            await anyio.sleep(0.1)


async def test_turns_steps_and_calls_are_counted_once_by_their_workers(settings, tmp_path):
    first, second = free_port(), free_port()
    client = TaskClient(await connect(settings), None, settings)
    with running_worker(settings, tmp_path, first) as worker:
        for workflow, payload in [("order", {"to": "ada"}), ("breaks", {}), ("fails", {})]:
            await client.result(await client.emit(workflow, payload))
        await client.result(await client.emit(source="SYSTEM"))  # no workflow handles it
        scraped = await scrape(first)
        assert scraped.all("craftcore_attempts_total", "workflow", "outcome") == {
            ("order", "done"): 1,
            ("breaks", "retried"): 1,
            ("breaks", "dead"): 1,
            ("fails", "failed"): 1,
            ("other", "failed"): 1,
        }
        assert scraped.all("craftcore_steps_total", "workflow", "outcome") == {
            ("order", "done"): 1,
            ("breaks", "retried"): 2,
        }
        assert scraped.all("craftcore_calls_total", "action", "outcome") == {("send", "done"): 1}
        _, _, documented = PAGES["docs/reference/metrics.md"].partition("## Workers of a cluster")
        names = {name for name, _ in scraped.samples if name.startswith("craftcore_")}
        assert set(re.findall(r"\| `(craftcore_\w+)", documented)) == names
        assert scraped.all("temporal_activity_execution_latency_seconds_count", "activity_type") == {
            ("craftcore.turn",): 5
        }
        lost = await client.emit("order", {"to": "nobody"})
        await anyio.to_thread.run_sync(worker.wait, PATIENCE)

    with running_worker(settings, tmp_path, second):
        scraped = await wait_for(second, lambda scraped: scraped.all("craftcore_calls_total", "action", "outcome"))
        assert scraped.all("craftcore_calls_total", "action", "outcome") == {("send", "unknown"): 1}
        assert scraped.all("craftcore_attempts_total", "workflow", "outcome")[("order", "crashed")] == 1
        assert scraped.all("craftcore_steps_total", "workflow", "outcome") == {}  # a replay is not counted
        await client.cancel(lost)


async def test_worker_whose_port_is_taken_does_not_start(settings, tmp_path):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        bound.listen()
        with running_worker(settings, tmp_path, bound.getsockname()[1]) as worker:
            assert await anyio.to_thread.run_sync(worker.wait, PATIENCE) == 73
            assert worker.stderr is not None
            assert "temporal.metrics: cannot listen at 127.0.0.1:" in worker.stderr.read().decode()


def test_port_is_opened_once_in_a_process():
    listen = f"localhost:{free_port()}"
    assert open_metrics(listen) is open_metrics(listen)
    with pytest.raises(CannotCreate, match="Address already in use"):
        open_metrics(listen.replace("localhost", "127.0.0.1"))
    assert open_metrics("") is None


@pytest.mark.parametrize("metrics", ["unix:metrics.sock", "0.0.0.0:9464", "9464", "127.0.0.1:0"])
def test_address_of_another_machine_is_refused(metrics):
    with pytest.raises(ConfigInvalid, match="a port of this machine"):
        replace_settings(TemporalSettings(), {"metrics": metrics})
