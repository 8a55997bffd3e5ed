"""Bugs that were hunted down, one test each."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import anyio.lowlevel
import msgspec
import pytest

from craftcore import App, Fail, Route, RoutedTrigger, RoutingContext, TriggerSpec
from craftcore.errors import ConfigInvalid, InvalidInput, StorageError
from craftcore.producer import Producer
from craftcore.services import Services
from tests.support.engine_harness import lab, settings
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


# Lost wake-ups


async def test_claim_window_emptied_during_a_poll_is_filled_again(tmp_path):
    """A look at a full window brings only what is urgent. trio may answer the start in the same batch before the look:
    then the window is empty and nothing starts any more, so the feeder itself must look again."""
    app = App()
    gates: list[anyio.Event] = []

    @app.workflow("wait")
    async def wait(n: int) -> None:
        await gates[n].wait()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=1 + 1, claim_batch=1)) as it:
        core = Services(it.path, settings())
        engine = it.engine
        done = 0
        for _ in range(12):
            gates.extend([anyio.Event(), anyio.Event()])
            for n in (len(gates) - 2, len(gates) - 1):
                await app.emit("wait", {"n": n})
            await it.until(lambda: engine.running == 2)
            await app.emit("quick")
            await it.until(lambda: len(engine._queue) == 1)
            await it.idle_window()
            await anyio.sleep(0.01)
            with core.transaction() as tx:
                core.triggers.emit(tx, TriggerSpec(workflow="quick"))  # by another process; its bell comes now:
            inside, go_on = threading.Event(), threading.Event()

            def hold(_tx: Any, inside: threading.Event = inside, go_on: threading.Event = go_on) -> None:
                inside.set()
                go_on.wait(PATIENCE)

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(engine.writer.commit, hold)
                await anyio.to_thread.run_sync(inside.wait)
                engine.feeder.ring()
                await anyio.sleep(0.005)  # the look waits for the writer
                gates[-1].set()
                await it.until(lambda: len(engine.consumer._starting) == 1)  # and the start behind it
                go_on.set()
            with anyio.fail_after(PATIENCE):
                while engine.counts["DONE"] < done + 3:  # noqa: ASYNC110
                    await anyio.sleep(0.002)
            gates[-2].set()
            done += 4
            await it.until(lambda done=done: engine.counts["DONE"] == done)  # type: ignore[misc]
        core.close()


@pytest.mark.parametrize("seed", range(8))
async def test_engine_with_small_claim_windows_never_stalls(tmp_path, seed):
    app = App()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path, settings(concurrency=1 + seed % 3, claim_batch=1 + seed % 2)) as it:
        total = 0
        for n in range(60):
            await app.emit("quick")
            total += 1
            if n % 7 == seed % 7:
                with anyio.fail_after(PATIENCE):
                    while it.engine.counts["DONE"] < total:  # noqa: ASYNC110
                        await anyio.sleep(0.001)
        with anyio.fail_after(PATIENCE):
            while it.engine.counts["DONE"] < total:  # noqa: ASYNC110
                await anyio.sleep(0.001)


async def test_feeder_wakes_for_a_due_time_reported_during_a_running_poll(tmp_path):
    """trio runs who was woken together in any order; the last look's next due time may be past by then."""
    app = App()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as it:
        feeder = it.engine.feeder
        await it.idle_window()
        await anyio.sleep(0.05)
        feeder._next_due = feeder._clock.now() + 0.01  # as the look before found it
        inside, go_on = threading.Event(), threading.Event()

        def hold(_tx: Any) -> None:
            inside.set()
            go_on.wait(PATIENCE)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(it.engine.writer.commit, hold)
            await anyio.to_thread.run_sync(inside.wait)
            feeder.ring()  # a look is on its way
            await anyio.sleep(0.05)
            feeder.notify_due(feeder._clock.now() + 0.2)  # as the emitter does, answered before the feeder
            assert feeder._rung.is_set()
            go_on.set()


async def test_lane_left_by_a_routed_trigger_goes_on_at_once(tmp_path):
    """The router moves a trigger of session a to session b, where it stays long; session a need not wait for that."""
    gate = anyio.Event()

    class ToB:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            return Route(workflow="long", session_id="b")

    app = App(router=ToB())

    @app.workflow("long")
    async def long() -> None:
        await gate.wait()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as it:
        await app.emit_many(
            [
                TriggerSpec(workflow=None, source="MESSAGE", session_id="a"),
                TriggerSpec(workflow="quick", source="MESSAGE", session_id="a"),
            ]
        )
        try:
            with anyio.fail_after(PATIENCE):
                while it.engine.counts["DONE"] < 1:  # noqa: ASYNC110
                    await anyio.sleep(0.005)
        finally:
            gate.set()


async def test_cancel_during_the_drain_stops_the_workflow_at_once(tmp_path):
    app = App()
    started = anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        started.set()
        await anyio.sleep_forever()

    began = anyio.current_time()
    async with lab(app, tmp_path, settings(shutdown_grace=2 * PATIENCE)) as it:
        emitted = await app.emit("long")
        await started.wait()
        await it.idle_window()
        it.engine.stop()
        await anyio.sleep(0.05)
        await it.engine.requests.cancel(emitted.id)
    assert anyio.current_time() - began < PATIENCE
    assert it.trigger(emitted.id)["reason"] == "cancelled"


