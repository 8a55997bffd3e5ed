"""What blocks the event loop is named in the log, once, with its place, while it does."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest
from structlog.testing import capture_logs

from craftcore import App, TaskContext
from craftcore.engine import blocked_loop
from tests.engine.lab import lab
from tests.processes import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_loop, "BLOCKED_SECONDS", 0.2)
    monkeypatch.setattr(blocked_loop, "ASK_SECONDS", 0.02)


def until_warned(logs: list[Any], count: int = 1) -> None:
    """Block until the log has so many warnings, and long enough for another one."""
    seen = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if len(named("loop.blocked", logs)) >= count:
            seen.wait(0.6)
            return
        seen.wait(0.05)


def watches() -> list[str]:
    """The threads that watch a loop."""
    return [one.name for one in threading.enumerate() if one.name == "craftcore-loop-watch"]


def named(event: str, logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == event]


@pytest.mark.parametrize("where", ["workflow", "step"])
async def test_what_blocks_the_loop_is_told_once_a_block_while_it_blocks(tmp_path, where):
    app, counts = App(), list[int]()

    with capture_logs() as logs:

        async def blocking_call() -> None:
            until_warned(logs, len(counts) + 1)
            counts.append(len(named("loop.blocked", logs)))

        @app.workflow("rude")
        async def rude(ctx: TaskContext) -> None:
            for number in range(2):
                if where == "workflow":
                    await blocking_call()
                else:
                    await ctx.step(f"s{number}", blocking_call)
                answers = len(counts)
                while len(named("loop.answers", logs)) < answers:  # noqa: ASYNC110 - a log has no event to wait on
                    await anyio.sleep(0.01)

        async with lab(app, tmp_path) as it:
            emitted = await app.emit("rude")
            await it.settled(emitted.id)

    assert counts == [1, 2]
    lines = named("loop.blocked", logs)
    assert {(line["log_level"], line["workflow"], line["trigger"]) for line in lines} == {
        ("warning", "rude", emitted.id)
    }
    for line in lines:
        assert any("test_blocked_loop.py" in place and "in blocking_call" in place for place in line["where"]), line
        assert line["seconds"] >= 0.2


async def test_code_of_the_host_that_blocks_the_loop_is_told_without_a_workflow(tmp_path):
    with capture_logs() as logs:
        async with lab(App(), tmp_path) as it:
            await it.until(lambda: len(watches()) == 1)
            until_warned(logs)
            count = len(named("loop.blocked", logs))

    [line] = named("loop.blocked", logs)
    assert (count, line["workflow"], line["trigger"]) == (1, None, None)


async def test_a_loop_that_answers_is_not_told_and_its_thread_ends_with_the_engine(tmp_path):
    app = App()

    @app.workflow("polite")
    async def polite() -> None:
        await anyio.sleep(0.5)

    with capture_logs() as logs:
        async with lab(app, tmp_path) as it:
            await it.settled((await app.emit("polite")).id)
            assert len(watches()) == 1

    assert watches() == []
    assert named("loop.blocked", logs) == []
