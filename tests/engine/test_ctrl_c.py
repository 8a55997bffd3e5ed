"""Ctrl-C in a host program during a workflow: the program ends, and the workflow does not fail."""

from __future__ import annotations

import signal
from functools import partial
from pathlib import Path
from types import FrameType

import pytest

from craftcore.engine.loop.keyboard_interrupt import is_ctrl_c
from tests.support.engine_harness import look
from tests.support.made_schema import create_schema
from tests.support.processes import run_python

ROOT = Path(__file__).parents[2]

HOST = """
import asyncio, signal, sys
import anyio
from craftcore import App, Route
from craftcore.config import Config, DaemonSettings

class Router:
    async def route(self, trigger, context):
        {router}
        return Route(workflow="interrupted")

app = App(router=Router())
begun = anyio.Event()

def ctrl_c():
    signal.raise_signal(signal.SIGINT)

async def ctrl_c_later():
    await anyio.lowlevel.checkpoint()
    ctrl_c()

@app.workflow("long")
async def long() -> None:
    begun.set()
    await anyio.sleep(600)

@app.workflow("interrupted")
async def interrupted(ctx) -> None:
    await begun.wait()
    {code}
    await anyio.sleep(600)

@app.action("pay", irreversible=True)
async def pay(call) -> None:
    ctrl_c()

async def host():
    async with app.running(sys.argv[1], config=Config(daemon=DaemonSettings(shutdown_grace=600))):
        await app.emit("long")
        await app.emit(None, source="MESSAGE", session_id="s")
        await anyio.sleep(600)

try:
    {run}
except KeyboardInterrupt:
    print("Ctrl-C reached the program")
"""

TRIO = "import trio; trio.run(host)"
ASYNCIO = "asyncio.run(host())"

PLACES = {
    "workflow": "ctrl_c()",
    "step": "await ctx.step('one', ctrl_c_later)",
    "action": "await ctx.act(pay)",
    "nursery": "async with anyio.create_task_group() as group: group.start_soon(ctrl_c_later)",
}


def run_host(path: Path, run: str, code: str, router: str = "pass") -> str:
    """Run a host program to its end and return its output."""
    create_schema(path)
    ended = run_python(["-c", HOST.format(code=code, router=router, run=run), path], ROOT)
    assert ended.code == 0, ended.err
    return ended.out


def epoch_ended_in_order(path: Path) -> bool:
    """Return whether the epoch ended in order without a charged attempt or crash."""
    [epoch] = look(path, "SELECT ended_at IS NOT NULL AS in_order FROM epochs")
    rows = look(path, "SELECT status, attempts, crash_count, error_code FROM triggers")
    given_back = {"status": "PENDING", "attempts": 0, "crash_count": 0, "error_code": None}
    assert rows == [given_back] * 2
    return bool(epoch["in_order"])


@pytest.mark.parametrize("code", PLACES.values(), ids=PLACES)
def test_ctrl_c_on_trio_ends_the_program_and_fails_nothing(tmp_path, code):
    output = run_host(tmp_path / "agent.db", TRIO, code)

    assert output == "Ctrl-C reached the program\n"
    assert epoch_ended_in_order(tmp_path / "agent.db")


def test_ctrl_c_in_a_router_ends_the_program_and_fails_nothing(tmp_path):
    output = run_host(tmp_path / "agent.db", TRIO, "pass", "await begun.wait(); ctrl_c()")

    assert output == "Ctrl-C reached the program\n"
    assert epoch_ended_in_order(tmp_path / "agent.db")


def test_second_ctrl_c_on_asyncio_ends_the_program_and_fails_nothing(tmp_path):
    """The first Ctrl-C only cancels the main task, which waits for running work."""
    output = run_host(tmp_path / "agent.db", ASYNCIO, "ctrl_c(); ctrl_c()")

    assert output == "Ctrl-C reached the program\n"
    assert epoch_ended_in_order(tmp_path / "agent.db")


def raised_by(handler: object) -> BaseException:
    """Return the exception that a signal raises with this SIGINT handler, and whether it counts as Ctrl-C."""
    before = signal.signal(signal.SIGINT, handler)  # type: ignore[arg-type]
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt as error:
        return error if is_ctrl_c(error) else AssertionError("no Ctrl-C")
    finally:
        signal.signal(signal.SIGINT, before)
    raise AssertionError("nothing was raised")


class Host:
    def interrupt(self, task: str, number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt


def test_keyboard_interrupt_counts_as_ctrl_c_only_from_the_signal_handler():
    def handler(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    assert isinstance(raised_by(handler), KeyboardInterrupt)
    assert isinstance(raised_by(partial(Host().interrupt, "main")), KeyboardInterrupt)
    assert isinstance(raised_by(signal.default_int_handler), AssertionError), "a C handler leaves no frame"
    assert not is_ctrl_c(KeyboardInterrupt())
    assert not is_ctrl_c(ValueError())
    assert not is_ctrl_c(BaseExceptionGroup("two", [ValueError(), KeyboardInterrupt()]))
