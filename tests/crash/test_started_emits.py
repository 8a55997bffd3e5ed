"""Kills around the commit that accepts and starts a trigger: both are on disk, or neither is."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from craftcore.failpoints import Failpoint
from tests.crash.crews import run_program
from tests.support.engine_harness import look
from tests.support.processes import PATIENCE

LIFE = """
import asyncio, sys
from craftcore import App
from craftcore.failpoints import Failpoint, arm, kill_process
app = App("killed")

@app.workflow("work")
async def work() -> None:
    with open(sys.argv[2], "a") as ran:
        ran.write("x")

async def live() -> None:
    async with app.running(sys.argv[1]) as engine:
        while not engine.is_idle:
            await asyncio.sleep(0.01)
        if len(sys.argv) > 3:
            arm(Failpoint(sys.argv[3]), kill_process)
            await app.emit("work")
            await asyncio.sleep(3600)

asyncio.run(live())
"""

ON_DISK = [Failpoint.WRITER_FLUSHED, Failpoint.EMIT_COMMITTED, Failpoint.START_COMMITTED, Failpoint.TURN_ENTERED]


def live(folder: Path, *point: str) -> int:
    return run_program("-c", LIFE, str(folder / "agent.db"), str(folder / "ran"), *point, timeout=PATIENCE).returncode


def rows(folder: Path) -> list[dict[str, object]]:
    return look(
        folder / "agent.db", "SELECT status, attempts, starts, crash_count, started_at > 0 AS started FROM triggers"
    )


@pytest.mark.parametrize("point", ON_DISK)
def test_trigger_whose_joint_commit_is_on_disk_is_started_and_runs_after_a_kill(tmp_path, point):
    assert live(tmp_path, point) == -signal.SIGKILL
    assert rows(tmp_path) == [{"status": "CLAIMED", "attempts": 1, "starts": 1, "crash_count": 0, "started": 1}]
    assert look(tmp_path / "agent.db", "SELECT status FROM executions") == [{"status": "incomplete"}]
    assert not (tmp_path / "ran").exists(), "the workflow ran before the flush"

    assert live(tmp_path) == 0

    [row] = rows(tmp_path)
    assert (row["status"], row["starts"], row["crash_count"]) == ("DONE", 2, 1)
    assert (tmp_path / "ran").read_text() == "x"


def test_trigger_whose_joint_commit_is_not_on_disk_leaves_nothing_after_a_kill(tmp_path):
    assert live(tmp_path, Failpoint.WRITER_FLUSHING) == -signal.SIGKILL

    assert rows(tmp_path) == []
    assert look(tmp_path / "agent.db", "SELECT status FROM executions") == []
    assert live(tmp_path) == 0
    assert not (tmp_path / "ran").exists()
