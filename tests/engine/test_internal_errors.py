"""Errors during error handling: a failing log, faults in the claim window, and faults during the drain."""

from __future__ import annotations

import logging
import math
from types import FunctionType
from typing import Any, cast

import anyio
import pytest
import structlog

from craftcore import App, Continue, Done, TaskContext, TriggerSpec
from craftcore.daemon.lifespan import running
from craftcore.engine.attempt_commits import AttemptBatches
from craftcore.engine.consumer import Consumer
from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.exclusive_run import ExclusiveRun
from craftcore.engine.faults import fault
from craftcore.engine.runner import Fallback
from craftcore.engine.turn.stall_watch import StallWatch
from craftcore.errors import EngineCrashed, ErrorCode, RowInvalid, WriterDied
from craftcore.triggers.claim_service import ClaimService
from tests.support.engine_harness import lab, look, settings
from tests.support.faults import Fault, Injected
from tests.support.log_capture import capture_logs
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


@pytest.fixture
def broken_log() -> None:
    """Replace the log of the program by one that raises for every line, in structlog and in the standard library."""

    def refuse(*_: Any) -> Any:
        raise ValueError("no such field")

    class Refusing(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            refuse(record)

    structlog.configure(processors=[refuse])
    logging.getLogger().addHandler(Refusing())


def build_app() -> App:
    app = App()

    @app.workflow("healthy")
    async def healthy() -> None: ...

    return app


@pytest.mark.usefixtures("broken_log")
async def test_engine_fault_fails_only_the_trigger_when_the_log_raises(tmp_path):
    with Fault(cast(FunctionType, Fallback.run), "bad", math.inf).installed() as injected:
        async with lab(build_app(), tmp_path) as harness:
            injected.armed = True
            await harness.engine.client.emit_many([TriggerSpec(workflow="healthy", id=id) for id in ("bad", "good")])
            bad, good = await harness.settled("bad"), await harness.settled("good")

    assert (bad["status"], bad["error_code"]) == ("FAILED", "INTERNAL_AGENT_ERROR")
    assert good["status"] == "DONE"


async def test_engine_fault_in_the_claim_window_frees_the_lane(tmp_path):
    """The triggers behind the failing one in its session continue."""
    with Fault(cast(FunctionType, ClaimService.rank), "bad", math.inf).installed() as injected:
        async with lab(build_app(), tmp_path) as harness:
            injected.armed = True
            await harness.engine.client.emit_many(
                [TriggerSpec(workflow="healthy", id=id, session_id="ada") for id in ("bad", "behind")]
            )
            bad, behind = await harness.settled("bad"), await harness.settled("behind")

    assert (bad["status"], bad["attempts"]) == ("FAILED", 0)
    assert behind["status"] == "DONE"


@pytest.mark.parametrize("step", [DurableCommits.commit, AttemptBatches._settle_together])
async def test_engine_fault_after_a_commit_loses_no_committed_work(tmp_path, step):
    """The start, or the settle with the next turn, is on disk, and its answer is lost. The engine reads the state at
    once."""
    app = build_app()

    @app.workflow("chat")
    async def chat(ctx: TaskContext[int]) -> Any:
        return Continue(1) if ctx.turn == 1 else Done("done")

    with Fault(cast(FunctionType, step), "bad", 1, "after").installed() as injected:
        async with lab(app, tmp_path) as harness:
            injected.armed = True
            await harness.engine.client.emit_many(
                [TriggerSpec(workflow="chat", id="bad"), TriggerSpec(workflow="healthy", id="good")]
            )
            good, task = await harness.settled("good"), await harness.ended("bad")

    assert injected.raised == 1
    assert (good["status"], task["status"], task["turn"]) == ("DONE", "DONE", 2)


@pytest.mark.usefixtures("broken_log")
async def test_crash_leaves_the_epoch_open_when_the_log_raises(tmp_path):
    app, begun = App(), anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        begun.set()
        await anyio.sleep_forever()

    path = tmp_path / "agent.db"
    with anyio.fail_after(PATIENCE), pytest.raises(EngineCrashed):
        async with running(app, path, settings(shutdown_grace=0)) as engine:
            await app.emit("long")
            await begun.wait()
            engine.crash("crashed by a test")
            await anyio.sleep_forever()

    assert look(path, "SELECT ended_at FROM epochs") == [{"ended_at": None}]
    assert look(path, "SELECT status, attempts FROM triggers") == [{"status": "CLAIMED", "attempts": 1}]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), GeneratorExit(), WriterDied("EIO")])