# Two claims of one row


async def test_trigger_replaced_in_the_claim_window_starts_once(tmp_path):
    """The window holds the old claim beside the new one; both come to their start in one batch."""
    app = App()
    gate = anyio.Event()
    seen: list[int] = []

    @app.workflow("wait")
    async def wait() -> None:
        await gate.wait()

    @app.workflow("note")
    async def note(n: int) -> None:
        seen.append(n)

    async with lab(app, tmp_path, settings(concurrency=2)) as it:
        await app.emit_many([TriggerSpec(workflow="wait"), TriggerSpec(workflow="wait")])
        await it.until(lambda: it.engine.running == 2)
        first = await app.emit("note", {"n": 1}, dedup_key="k")
        await it.until(lambda: len(it.engine._queue) == 1)
        again = await app.emit("note", {"n": 2}, dedup_key="k", on_duplicate="replace")
        assert again.id == first.id
        await it.until(lambda: len(it.engine._queue) == 2)
        gate.set()
        await it.settled(first.id)
        await it.idle()
        assert seen == [2]
        assert it.engine.consumer.slots.taken == 0
        assert it.rows("SELECT count(*) AS n FROM executions WHERE trigger_id = :id", id=first.id) == [{"n": 1}]


# The border to user code


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

    async with lab(app, tmp_path) as it:
        emitted = await app.emit(None, source="MESSAGE")
        await asked.wait()
        await app.cancel(emitted.id)
        await it.idle_window()
        gate.set()
        with anyio.fail_after(PATIENCE):
            row = await it.settled(emitted.id)
        assert row["reason"] == "cancelled"


@pytest.mark.parametrize("end", ["fatal", "cancelled", "timeout"])
async def test_plain_workflow_that_does_not_return_does_not_delay_shutdown(tmp_path, end, monkeypatch):
    monkeypatch.setattr("craftcore.engine.engine.DRAIN_SECONDS", 0.2)
    app = App()
    inside, go_on = threading.Event(), threading.Event()

    @app.workflow("plain", timeout=0.05 if end == "timeout" else None)
    def plain() -> None:
        inside.set()
        go_on.wait(2 * PATIENCE)

    began = anyio.current_time()
    try:
        async with lab(app, tmp_path, settings(shutdown_grace=0.1)) as it:
            emitted = await app.emit("plain")
            await anyio.to_thread.run_sync(inside.wait)
            if end == "cancelled":
                await app.cancel(emitted.id)
                await it.idle_window()
            elif end == "timeout":
                await anyio.sleep(0.2)
            else:
                it.engine.fail(StorageError("the disk is gone"))
    except StorageError:
        assert end == "fatal"
    finally:
        took = anyio.current_time() - began
        go_on.set()
    assert took < PATIENCE


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_workflow_that_cancels_the_asyncio_task_and_returns_stops_no_other(tmp_path):
    app = App()

    @app.workflow("rude")
    async def rude() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()

    @app.workflow("polite")
    async def polite() -> None: ...

    reached = False
    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path, settings(concurrency=1)) as it:
            await it.settled((await app.emit("rude")).id)
            assert (await it.settled((await app.emit("polite")).id))["status"] == "DONE"
            reached = True
    assert reached, "the engine ended by itself, and took the block with it"


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
    async with lab(app, tmp_path, settings(concurrency=1)) as it:
        await it.settled((await app.emit("rude")).id)
        assert (await it.settled((await app.emit("grouped")).id))["status"] == "DONE"
        reached = True
    assert reached


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_router_with_a_cancelled_request_fails_only_the_routed_trigger(tmp_path):
    class Cancelled:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            task = asyncio.ensure_future(asyncio.sleep(5))
            await asyncio.sleep(0)
            task.cancel()
            await task
            raise AssertionError

    app = App(router=Cancelled())

    @app.workflow("quick")
    async def quick() -> None: ...

    reached = False
    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path) as it:
            row = await it.settled((await app.emit(None, source="MESSAGE")).id)
            assert row["error_code"] == "ROUTING_ERROR"
            assert (await it.settled((await app.emit("quick")).id))["status"] == "DONE"
            reached = True
    assert reached, "the engine ended by itself, and took the block with it"


async def test_cancel_reaches_a_hanging_router(tmp_path):
    asked = anyio.Event()

    class Hangs:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            asked.set()
            await anyio.sleep_forever()
            raise AssertionError

    app = App(router=Hangs())

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as it:
        emitted = await app.emit(None, source="MESSAGE")
        await asked.wait()
        await app.cancel(emitted.id)
        with anyio.fail_after(PATIENCE):
            row = await it.settled(emitted.id)
        assert row["reason"] == "cancelled"


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        assert self.n > 0, "n must be positive"


