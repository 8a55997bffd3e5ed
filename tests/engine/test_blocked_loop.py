"""Warnings about workflow code that blocks the event loop, with the place of the blocking call."""

from __future__ import annotations

import threading
from typing import Any

import anyio
import pytest

from craftcore import App, TaskContext
from craftcore.engine.loop import blocked_loop
from tests.support.engine_harness import lab
from tests.support.log_capture import capture_logs
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocked_loop, "BLOCKED_SECONDS", 0.2)
    monkeypatch.setattr(blocked_loop, "ASK_SECONDS", 0.02)
    monkeypatch.setattr(blocked_loop, "REPORT_SECONDS", 0.0)


def until_warned(logs: list[Any], count: int = 1) -> None:
    """Block until the log has the given number of warnings, and long enough for one more."""
    seen = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if len(events_of("loop.blocked", logs)) >= count:
            seen.wait(0.6)
            return
        seen.wait(0.05)


def watchdog_threads() -> list[str]:
    """Return the names of the threads that watch a loop."""
    return [one.name for one in threading.enumerate() if one.name == "craftcore-loop-watch"]


def events_of(event: str, logs: list[Any]) -> list[Any]:
    return [line for line in logs if line["event"] == event]


@pytest.mark.parametrize("where", ["workflow", "step"])
async def test_blocked_loop_is_logged_once_for_each_block_while_blocked(tmp_path, where):
    app, counts = App(), list[int]()

    with capture_logs() as logs:

        async def blocking_call() -> None:
            until_warned(logs, len(counts) + 1)
            counts.append(len(events_of("loop.blocked", logs)))

        @app.workflow("blocking")
        async def blocking(ctx: TaskContext) -> None:
            for number in range(2):
                if where == "workflow":
                    await blocking_call()
                else:
                    await ctx.step(f"s{number}", blocking_call)
                answers = len(counts)
                while len(events_of("loop.answers", logs)) < answers:  # noqa: ASYNC110 - a log has no event to wait on
                    await anyio.sleep(0.01)

        async with lab(app, tmp_path) as harness:
            emitted = await app.emit("blocking")
            await harness.settled(emitted.id)

    assert counts == [1, 2]
    lines = events_of("loop.blocked", logs)
    assert {(line["log_level"], line["workflow"], line["trigger"]) for line in lines} == {
        ("warning", "blocking", emitted.id)
    }
    for line in lines:
        assert any("test_blocked_loop.py" in place and "in blocking_call" in place for place in line["where"]), line
        assert line["seconds"] >= 0.2


async def test_blocked_loop_soon_after_a_report_is_only_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(blocked_loop, "REPORT_SECONDS", 10 * PATIENCE)
    seen = threading.Event()

    with capture_logs() as logs:
        async with lab(App(), tmp_path) as harness:
            await harness.until(lambda: len(watchdog_threads()) == 1)
            until_warned(logs)
            await harness.until(lambda: len(events_of("loop.answers", logs)) == 1)
            seen.wait(2.0)
            count = len(events_of("loop.blocked", logs))
            await anyio.sleep(0.1)
            monkeypatch.setattr(blocked_loop, "REPORT_SECONDS", 0.0)
            until_warned(logs, 2)

    assert count == 1
    assert [line["unreported"] for line in events_of("loop.blocked", logs)] == [0, 1]


async def test_blocked_loop_by_host_code_is_logged_without_a_workflow(tmp_path):
    with capture_logs() as logs:
        async with lab(App(), tmp_path) as harness:
            await harness.until(lambda: len(watchdog_threads()) == 1)
            until_warned(logs)
            count = len(events_of("loop.blocked", logs))

    [line] = events_of("loop.blocked", logs)
    assert (count, line["workflow"], line["trigger"]) == (1, None, None)


async def test_responsive_loop_logs_nothing_and_the_watch_thread_ends_with_the_engine(tmp_path, monkeypatch):
    """A busy machine may hold up the loop as well, so it has long to answer."""
    monkeypatch.setattr(blocked_loop, "BLOCKED_SECONDS", PATIENCE)
    app, answers = App(), list[int]()
    answer = blocked_loop._Watch._answer

    def note(self: blocked_loop._Watch) -> None:
        answers.append(len(answers))
        answer(self)

    monkeypatch.setattr(blocked_loop._Watch, "_answer", note)

    @app.workflow("yielding")
    async def yielding() -> None:
        while len(answers) < 10:  # noqa: ASYNC110 - a thread asks for them
            await anyio.sleep(0.01)

    with capture_logs() as logs:
        async with lab(app, tmp_path) as harness:
            await harness.settled((await app.emit("yielding")).id)
            assert len(watchdog_threads()) == 1

    assert watchdog_threads() == []
    assert events_of("loop.blocked", logs) == []


@pytest.mark.parametrize("timeout", [0.3, None])
async def test_blocked_loop_by_a_child_task_past_the_timeout_fails_the_attempt(tmp_path, timeout):
    """The engine finds the child task by its context. The workflow only waits, and ends once the loop is free."""
    app, counts = App(), list[int]()

    with capture_logs() as logs:

        async def child() -> None:
            until_warned(logs)
            counts.append(1)

        @app.workflow("blocking", timeout=timeout, max_attempts=1)
        async def blocking() -> str:
            async with anyio.create_task_group() as group:
                group.start_soon(child)
            return "ended"

        async with lab(app, tmp_path) as harness:
            row = await harness.settled((await app.emit("blocking")).id)

    [line] = events_of("loop.blocked", logs)
    assert (line["workflow"], line["trigger"], counts) == ("blocking", row["id"], [1])
    if timeout is None:
        assert row["status"] == "DONE"
    else:
        message = "blocking did not end within 0.3 s: it blocked the event loop"
        assert (row["status"], row["error_code"], row["error_message"]) == ("DEAD", "AGENT_TIMEOUT", message)


async def test_waiting_workflow_does_not_time_out_while_another_blocks_the_loop(tmp_path):
    app, begun, over = App(), anyio.Event(), anyio.Event()

    with capture_logs() as logs:

        async def child() -> None:
            await begun.wait()
            until_warned(logs)
            over.set()

        @app.workflow("blocking")
        async def blocking() -> None:
            async with anyio.create_task_group() as group:
                group.start_soon(child)

        @app.workflow("waiting", timeout=0.3, max_attempts=1)
        async def waiting() -> None:
            begun.set()
            with anyio.CancelScope(shield=True):
                await over.wait()

        async with lab(app, tmp_path) as harness:
            await app.emit("blocking")
            row = await harness.settled((await app.emit("waiting")).id)

    assert row["status"] == "DONE"
