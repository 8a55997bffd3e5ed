"""Schedules that an agent sets, lists, edits and cancels, with a daemon killed at each failpoint."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from craftcore import Producer
from craftcore.failpoints import Failpoint
from tests.support.engine_harness import look
from tests.support.processes import PATIENCE, a_daemon, until

APP = """
import os
from craftcore import App, TaskContext
from craftcore.failpoints import Failpoint, arm, kill_process

app = App("assistant")
if point := os.environ.get("KILL_AT"):
    arm(Failpoint(point), kill_process, at_pass=int(os.environ["KILL_AT_PASS"]))

@app.workflow("remind")
async def remind(text: str) -> str:
    return text

@app.workflow("agent")
async def agent(ctx: TaskContext) -> list[str]:
    await ctx.schedules.add("tea", "in 1s", workflow="remind", payload={"text": "tea is ready"})
    await ctx.schedules.add("brief", "every day at 7am", workflow="remind", payload={"text": "good morning"})
    await ctx.schedules.add("report", "in 1h", workflow="remind", payload={"text": "report"})
    found = [schedule.id for schedule in await ctx.schedules.list()]
    await ctx.schedules.edit("brief", when="every 1s", max_runs=3)
    await ctx.schedules.remove("report")
    return found
"""

REACHED = {
    *(Failpoint.CLAIM_COMMITTED, Failpoint.START_COMMITTED, Failpoint.TURN_ENTERED),
    *(Failpoint.STEP_COMMITTED, Failpoint.HANDLER_RETURNED, Failpoint.SETTLE_BEGUN, Failpoint.SETTLE_COMMITTED),
    *(Failpoint.WRITER_FLUSHING, Failpoint.WRITER_FLUSHED, Failpoint.TICK_WRITTEN, Failpoint.TICK_COMMITTED),
}
"""The failpoints that this work reaches."""


def run_case(folder: Path, point: Failpoint, at_pass: int) -> bool:
    """Run the agent to the end of its schedules, with a kill at one pass of the point. Return whether it was
    killed."""
    folder.mkdir()
    (folder / "app.py").write_text(APP)
    with Producer(folder / "agent.db") as producer:
        work = producer.emit("agent")
        with a_daemon(folder, "app:app", KILL_AT=point, KILL_AT_PASS=str(at_pass)) as daemon:
            until(lambda: daemon.process.poll() is not None or is_over(folder), f"{point} or the end")
            was_killed = daemon.process.poll() is not None
        if was_killed:
            with a_daemon(folder, "app:app") as daemon:
                until(lambda: is_over(folder), f"the end after {point}, pass {at_pass}")
        assert {"tea", "brief"} <= set(work.result(timeout=PATIENCE))
    require_complete_history(folder)
    return was_killed


def is_over(folder: Path) -> bool:
    rows = look(folder / "agent.db", "SELECT id, status FROM schedules")
    live = look(
        folder / "agent.db",
        """SELECT 1 FROM triggers WHERE status IN ('PENDING', 'CLAIMED')
            UNION ALL SELECT 1 FROM schedule_occurrences WHERE outcome = 'buffered'""",
    )
    ended = {"tea": "FINISHED", "brief": "FINISHED", "report": "REMOVED"}
    return {row["id"]: row["status"] for row in rows} == ended and not live


def require_complete_history(folder: Path) -> None:
    """Require that each occurrence fired once, by one trigger that succeeded, or is recorded as skipped."""
    lines: list[dict[str, Any]] = look(folder / "agent.db", "SELECT * FROM schedule_occurrences ORDER BY seq")
    fired = [(line["schedule_id"], line["nominal_at"]) for line in lines if line["outcome"] == "fired"]
    assert len(fired) == len(set(fired))
    assert [name for name, _ in fired].count("tea") == 1
    assert [name for name, _ in fired].count("brief") == 3
    assert [name for name, _ in fired].count("report") == 0

    triggers = look(folder / "agent.db", "SELECT * FROM triggers WHERE schedule_id IS NOT NULL")
    assert sorted((row["schedule_id"], row["nominal_at"]) for row in triggers) == sorted(fired)
    assert {(row["status"], row["reason"]) for row in triggers} == {("DONE", "succeeded")}
    texts = {row["schedule_id"]: json.loads(row["payload_json"])["text"] for row in triggers}
    assert texts == {"tea": "tea is ready", "brief": "good morning"}

    seconds = {
        moment
        for line in lines
        if line["schedule_id"] == "brief"
        for moment in range(int(line["nominal_at"]), int(line["last_at"]) + 1)
    }
    assert seconds == set(range(min(seconds), max(seconds) + 1)), "an occurrence is not accounted for"


@pytest.mark.acceptance
@pytest.mark.parametrize("at_pass", [1, 3])
def test_schedules_of_an_agent_fire_once_over_a_kill_at_each_failpoint(tmp_path, at_pass):
    def run(point: Failpoint) -> bool:
        return run_case(tmp_path / point, point, at_pass)

    with ThreadPoolExecutor(6) as cases:
        killed = {point for point, was_killed in zip(Failpoint, cases.map(run, Failpoint), strict=True) if was_killed}

    assert killed >= (REACHED if at_pass == 1 else REACHED - {Failpoint.TURN_ENTERED}), "the work has one turn"
