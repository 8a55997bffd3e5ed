"""Lives for tests of the resume contract: a warm parent that forks one life for each line of its input.

    python -m tests.crash.contract_lives < {"folder": …, "number": 1, "ends": "boot"} …

The parent answers each line with the exit code of the life. A life boots the database of the previous one, with a clock
that may be hours ahead. It consumes triggers, or is killed before it consumes any.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio

from craftcore import App, Continue, Done, Fail, TaskContext
from craftcore.clock import SystemClock
from craftcore.config import Config, DaemonSettings, RetrySettings, StorageSettings
from craftcore.daemon.lifespan import running
from craftcore.failpoints import kill_process
from tests.crash.child import QUIET, until_idle
from tests.crash.crews import run_life
from tests.crash.forks import fork, prepare_forks, wait
from tests.crash.task_app import PATIENT, EventLog, Recorder
from tests.crash.task_child import PassCounter, TaskLife
from tests.crash.task_outside import Scenario

BOOT = "boot"
"""The end of a life that boots, consumes nothing, and is killed."""

GO = "go"
"""The file that ends the step of each `held` task."""

TURNS = 3
HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ContractLife:
    """A life whose clock is `hours` ahead. `system`: its app has a workflow with the source SYSTEM."""

    folder: Path
    number: int
    ends: str = QUIET
    at_pass: int = 1
    hours: float = 0.0
    system: bool = False


class LaterClock(SystemClock):
    """A clock that is some hours ahead of the machine's, as after a long suspend."""

    def __init__(self, hours: float) -> None:
        super().__init__()
        self._later = hours * HOUR

    def now(self) -> float:
        return super().now() + self._later

    def boot_time(self) -> float:
        return super().boot_time() + self._later


def an_app(recorder: Recorder, counter: PassCounter, folder: Path, *, system: bool) -> App:
    app = App("contract")

    @app.workflow("steady", retry=PATIENT)
    async def steady(ctx: TaskContext) -> Any:
        recorder.enter(ctx)
        count = await recorder.step(ctx, "count", (ctx.state or 0) + 1)
        return Continue(count) if count < TURNS else Done(count)

    @app.workflow("asks", retry=PATIENT)
    async def asks(ctx: TaskContext) -> Any:
        recorder.enter(ctx)
        return await ctx.ask("Go on?", ["yes", "no"], timeout=10_000 * HOUR)

    @app.workflow("held", retry=PATIENT)
    async def held(ctx: TaskContext) -> Any:
        async def hold() -> str:
            counter.pass_step()
            while not (folder / GO).exists():  # noqa: ASYNC110 - a file has no event to wait on
                await anyio.sleep(0.005)
            return "released"

        return await ctx.step("hold", hold)

    @app.workflow("broken", retry=PATIENT)
    async def broken(ctx: TaskContext) -> None:
        raise Fail("BROKEN", "it always fails")

    if system:

        @app.workflow("restarted", sources=("SYSTEM",))
        async def restarted(kind: str, resumed: int, stale: int, tasks: list[str]) -> None:
            recorder.record_effect({"kind": kind, "resumed": resumed, "stale": stale, "tasks": tasks})

    return app


def live(life: ContractLife) -> None:
    """Run a life in this process."""
    folder = life.folder
    task_life = TaskLife(
        folder=folder, number=life.number, scenario=Scenario("", ()), ends=life.ends, at_pass=life.at_pass
    )
    recorder, counter = Recorder(), PassCounter(task_life)
    recorder.attach(EventLog(folder, life.number), counter.pass_step)
    anyio.run(_live, life, an_app(recorder, counter, folder, system=life.system))


async def _live(life: ContractLife, app: App) -> None:
    config = Config(
        daemon=DaemonSettings(concurrency=16, shutdown_grace=60.0),
        retry=RetrySettings(max_attempts=50, base_seconds=0, cap_seconds=0),
        storage=StorageSettings(synchronous="normal"),
    )
    async with running(
        app, life.folder / "agent.db", config, LaterClock(life.hours), paused=life.ends == BOOT
    ) as engine:
        if life.ends == BOOT:
            kill_process()
        await until_idle(engine)


def main() -> None:
    prepare_forks()
    for line in sys.stdin:
        words = json.loads(line)
        life = ContractLife(**{**words, "folder": Path(words["folder"])})
        ended = wait(fork(run_life, life, live), None)
        print(json.dumps({"ended": ended}), flush=True)


def to_line(life: ContractLife) -> str:
    """Return the line of input that starts a life."""
    return json.dumps({**asdict(life), "folder": str(life.folder)}) + "\n"


if __name__ == "__main__":
    main()
