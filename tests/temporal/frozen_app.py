"""The app and the worker that tests freeze: `python -m tests.temporal.frozen_app ADDRESS [dies]`, in its folder.

`entries` has a line for each entry of a turn: the task, and the process that runs it. `effects` has one for each
effect: its key and the process.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio

from craftcore import App, Call, TaskContext
from craftcore.failpoints import kill_process
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import work_until_stopped
from craftcore.temporal.workflow import task_ledger
from craftcore.temporal.workflow.journal_messages import Intent, JournalAnswer
from craftcore.temporal.workflow.messages import TaskState
from tests.temporal.cluster_app import add_line

HEARTBEAT = 1.0


def frozen_app(folder: Path) -> App:
    """Return an app with a task that can be stopped in a step, and a task with an act."""
    app = App("frozen")

    def pause(place: str) -> None:
        add_line(folder / place, str(os.getpid()))

    @app.action("send", irreversible=True, timeout=2)
    async def send(call: Call, seconds: float) -> str:
        add_line(folder / "effects", f"{call.key} {os.getpid()}")
        pause("in-act")
        await anyio.sleep(seconds)
        return call.key

    @app.workflow("steps")
    async def steps(ctx: TaskContext) -> list[int]:
        pause("entries")

        async def slow() -> int:
            pause("in-step")
            await anyio.sleep(0.3)
            return os.getpid()

        first = await ctx.step("slow", slow)
        second = await ctx.step("second", os.getpid)
        pause("after")
        return [first, second]

    @app.workflow("acts")
    async def acts(ctx: TaskContext, seconds: float) -> str:
        pause("entries")
        key: str = await ctx.act(send, seconds=seconds)
        await ctx.step("second", pause, "after")
        return key

    @app.workflow("sleeps")
    async def sleeps(ctx: TaskContext) -> str:
        await ctx.sleep(1.0)
        return "rested"

    return app


def settings_of(address: str) -> TemporalSettings:
    """Return the settings of the worker and of its client."""
    return TemporalSettings(address=address, heartbeat_timeout=HEARTBEAT, sticky_timeout=1, task_timeout=2)


def die_in_a_workflow_task(folder: Path) -> None:
    """Kill the first process that applies an intent in a workflow, before the intent reaches the cluster."""
    begin_call = task_ledger.begin_call

    def kill_first(state: TaskState, token: int, given: Intent, now: float) -> JournalAnswer:
        try:
            (folder / "struck").touch(exist_ok=False)
            kill_process()
        except FileExistsError:
            pass
        return begin_call(state, token, given, now)

    task_ledger.begin_call = kill_first


if __name__ == "__main__":
    if "dies" in sys.argv:
        die_in_a_workflow_task(Path.cwd())
    anyio.run(work_until_stopped, frozen_app(Path.cwd()), settings_of(sys.argv[1]))
