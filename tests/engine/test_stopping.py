"""Cancellation, timeouts and shutdown of running workflows, threads and claims."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from typing import Any

import anyio
import pytest

from craftcore import App, Route, RoutedTrigger, RoutingContext, TriggerSpec
from craftcore.errors import StorageError
from craftcore.services import Services
from craftcore.storage.doorbell_client import ring
from tests.support.engine_harness import lab, look, settings
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


async def test_cancel_interrupts_a_running_workflow_and_runs_the_finally_block(tmp_path):
    app = App()
    began, cleaned = anyio.Event(), anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            cleaned.set()

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("long")
        await began.wait()
        await app.cancel(emitted.id)
        row = await harness.settled(emitted.id)

        assert cleaned.is_set()
        assert (row["status"], row["reason"], row["error_code"]) == ("DONE", "cancelled", "WORKFLOW_ABORTED")
        assert harness.events(emitted.id)[-4:] == [
            "CANCEL_REQUESTED",
            "AGENT_ATTEMPT_END",
            "ROUTER_DECISION",
            "FINAL_RESPONSE",
        ]


async def test_cancel_of_another_process_stops_a_running_workflow(tmp_path):
    app = App()
    began = anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        began.set()
        await anyio.sleep_forever()

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("long")
        await began.wait()
        other = Services(harness.path, settings())
        with other.transaction() as tx:
            other.triggers.cancel(tx, emitted.id)
        other.close()
        assert ring(harness.path)
        assert (await harness.settled(emitted.id))["reason"] == "cancelled"


async def test_trigger_cancelled_in_the_claim_window_never_starts(tmp_path):
    app = App()
    gate = anyio.Event()
    ran: list[str] = []

    @app.workflow("work")
    async def work(name: str) -> None:
        ran.append(name)
        await gate.wait()

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        first = await app.emit("work", {"name": "first"})
        second = await app.emit("work", {"name": "second"})
        await harness.until(lambda: harness.trigger(second.id)["status"] == "CLAIMED" and ran == ["first"])
        await app.cancel(second.id)
        gate.set()
        await harness.settled(first.id)
        await harness.idle()
        assert ran == ["first"]
        assert harness.trigger(second.id)["attempts"] == 0


async def test_plain_workflow_cancelled_before_the_thread_began_frees_the_place(tmp_path):
    gate = anyio.Event()
    asked = anyio.Event()

    class Slow:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            asked.set()
            await gate.wait()
            return Route(workflow="plain")

    app = App(router=Slow())

    @app.workflow("plain")
    def plain() -> None: ...

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit(None, source="MESSAGE")
        await asked.wait()
        await app.cancel(emitted.id)
        await harness.idle_window()
        gate.set()
        with anyio.fail_after(PATIENCE):
            row = await harness.settled(emitted.id)
        assert row["reason"] == "cancelled"


async def test_result_of_a_shielded_workflow_is_kept_after_a_cancel(tmp_path):
    app = App()
    began, cancelled = anyio.Event(), anyio.Event()

    @app.workflow("ignores_cancel")
    async def ignores_cancel() -> str:
        began.set()
        with anyio.CancelScope(shield=True):
            await cancelled.wait()
        return "finished all the same"

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("ignores_cancel")
        await began.wait()
        await app.cancel(emitted.id)
        await harness.idle_window()
        cancelled.set()
        row = await harness.settled(emitted.id)
        assert (row["status"], row["reason"]) == ("DONE", "succeeded")
        assert row["cancel_requested_at"] is not None


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # user code cannot raise the Cancelled of trio
async def test_workflow_that_raises_cancelled_error_fails_without_harm_to_others(tmp_path):
    app = App()

    @app.workflow("cancels_itself", max_attempts=1)
    async def cancels_itself() -> None:
        raise asyncio.CancelledError

    @app.workflow("next")
    async def after() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        row = await harness.settled((await app.emit("cancels_itself")).id)
        assert (row["status"], row["error_message"]) == ("DEAD", "the workflow cancelled itself")
        assert (await harness.settled((await app.emit("next")).id))["status"] == "DONE"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_workflow_that_cancels_the_asyncio_task_and_returns_stops_no_other(tmp_path):
    app = App()

    @app.workflow("rude")
    async def rude() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @app.workflow("later")
    async def later() -> None: ...

    reached = False
    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path, settings(concurrency=1)) as harness:
            await harness.settled((await app.emit("rude")).id)
            assert (await harness.settled((await app.emit("later")).id))["status"] == "DONE"
            reached = True
    assert reached, "the engine ended and cancelled the block"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_workflow_that_cancelled_the_asyncio_task_does_not_affect_the_next(tmp_path):
    app = App()

    @app.workflow("rude", max_attempts=1)
    async def rude() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        await asyncio.sleep(1)

    @app.workflow("grouped", max_attempts=1)
    async def grouped() -> str:
        async def fail() -> None:
            raise ValueError("x")

        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(fail())
                await asyncio.sleep(1)
        except* ValueError:
            pass
        return "caught"

    reached = False
    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        await harness.settled((await app.emit("rude")).id)
        assert (await harness.settled((await app.emit("grouped")).id))["status"] == "DONE"
        reached = True
    assert reached


async def test_workflow_timeout_ends_the_attempt(tmp_path):
    app = App()

    @app.workflow("hang", timeout=0.05, max_attempts=1)
    async def hang() -> None:
        await anyio.sleep_forever()

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("hang")).id)
        assert (row["status"], row["error_code"]) == ("DEAD", "AGENT_TIMEOUT")
        assert harness.response(row["id"])["error"]["details"] == {"timeout_ms": 50}


async def test_plain_workflow_past_the_timeout_keeps_the_place_until_the_return(tmp_path):
    """A thread cannot be cancelled, so a second attempt must not run at the same time."""
    app = App()
    gate = threading.Event()
    inside = 0

    @app.workflow("unstoppable", timeout=PATIENCE, max_attempts=2)
    def unstoppable() -> None:
        nonlocal inside
        inside += 1
        assert inside == 1, "two attempts ran at once"
        gate.wait(PATIENCE)
        inside -= 1

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("unstoppable")
        await harness.until(lambda: inside == 1)
        harness.end_time()
        await harness.until(lambda: any(run.on_shutdown for run in harness.engine.consumer.running.values()))
        assert harness.trigger(emitted.id)["status"] == "CLAIMED"
        app._workflows["unstoppable"] = replace(
            app.workflows["unstoppable"], timeout=None
        )  # the second attempt may be slow to begin
        gate.set()
        row = await harness.settled(emitted.id)
        assert (row["status"], row["attempts"]) == ("DONE", 2)
        codes = harness.rows("SELECT error_code FROM executions ORDER BY seq")
        assert codes == [{"error_code": "AGENT_TIMEOUT"}, {"error_code": None}]


async def test_stop_lets_running_work_finish_and_releases_unstarted_claims(tmp_path):
    app = App()
    began, gate = anyio.Event(), anyio.Event()

    @app.workflow("work")
    async def work() -> str:
        began.set()
        await gate.wait()
        return "done"

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        await app.emit_many([TriggerSpec(workflow="work") for _ in range(5)])
        await began.wait()
        harness.engine.stop()
        gate.set()
    rows = look(harness.path, "SELECT status, attempts, crash_count FROM triggers ORDER BY seq")
    assert rows == [
        {"status": "DONE", "attempts": 1, "crash_count": 0},
        *[{"status": "PENDING", "attempts": 0, "crash_count": 0}] * 4,
    ]
    assert look(harness.path, "SELECT ended_at IS NOT NULL AS ended FROM epochs") == [{"ended": 1}]


async def test_workflow_past_the_shutdown_grace_is_cancelled_with_attempt_refunded(tmp_path):
    app = App()
    began = anyio.Event()
    cleaned: list[str] = []

    @app.workflow("long")
    async def long() -> None:
        try:
            began.set()
            await anyio.sleep_forever()
        finally:
            cleaned.append("up")

    async with lab(app, tmp_path, settings(shutdown_grace=0.05)) as harness:
        emitted = await app.emit("long")
        await began.wait()
    [row] = look(harness.path, "SELECT status, attempts, reason FROM triggers")
    assert row == {"status": "PENDING", "attempts": 0, "reason": "shutdown"}
    assert cleaned == ["up"]
    [record] = look(harness.path, "SELECT status, ended_at IS NOT NULL AS ended FROM executions")
    assert record == {"status": "incomplete", "ended": 1}
    again = lab(app, tmp_path)
    began = anyio.Event()
    async with again as harness:
        await began.wait()
        assert harness.trigger(emitted.id)["attempts"] == 1
        await app.cancel(emitted.id)
        await harness.settled(emitted.id)


async def test_cancel_during_the_drain_stops_the_workflow_at_once(tmp_path):
    app = App()
    started = anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        started.set()
        await anyio.sleep_forever()

    began = anyio.current_time()
    async with lab(app, tmp_path, settings(shutdown_grace=2 * PATIENCE)) as harness:
        emitted = await app.emit("long")
        await started.wait()
        await harness.idle_window()
        harness.engine.stop()
        await anyio.sleep(0.05)
        await harness.engine.client.cancel(emitted.id)
    assert anyio.current_time() - began < PATIENCE
    assert harness.trigger(emitted.id)["reason"] == "cancelled"


async def test_second_stop_signal_skips_the_shutdown_grace(tmp_path):
    app = App()
    began = anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        began.set()
        await anyio.sleep_forever()

    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path, settings(shutdown_grace=3600.0)) as harness:
            await app.emit("long")
            await began.wait()
            harness.engine.stop()
            harness.engine.stop_now()
    assert look(harness.path, "SELECT status FROM triggers") == [{"status": "PENDING"}]


async def test_trigger_being_started_during_a_hurried_stop_is_released_and_never_runs(tmp_path):
    """The commit of the start is in progress when all running work is stopped."""
    app = App()
    opened, stopped = anyio.Event(), anyio.Event()
    began: list[str] = []
    gate = threading.Event()

    @app.workflow("short")
    async def short() -> None:
        began.append("short")
        await opened.wait()

    @app.workflow("long")
    async def long() -> None:
        began.append("long")
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    @app.workflow("late")
    async def late() -> None:
        began.append("late")
        await anyio.sleep_forever()

    config = settings(concurrency=2, shutdown_grace=3600.0)
    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path, config) as harness, anyio.create_task_group() as tasks:
            await app.emit("short")
            await app.emit("long")
            late_emitted = await app.emit("late")
            await harness.until(lambda: len(began) == 2)
            tasks.start_soon(harness.engine.writer.commit, lambda _tx: gate.wait(2 * PATIENCE))
            opened.set()
            consumer = harness.engine.consumer
            await harness.until(lambda: any(claim.seq not in consumer.running for claim in consumer.held_claims()))
            harness.engine.stop_now()
            await stopped.wait()
            gate.set()
    assert sorted(began) == ["long", "short"]
    [row] = look(harness.path, "SELECT status, attempts, reason FROM triggers WHERE id = :id", id=late_emitted.id)
    assert row == {"status": "PENDING", "attempts": 0, "reason": "shutdown"}


async def test_thread_that_does_not_return_does_not_delay_shutdown(tmp_path):
    app = App()
    gate = threading.Event()
    began = threading.Event()

    @app.workflow("unstoppable")
    def unstoppable() -> Any:
        began.set()
        gate.wait(2 * PATIENCE)

    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
            await app.emit("unstoppable")
            await harness.until(began.is_set)
    assert look(harness.path, "SELECT status, reason FROM triggers") == [{"status": "PENDING", "reason": "shutdown"}]
    gate.set()


@pytest.mark.parametrize("end", ["fatal", "cancelled", "timeout"])
async def test_plain_workflow_that_does_not_return_does_not_delay_shutdown(tmp_path, end, monkeypatch):
    monkeypatch.setattr("craftcore.engine.engine.DRAIN_SECONDS", 0.2)
    app = App()
    inside, proceed = threading.Event(), threading.Event()

    @app.workflow("plain", timeout=0.05 if end == "timeout" else None)
    def plain() -> None:
        inside.set()
        proceed.wait(2 * PATIENCE)

    began = anyio.current_time()
    try:
        async with lab(app, tmp_path, settings(shutdown_grace=0.1)) as harness:
            emitted = await app.emit("plain")
            await anyio.to_thread.run_sync(inside.wait)
            if end == "cancelled":
                await app.cancel(emitted.id)
                await harness.idle_window()
            elif end == "timeout":
                await anyio.sleep(0.2)
            else:
                harness.engine.fail(StorageError("the disk is gone"))
    except StorageError:
        assert end == "fatal"
    finally:
        took = anyio.current_time() - began
        proceed.set()
    assert took < PATIENCE
