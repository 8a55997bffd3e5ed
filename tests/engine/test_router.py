"""Routing of triggers without a workflow: router errors, invalid routes, and busy sessions."""

from __future__ import annotations

import asyncio

import anyio
import pytest

from craftcore import App, Route, RoutedTrigger, RoutingContext, TriggerSpec
from tests.support.engine_harness import lab, settings
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


class RecordingRouter:
    """A router that records the triggers it receives."""

    def __init__(self, route: Route | Exception) -> None:
        self.asked: list[RoutedTrigger] = []
        self.answer = route
        self.gate: anyio.Event | None = None

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        self.asked.append(trigger)
        assert "chat" in context.workflows
        if self.gate is not None:
            await self.gate.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def chat_app(router: RecordingRouter, *, by_source: bool = False) -> App:
    app = App(router=router)

    @app.workflow("chat", sources=["MESSAGE"] if by_source else [], max_attempts=2)
    async def chat(text: str = "") -> str:
        return text

    return app


@ON_ASYNCIO
async def test_router_is_asked_only_for_a_trigger_without_workflow(tmp_path):
    router = RecordingRouter(Route(workflow="chat"))
    app = chat_app(router)
    async with lab(app, tmp_path) as harness:
        await harness.settled((await app.emit("chat")).id)
        assert router.asked == []
        emitted = await app.emit(None, {"text": "hi"}, source="MESSAGE", description="a message")
        await harness.settled(emitted.id)
        assert [asked.description for asked in router.asked] == ["a message"]
        assert harness.events(emitted.id)[:2] == ["INTENT_RECEIVED", "AGENT_ATTEMPT_START"]
        assert harness.response(emitted.id)["payload"] == "hi"


async def test_slow_router_delays_neither_emit_nor_other_triggers(tmp_path):
    router = RecordingRouter(Route(workflow="chat"))
    router.gate = anyio.Event()
    app = chat_app(router)
    async with lab(app, tmp_path, settings(concurrency=2)) as harness:
        with anyio.fail_after(PATIENCE):  # the router returns only after all of this
            slow = await app.emit(None, source="MESSAGE")
        other = await app.emit("chat")
        assert (await harness.settled(other.id))["status"] == "DONE"
        await harness.until(lambda: len(router.asked) == 1)
        assert harness.events(slow.id) == ["INTENT_RECEIVED"]
        assert harness.trigger(slow.id)["attempts"] == 1
        router.gate.set()
        assert (await harness.settled(slow.id))["status"] == "DONE"


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

    async with lab(app, tmp_path, settings(shutdown_grace=0.0)) as harness:
        emitted = await app.emit(None, source="MESSAGE")
        await asked.wait()
        await app.cancel(emitted.id)
        with anyio.fail_after(PATIENCE):
            row = await harness.settled(emitted.id)
        assert row["reason"] == "cancelled"


@ON_ASYNCIO
async def test_router_error_costs_the_trigger_an_attempt(tmp_path):
    router = RecordingRouter(RuntimeError("model is down"))
    app = chat_app(router)
    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit(None, source="MESSAGE")).id)
        assert (row["status"], row["error_code"], row["attempts"]) == ("DEAD", "ROUTING_ERROR", 3)
        assert len(router.asked) == 3


class UnprintableError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no words")


@ON_ASYNCIO
async def test_router_error_without_a_printable_message_is_recorded_by_type(tmp_path):
    app = chat_app(RecordingRouter(UnprintableError()))
    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit(None, source="MESSAGE")).id)
        assert (row["status"], row["error_message"]) == ("DEAD", "the router failed: <UnprintableError>")


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
        async with lab(app, tmp_path) as harness:
            row = await harness.settled((await app.emit(None, source="MESSAGE")).id)
            assert row["error_code"] == "ROUTING_ERROR"
            assert (await harness.settled((await app.emit("quick")).id))["status"] == "DONE"
            reached = True
    assert reached, "the engine ended and cancelled the block"


