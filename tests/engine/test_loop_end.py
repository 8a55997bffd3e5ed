"""Event loops that end under the engine: a crash if a workflow ends the loop, no crash if the host does."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from craftcore import App
from craftcore.daemon.lifespan import running
from craftcore.engine.loop.loop_end import LoopEnd, loop_end
from craftcore.errors import EngineCrashed
from tests.support.engine_harness import look, settings
from tests.support.made_schema import create_schema
from tests.support.processes import PATIENCE
from tests.support.warm_parent import ROOT, start

HOST = """
import asyncio, sys
from craftcore import App
from craftcore.config import Config, DaemonSettings

app = App("host")
running = asyncio.Event()

@app.workflow("long")
async def long() -> None:
    running.set()
    await asyncio.sleep(600)

@app.workflow("ends")
async def ends() -> None:
    await running.wait()
    {code}
    await asyncio.sleep(600)

async def engine():
    async with app.running(sys.argv[1], config=Config(daemon=DaemonSettings(shutdown_grace=0))):
        await app.emit("long")
        if {emits!r}:
            await app.emit("ends")
        await asyncio.sleep(600)

async def host():
    {host}

asyncio.run(host())
"""

IN_MAIN = "await engine()"
IN_TASK = "task = asyncio.create_task(engine()); await running.wait(); await asyncio.sleep(600)"


def run_host(path: Path, host: str, code: str = "") -> str:
    """Run a host program that ends its event loop, and return its standard error."""
    create_schema(path)
    program = HOST.format(host=host, code=code or "pass", emits=bool(code))
    with start(["-c", program, path], cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as child:
        _, errors = child.communicate(timeout=PATIENCE)
    return errors.decode()


def epoch_end(path: Path) -> tuple[bool, dict[str, int]]:
    """Return whether the epoch ended in order, and the charged attempts of each workflow."""
    [epoch] = look(path, "SELECT ended_at IS NOT NULL AS in_order FROM epochs")
    rows = look(path, "SELECT workflow, attempts FROM triggers")
    return bool(epoch["in_order"]), {row["workflow"]: row["attempts"] for row in rows}


CANCELS_ALL = "[task.cancel() for task in asyncio.all_tasks()]"
SIDE = "async def side():\n        {}\n    asyncio.create_task(side())"
ENDS = {
    "SystemExit in a side task": SIDE.format("raise SystemExit(3)"),
    "KeyboardInterrupt in a side task": SIDE.format("raise KeyboardInterrupt"),
    "loop.stop()": "asyncio.get_running_loop().stop()",
    "loop.stop() in a side task": SIDE.format("asyncio.get_running_loop().stop()"),
    "cancel all": CANCELS_ALL,
    "cancel all in a side task": SIDE.format(CANCELS_ALL),
}


@pytest.mark.parametrize("host", [IN_MAIN, IN_TASK], ids=["in main", "in a task"])
@pytest.mark.parametrize("code", ENDS.values(), ids=ENDS)
def test_workflow_that_ends_the_event_loop_is_a_crash_of_all_running_triggers(tmp_path, host, code):
    path = tmp_path / "agent.db"

    errors = run_host(path, host, code)

    assert epoch_end(path) == (False, {"long": 1, "ends": 1})
    assert "ended without being asked to" in errors


HOSTS = {
    "main is cancelled": "asyncio.get_running_loop().call_later(0.1, asyncio.current_task().cancel); await engine()",
    "its task is cancelled": "task = asyncio.create_task(engine()); await running.wait(); task.cancel(); await task",
    "main returns while the engine runs": "task = asyncio.create_task(engine()); await running.wait()",
    "main fails while the engine runs": "task = asyncio.create_task(engine()); await running.wait(); raise OSError",
    "the host cancels every task": f"task = asyncio.create_task(engine()); await running.wait(); {CANCELS_ALL}",
    "its block fails": "task = asyncio.create_task(engine()); await running.wait(); task.cancel('stop'); await task",
}


@pytest.mark.parametrize("host", HOSTS.values(), ids=HOSTS)
def test_host_that_ends_the_program_is_not_a_crash_and_refunds_attempts(tmp_path, host):
    path = tmp_path / "agent.db"

    errors = run_host(path, host)

    in_order, attempts = epoch_end(path)
    assert in_order, errors
    assert attempts.get("long", 0) == 0


@pytest.mark.anyio
async def test_engine_cancelled_by_a_scope_ends_in_order(tmp_path):
    """The test runs on asyncio and on trio."""
    app = App()
    begun = anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        begun.set()
        await anyio.sleep_forever()

    path = tmp_path / "agent.db"
    async with anyio.create_task_group() as host:

        async def engine() -> None:
            async with running(app, path, settings(shutdown_grace=0)):
                await app.emit("long")
                await anyio.sleep_forever()

        host.start_soon(engine)
        await begun.wait()
        host.cancel_scope.cancel()

    assert epoch_end(path) == (True, {"long": 0})


def test_crash_error_names_the_workflow_that_cancelled_every_task(tmp_path):
    app = App()
    outcome: list[Any] = []

    @app.workflow("cancels_all")
    async def cancels_all() -> None:
        for task in asyncio.all_tasks():
            task.cancel()
        await anyio.sleep_forever()

    async def main() -> None:
        try:
            async with running(app, tmp_path / "agent.db", settings()):
                outcome.append(await app.emit("cancels_all"))
                await anyio.sleep_forever()
        except BaseException as error:
            outcome.append(error)

    asyncio.run(main())

    emitted, error = outcome
    assert isinstance(error, EngineCrashed)
    assert error.exit_code == 70
    assert f"cancels_all ({emitted.id}) cancelled every task of the event loop" in error.message
    assert error.details["running"] == [emitted.id]


def waiting_tasks() -> list[str]:
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name() == "craftcore-loop-end"]


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_loop_end_cancelled_before_the_wait_leaves_no_task_behind():
    async def engine() -> None:
        async with loop_end(lambda _: None):
            await asyncio.sleep(600)

    task = asyncio.create_task(engine())
    await asyncio.sleep(0)  # the task is now in the first wait of loop_end
    assert waiting_tasks() == ["craftcore-loop-end"]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)

    assert waiting_tasks() == []


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_loop_end_callback_error_goes_to_the_handler_and_allows_cancellation():
    def breaks(_: LoopEnd) -> None:
        raise OSError("the log is gone")

    errors: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(context))
    async with loop_end(breaks):
        [task] = [task for task in asyncio.all_tasks() if task.get_name() == "craftcore-loop-end"]
        assert task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    assert [str(context["exception"]) for context in errors] == ["the log is gone"]


@pytest.mark.anyio
@pytest.mark.parametrize(
    "look_at",
    [lambda: asyncio.all_tasks(), lambda: [task for task in asyncio.all_tasks() if task.get_name() == "absent"]],
)
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_workflow_that_lists_tasks_or_cancels_a_subtask_is_not_a_crash(tmp_path, look_at: Callable[[], Any]):
    app = App()

    @app.workflow("fine")
    async def fine() -> int:
        look_at()
        subtask = asyncio.create_task(asyncio.sleep(600))
        await asyncio.sleep(0)
        subtask.cancel()
        return 1

    async with running(app, tmp_path / "agent.db", settings()) as engine:
        await app.emit("fine")
        await engine.wait_for_settle()

    assert epoch_end(tmp_path / "agent.db") == (True, {"fine": 1})
