"""The attempts of a step, counted across a kill of the process."""

from __future__ import annotations

from pathlib import Path

import pytest

from craftcore import Producer, WorkFailed
from tests.support.processes import PATIENCE, a_daemon, until

APP = """
import os
from pathlib import Path
from craftcore import App, RetryPolicy, TaskContext
from craftcore.failpoints import kill_process

app = App("retries")

def fetch() -> None:
    attempts = Path("attempts")
    with attempts.open("a") as file:
        file.write("x")
    if attempts.stat().st_size == 3:
        kill_process()
    raise ConnectionError("reset")

@app.workflow("fetches", max_attempts=1)
async def fetches(ctx: TaskContext) -> None:
    await ctx.step("fetch", fetch, retry=RetryPolicy(max_attempts=4, base=0, cap=0))
"""


def test_step_retries_keep_their_count_over_a_kill(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    with Producer(tmp_path / "agent.db") as producer:
        work = producer.emit("fetches")
        with a_daemon(tmp_path, "app:app") as daemon:
            until(lambda: daemon.process.poll() is not None, "the kill in the third attempt")
        with a_daemon(tmp_path, "app:app"), pytest.raises(WorkFailed, match="reset"):
            work.result(timeout=PATIENCE)

    attempts = len((tmp_path / "attempts").read_text())
    assert attempts == 5, "two failures, the killed attempt, and the remaining two of four attempts"
