"""One cell of the table of doubts on a cluster: `python -m tests.temporal.doubt_app ADDRESS POLICY PROVIDER HOW WHERE`.

The worker runs one task in the folder of the cell. Its act is interrupted once, in the given way and place. `effects`
has a line for each effect, and `looks` one for each question to the provider.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Any

import anyio

from craftcore import App, Call, Done, NoEffect, OnUnknown, RetryPolicy, TaskContext
from craftcore.failpoints import Failpoint, arm, kill_process
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from tests.temporal.cluster_app import add_line
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import lines

WHERE = ("before", "called", "half", "effect", "reply", "after")

POINTS = {
    "before": Failpoint.WRITER_FLUSHING,
    "called": Failpoint.INTENT_COMMITTED,
    "reply": Failpoint.PROVIDER_ANSWERED,
    "after": Failpoint.ACTIVITY_SETTLED,
}
"""The failpoints of kills within the engine. The first record of the task is its intent."""

WINDOW = 1.2
"""Seconds for which a provider keeps a key, in the cells with a call after this window."""


class DoubtCell:
    """The worker of a cell."""

    def __init__(self, folder: Path, policy: str, provider: str, how: str, where: str) -> None:
        self.folder, self.how, self.where, self.provider = folder, how, where, provider
        self.cancels: Any = None
        app = self.app = App("doubts")
        app.default_retry = RetryPolicy(max_attempts=5, base=0, cap=0)

        @app.action(
            "send",
            irreversible=True,
            on_unknown=OnUnknown(policy),
            timeout=1.0,
            idempotent_provider=provider in ("dedupes", "beyond its window"),
            idempotency_window=WINDOW if provider == "beyond its window" else None,
        )
        async def send(call: Call, task: str) -> str:
            await self._inject_fault(task, "called", "half")
            if provider != "dedupes" or call.key not in lines(folder / "effects"):
                add_line(folder / "effects", call.key)
            await self._inject_fault(task, "effect", "reply")
            return "ref"

        if provider.startswith("reconcilable"):

            @send.reconcile
            async def look(call: Call, task: str) -> Any:
                is_known = call.key in lines(folder / "effects")
                if provider != "reconcilable":
                    return None
                add_line(folder / "looks", "yes" if is_known else "no")
                return Done("ref") if is_known else NoEffect("no")

        @app.workflow("single")
        async def single(ctx: TaskContext) -> str:
            await self._inject_fault(ctx.task_id, "before")
            result: str = await ctx.act(send, task=ctx.task_id)
            await self._inject_fault(ctx.task_id, "after")
            return result

    def take_fault(self) -> bool:
        """Return True at the first call, for a single fault."""
        try:
            (self.folder / "struck").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def arm_kill(self) -> None:
        """Arm a kill of the process if its place is a failpoint of the engine."""
        if self.how == "crash" and self.where in POINTS and not (self.folder / "struck").exists():

            def kill_once() -> None:
                if self.take_fault():
                    kill_process()

            arm(POINTS[self.where], kill_once)

    async def _inject_fault(self, task: str, *places: str) -> None:
        if self.where not in places or (self.how == "crash" and self.where in POINTS) or not self.take_fault():
            return
        match self.how:
            case "crash":
                kill_process()
            case "reset":
                raise ConnectionResetError("the connection is gone")
            case "cancel":
                await self.cancels(task)
        await anyio.sleep_forever()


async def main(address: str, *cell: str) -> None:
    """Work until the process is killed."""
    doubts = DoubtCell(Path.cwd(), *cell)
    doubts.arm_kill()
    settings = TemporalSettings(address=address, task_queue=Path.cwd().name, heartbeat_timeout=1.0, sticky_timeout=1.0)
    async with working(doubts.app, settings) as connection:
        doubts.cancels = TaskClient(connection, doubts.app, settings).cancel
        await anyio.sleep_forever()


if __name__ == "__main__":
    anyio.run(partial(main, *sys.argv[1:]))