async def test_payload_type_that_raises_fails_only_the_trigger(tmp_path):
    app = App()

    @app.workflow("take")
    async def take(it: Positive) -> None: ...

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as it:
        with pytest.raises(InvalidInput):
            await app.emit("take", {"it": {"n": 0}})
        with Producer(it.path) as producer:
            bad = producer.emit("take", {"it": {"n": 0}})
        with anyio.fail_after(PATIENCE):
            assert (await it.settled(bad.id))["error_code"] == "VALIDATION_ERROR"
            assert (await it.settled((await app.emit("quick")).id))["status"] == "DONE"


async def test_failure_details_that_cannot_be_printed_fail_only_the_trigger(tmp_path):
    class Unprintable:
        def __repr__(self) -> str:
            raise RuntimeError("no")

    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]

    app = App()

    @app.workflow("unprintable")
    async def unprintable() -> None:
        raise Fail("X", "y", thing=Unprintable())

    @app.workflow("deep")
    async def too_deep() -> None:
        raise Fail("X", "y", thing=deep)

    async with lab(app, tmp_path) as it:
        with anyio.fail_after(PATIENCE):
            assert (await it.settled((await app.emit("unprintable")).id))["status"] == "FAILED"
            assert (await it.settled((await app.emit("deep")).id))["status"] == "FAILED"


def _undecorated(fn: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        return fn(**arguments)

    return call


async def test_plain_workflow_that_returns_a_coroutine_is_not_done_without_running(tmp_path):
    """A decorator that forgot `async`: nothing ran, so it must not be DONE."""
    app = App()
    ran: list[bool] = []

    async def work() -> None:
        ran.append(True)

    app.declare("work", _undecorated(work))

    async with lab(app, tmp_path) as it:
        row = await it.settled((await app.emit("work")).id)
        assert ran or row["status"] == "FAILED"


def test_generator_is_refused_as_a_workflow():
    app = App()

    def steps():
        yield 1

    async def asteps():
        yield 1

    with pytest.raises(ConfigInvalid):
        app.declare("a", steps)
    with pytest.raises(ConfigInvalid):
        app.declare("b", asteps)


@pytest.mark.parametrize("anyio_backend", ["trio"])
async def test_timeout_inside_a_trio_nursery_is_recorded_as_a_timeout(tmp_path):
    import trio

    app = App()

    @app.workflow("nursery", timeout=0.05, max_attempts=1)
    async def nursery() -> None:
        async with trio.open_nursery() as beside:
            beside.start_soon(trio.sleep_forever)
            beside.start_soon(trio.sleep_forever)

    async with lab(app, tmp_path) as it:
        row = await it.settled((await app.emit("nursery")).id)
        assert row["error_code"] == "AGENT_TIMEOUT", row["error_message"]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_emit_from_another_event_loop_is_refused_and_writes_nothing(tmp_path):
    app = App()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as it:

        def elsewhere() -> BaseException | None:
            async def emit() -> None:
                await app.emit("quick")

            try:
                asyncio.run(emit())
            except Exception as error:
                return error
            return None

        error = await anyio.to_thread.run_sync(elsewhere)
        await it.idle_window()
        await it.idle()
        [count] = it.rows("SELECT count(*) AS n FROM triggers")
        assert isinstance(error, InvalidInput)
        assert count == {"n": 0}


async def test_context_variable_set_in_a_run_is_not_seen_in_the_next(tmp_path):
    from contextvars import ContextVar

    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []
    app = App()

    @app.workflow("who")
    async def who(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    async with lab(app, tmp_path, settings(concurrency=1)) as it:
        for name in ("ada", "bob"):
            await it.settled((await app.emit("who", {"name": name})).id)
    assert seen == ["nobody", "nobody"]


async def test_router_that_raises_system_exit_fails_only_the_trigger(tmp_path):
    class Exits:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            raise SystemExit(3)

    app = App(router=Exits())

    @app.workflow("quick")
    async def quick() -> None: ...

    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path) as it:
            row = await it.settled((await app.emit(None, source="MESSAGE")).id)
            assert row["error_code"] == "ROUTING_ERROR"


@pytest.mark.parametrize("answer", [Route(workflow=["x"]), Route(workflow="quick", session_id=7)])  # type: ignore[arg-type]
async def test_router_with_an_invalid_route_fails_only_the_trigger(tmp_path, answer):
    class Nonsense:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            return answer  # type: ignore[no-any-return]

    app = App(router=Nonsense())

    @app.workflow("quick")
    async def quick() -> None: ...

    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path) as it:
            row = await it.settled((await app.emit(None, source="MESSAGE")).id)
            assert row["error_code"] == "ROUTING_ERROR"


@pytest.mark.parametrize("default", [False, True])
def test_annotation_constraint_is_enforced_on_the_payload(default):
    app = App()

    def required(n: Annotated[int, msgspec.Meta(gt=0)]) -> None: ...

    def optional(n: Annotated[int, msgspec.Meta(gt=0)] = 1) -> None: ...

    workflow = app.declare("w", optional if default else required)
    assert workflow.arguments('{"n":1}') == {"n": 1}
    with pytest.raises(msgspec.ValidationError):
        workflow.arguments('{"n":0}')