async def test_router_that_raises_system_exit_fails_only_the_trigger(tmp_path):
    class Exits:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            raise SystemExit(3)

    app = App(router=Exits())

    @app.workflow("quick")
    async def quick() -> None: ...

    with anyio.fail_after(PATIENCE):
        async with lab(app, tmp_path) as harness:
            row = await harness.settled((await app.emit(None, source="MESSAGE")).id)
            assert row["error_code"] == "ROUTING_ERROR"


@ON_ASYNCIO
async def test_router_error_falls_back_to_the_workflow_of_the_source(tmp_path):
    app = chat_app(RecordingRouter(RuntimeError("model is down")), by_source=True)
    async with lab(app, tmp_path) as harness:
        assert (await harness.settled((await app.emit(None, source="MESSAGE")).id))["status"] == "DONE"


@ON_ASYNCIO
async def test_route_to_an_unknown_workflow_fails_the_trigger(tmp_path):
    app = chat_app(RecordingRouter(Route(workflow="ghost")))
    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit(None, source="MESSAGE")).id)
        assert (row["status"], row["error_code"]) == ("FAILED", "CAPABILITY_NOT_FOUND")


@ON_ASYNCIO
@pytest.mark.parametrize(
    "answer",
    [
        Route(workflow="chat", session_id='s"x'),
        Route(workflow=["x"]),  # type: ignore[arg-type]
        Route(workflow="chat", session_id=7),  # type: ignore[arg-type]
        "chat",
        None,
    ],
)
async def test_invalid_route_costs_the_trigger_an_attempt(tmp_path, answer):
    app = chat_app(RecordingRouter(answer))
    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit(None, source="MESSAGE")).id)
        assert (row["status"], row["error_code"]) == ("DEAD", "ROUTING_ERROR")


@ON_ASYNCIO
async def test_trigger_routed_to_a_busy_session_waits_with_the_attempt_refunded(tmp_path):
    router = RecordingRouter(Route(workflow="chat", session_id="s1"))
    app = chat_app(router)
    gate = anyio.Event()

    @app.workflow("hold")
    async def hold() -> None:
        await gate.wait()

    async with lab(app, tmp_path) as harness:
        holder = await app.emit("hold", session_id="s1")
        await harness.until(lambda: harness.engine.running == 1)
        routed = await app.emit(None, source="MESSAGE")
        await harness.until(lambda: harness.trigger(routed.id)["reason"] == "waits for session s1")
        row = harness.trigger(routed.id)
        assert (row["status"], row["lane"], row["attempts"]) == ("PENDING", "s1", 0)
        gate.set()
        await harness.settled(holder.id)
        row = await harness.settled(routed.id)
        assert (row["status"], row["lane"], row["attempts"]) == ("DONE", "s1", 1)
        hashes = harness.rows("SELECT DISTINCT envelope_hash FROM executions WHERE trigger_id = :id", id=routed.id)
        assert len(hashes) == 1


@ON_ASYNCIO
async def test_lane_left_by_a_routed_trigger_goes_on_at_once(tmp_path):
    """The router moves a trigger from session a to session b, where it runs long. Session a does not wait for that
    trigger."""
    gate = anyio.Event()

    class SessionRouter:
        async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
            return Route(workflow="long", session_id="b")

    app = App(router=SessionRouter())

    @app.workflow("long")
    async def long() -> None:
        await gate.wait()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as harness:
        await app.emit_many(
            [
                TriggerSpec(workflow=None, source="MESSAGE", session_id="a"),
                TriggerSpec(workflow="quick", source="MESSAGE", session_id="a"),
            ]
        )
        try:
            with anyio.fail_after(PATIENCE):
                while harness.engine.counts["DONE"] < 1:  # noqa: ASYNC110
                    await anyio.sleep(0.005)
        finally:
            gate.set()