async def test_error_that_ends_the_engine_is_raised_and_not_charged_to_a_trigger(error):
    with pytest.raises(type(error)) as raised:
        fault(error, "run")

    assert raised.value is error


async def test_cancellation_is_raised_and_not_charged_to_a_trigger():
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await anyio.sleep_forever()
        except BaseException as error:
            fault(error, "run")

    assert scope.cancelled_caught


@pytest.mark.parametrize("error", [RowInvalid("CHECK"), MemoryError(), SystemExit(3), ValueError("no")])
async def test_engine_fault_fails_the_trigger_without_a_retry(error):
    failed = fault(error, "run")

    assert (failed.code, failed.retryable) == (ErrorCode.INTERNAL_AGENT_ERROR, False)
    assert type(error).__name__ in failed.message


@pytest.mark.parametrize("step", [AttemptBatches.settle, Consumer._after_settle])
async def test_engine_fault_during_the_drain_ends_the_stop_at_once_and_is_logged(tmp_path, step):
    """The fault ended a task that the drain waited for. The stop must not take the whole grace in silence."""
    app, begun, gate = App(), anyio.Event(), anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        begun.set()
        await anyio.sleep_forever()

    @app.workflow("ends")
    async def ends() -> None:
        await gate.wait()

    path = tmp_path / "agent.db"
    with capture_logs() as logs, Fault(cast(FunctionType, step), "bad", math.inf).installed() as injected:
        with anyio.fail_after(PATIENCE), pytest.raises(EngineCrashed) as crashed:
            async with running(app, path, settings(shutdown_grace=100 * PATIENCE)) as engine:
                await engine.client.emit_many([TriggerSpec(workflow="long"), TriggerSpec(workflow="ends", id="bad")])
                await begun.wait()
                while engine.running < 2:  # noqa: ASYNC110 - a start has no event to wait on
                    await anyio.sleep(0.002)
                injected.armed = True
                engine.stop()
                gate.set()

    assert injected.raised == 1
    assert (crashed.value.exit_code, "Injected: injected before" in crashed.value.message) == (70, True)
    [line] = [line for line in logs if line["event"] == "engine.crashed"]
    assert (line["log_level"], type(line["exc_info"])) == ("critical", Injected)
    assert [place for place in line["where"] if "in _raise" in place]
    assert look(path, "SELECT ended_at FROM epochs") == [{"ended_at": None}]


async def test_engine_fault_at_the_drain_end_crashes_and_further_faults_are_logged(tmp_path, monkeypatch):
    """Two tasks of the engine fail when they are cancelled, after everything was settled."""

    async def fails_at_its_end(_: object) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            raise Injected("at the end")

    monkeypatch.setattr(ExclusiveRun, "watch", fails_at_its_end)
    monkeypatch.setattr(StallWatch, "watch", fails_at_its_end)
    app = build_app()
    with capture_logs() as logs, anyio.fail_after(PATIENCE), pytest.raises(EngineCrashed):
        async with running(app, tmp_path / "agent.db", settings()) as engine:
            await app.emit("healthy")
            await engine.wait_for_settle()

    lines = [line for line in logs if line["event"] in ("engine.crashed", "engine.further_error")]
    assert [line["event"] for line in lines] == ["engine.crashed", "engine.further_error"]
    for line in lines:
        assert "in fails_at_its_end" in line["where"][-1]
        assert type(line["exc_info"]) is Injected
