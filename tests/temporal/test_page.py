"""The worker of the page docs/how-to/run-on-temporal.md works, and drains at SIGTERM."""

from __future__ import annotations

import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from temporalio.client import Client

from craftcore import App
from craftcore.temporal.temporal_client import TemporalClient
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio
PAGE = Path(__file__).parents[2] / "docs/how-to/run-on-temporal.md"


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_worker_of_the_page_works_and_ends_at_sigterm(cluster, tmp_path):
    [program] = [part.partition("```")[0] for part in PAGE.read_text().split("```python\n")[1:]]
    (tmp_path / "worker.py").write_text(program.replace("host:7233", cluster.address))
    worker = subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path)
    try:
        app = App("my-agent")
        app.declare("order", lambda what: what)
        client = TemporalClient(await Client.connect(cluster.address), app, replace(cluster, task_queue=""))
        with anyio.fail_after(PATIENCE):
            end = await client.result(await client.emit("order", {"what": "lamp"}))
        assert end.result_json == '"lamp: 40"'
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(PATIENCE) == 0
    finally:
        worker.kill()
        worker.wait(PATIENCE)
