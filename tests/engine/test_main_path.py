"""The main path of a trigger through a running engine, from emit to settlement."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any

import anyio
import msgspec
import pytest

from craftcore import App, Fail, Retry, Snooze, TriggerSource, TriggerSpec
from craftcore.errors import (
    ConfigInvalid,
    DaemonRunning,
    DuplicateTrigger,
    InvalidInput,
    NotFound,
    StateRefused,
    UnknownWorkflow,
)
from craftcore.producer import Producer
from craftcore.triggers.backoff import RetryPolicy
from tests.support.engine_harness import lab, look, settings
from tests.support.fakes import VirtualClock
from tests.support.loops import ON_ASYNCIO
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio


@dataclass
class Place:
    city: str
    zip: int = 0


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


QUICK = RetryPolicy(max_attempts=3, base=0, cap=0)


async def test_emitted_trigger_runs_and_leaves_a_complete_record(tmp_path):
    app = App()

    @app.workflow("greet")
    async def greet(name: str) -> str:
        return f"Hello {name}"

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("greet", {"name": "Ada"}, description="say hello")
        row = await harness.settled(emitted.id)

        assert (row["status"], row["reason"], row["attempts"]) == ("DONE", "succeeded", 1)
        assert harness.response(emitted.id)["payload"] == "Hello Ada"
        assert harness.events(emitted.id) == [
            "INTENT_RECEIVED",
            "AGENT_ATTEMPT_START",
            "AGENT_ATTEMPT_END",
            "ROUTER_DECISION",
            "FINAL_RESPONSE",
        ]


async def test_plain_workflow_runs_in_a_thread(tmp_path):
    app = App()

    @app.workflow("thread")
    def thread() -> str:
        return threading.current_thread().name

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("thread")
        await harness.settled(emitted.id)
        assert harness.response(emitted.id)["payload"] != threading.main_thread().name


def _undecorated(fn: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Any]:
    def call(**arguments: Any) -> Any:
        return fn(**arguments)

    return call


async def test_plain_workflow_that_returns_a_coroutine_is_not_done_without_running(tmp_path):
    """A decorator without `async` returns the coroutine of the workflow, which never runs."""
    app = App()
    ran: list[bool] = []

    async def work() -> None:
        ran.append(True)

    app.declare("work", _undecorated(work))

    async with lab(app, tmp_path) as harness:
        row = await harness.settled((await app.emit("work")).id)
        assert ran or row["status"] == "FAILED"


async def test_context_variable_set_in_a_run_is_not_seen_in_the_next(tmp_path):
    from contextvars import ContextVar

    tenant: ContextVar[str] = ContextVar("tenant", default="nobody")
    seen: list[str] = []
    app = App()

    @app.workflow("who")
    async def who(name: str) -> None:
        seen.append(tenant.get())
        tenant.set(name)

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        for name in ("ada", "bob"):
            await harness.settled((await app.emit("who", {"name": name})).id)
    assert seen == ["nobody", "nobody"]


@ON_ASYNCIO
async def test_payload_arrives_as_the_annotated_types_or_is_refused_at_emit(tmp_path):
    seen: list[Any] = []
    app = App()

    @app.workflow("visit")
    async def visit(place: Place, *, note: str = "none", tags: tuple[str, ...] = ()) -> None:
        seen.append((place, note, tags))

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("visit", {"place": {"city": "Rome"}, "tags": ["a", "b"]})
        await harness.settled(emitted.id)
        assert seen == [(Place("Rome"), "none", ("a", "b"))]

        with pytest.raises(InvalidInput, match=r"does not fit visit.*city"):
            await app.emit("visit", {"place": {}})
        with pytest.raises(InvalidInput, match="unknown field `extra`"):
            await app.emit("visit", {"place": {"city": "Rome"}, "extra": 1})
        with pytest.raises(UnknownWorkflow, match="no workflow is named vist"):
            await app.emit("vist")
        assert len(harness.rows("SELECT id FROM triggers")) == 1


@ON_ASYNCIO
async def test_invalid_trigger_of_another_process_fails_with_the_cause(tmp_path):
    app = App()

    @app.workflow("greet")
    async def greet(name: str) -> None: ...

    with Producer(tmp_path / "agent.db") as producer:  # before the first daemon the database has no workflows
        misfit = producer.emit("greet", {"nam": "Ada"})
        unknown = producer.emit("gret", {})
        nowhere = producer.emit(None, {}, source="MEMORY")
    async with lab(app, tmp_path) as harness:
        rows = [await harness.settled(emitted.id) for emitted in (misfit, unknown, nowhere)]

        assert [row["status"] for row in rows] == ["FAILED", "FAILED", "FAILED"]
        assert [row["error_code"] for row in rows] == [
            "VALIDATION_ERROR",
            "CAPABILITY_NOT_FOUND",
            "CAPABILITY_NOT_FOUND",
        ]
        assert "does not fit greet" in rows[0]["error_message"]
        assert rows[1]["error_message"] == "No agent found for intent: gret/1.0"
        assert rows[2]["error_message"] == "No agent found for source: MEMORY"
    with Producer(tmp_path / "agent.db") as producer, pytest.raises(UnknownWorkflow, match="did you mean greet"):
        producer.emit("gret")


@dataclass
class Positive:
    n: int

    def __post_init__(self) -> None:
        assert self.n > 0, "n must be positive"


@ON_ASYNCIO
async def test_payload_type_that_raises_fails_only_the_trigger(tmp_path):
    app = App()

    @app.workflow("take")
    async def take(value: Positive) -> None: ...

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as harness:
        with pytest.raises(InvalidInput):
            await app.emit("take", {"value": {"n": 0}})
        with Producer(harness.path) as producer:
            bad = producer.emit("take", {"value": {"n": 0}})
        with anyio.fail_after(PATIENCE):
            assert (await harness.settled(bad.id))["error_code"] == "VALIDATION_ERROR"
            assert (await harness.settled((await app.emit("quick")).id))["status"] == "DONE"


@ON_ASYNCIO
async def test_trigger_without_workflow_goes_to_the_workflow_of_the_source(tmp_path):
    app = App()

    @app.workflow("chat", sources=[TriggerSource.MESSAGE])
    async def chat(text: str) -> str:
        return text

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit(None, {"text": "hi"}, source=TriggerSource.MESSAGE, session_id="s1")
        await harness.settled(emitted.id)
        [record] = harness.rows("SELECT workflow, routing_json FROM executions")
        assert record["workflow"] == "chat"
        assert json.loads(record["routing_json"])["reason"] == "rule by source"


@ON_ASYNCIO
async def test_failed_trigger_is_retried_until_the_attempts_are_spent(tmp_path):
    app = App()
    calls: list[int] = []

    @app.workflow("third", max_attempts=3)
    async def third() -> int:
        calls.append(1)
        if len(calls) < 3:
            raise ValueError("not yet")
        return len(calls)

    @app.workflow("never", max_attempts=2)
    async def never() -> None:
        raise ValueError("never")

    async with lab(app, tmp_path) as harness:
        good, bad = await app.emit("third"), await app.emit("never")
        assert (await harness.settled(good.id))["attempts"] == 3
        row = await harness.settled(bad.id)
        assert (row["status"], row["attempts"], row["error_code"]) == ("DEAD", 2, "INTERNAL_AGENT_ERROR")
        assert row["error_message"] == "never"
        [first, second] = harness.rows("SELECT id, status FROM executions WHERE trigger_id = :id", id=bad.id)
        assert (first["id"], second["id"]) == (f"exec-{bad.id}.1", f"exec-{bad.id}.2")


ERRORS: list[tuple[BaseException, str, str]] = [
    (Fail("UNAUTHORIZED", "no"), "FAILED", "UNAUTHORIZED"),
    (Fail('weird "code"\n', "no"), "FAILED", 'weird "code"\n'),
    (Retry("later"), "DEAD", "AGENT_ERROR"),
    (TimeoutError("slow"), "DEAD", "AGENT_TIMEOUT"),
    (ConnectionRefusedError("down"), "DEAD", "TRANSPORT_ERROR"),
    (KeyboardInterrupt("^C"), "DEAD", "INTERNAL_AGENT_ERROR"),
    (SystemExit(3), "DEAD", "INTERNAL_AGENT_ERROR"),
    (InvalidInput("bad"), "FAILED", "VALIDATION_ERROR"),
    (Fail("\ud800" + "x" * 1000, "no"), "FAILED", "?" + "x" * 98 + "…"),
    (Unprintable(), "DEAD", "INTERNAL_AGENT_ERROR"),
    (Exception("lone \ud800 surrogate"), "DEAD", "INTERNAL_AGENT_ERROR"),
]


async def test_workflow_error_of_any_kind_is_settled_and_the_engine_goes_on(tmp_path):
    app = App()

    @app.workflow("bad", retry=RetryPolicy(max_attempts=1, base=0, cap=0))
    async def bad(number: int) -> None:
        raise ERRORS[number][0]

    @app.workflow("good")
    async def good() -> None: ...

    async with lab(app, tmp_path) as harness:
        for number, (error, status, code) in enumerate(ERRORS):
            row = await harness.settled((await app.emit("bad", {"number": number})).id)
            assert (row["status"], row["error_code"]) == (status, code), type(error).__name__
            assert (await harness.settled((await app.emit("good")).id))["status"] == "DONE", type(error).__name__


@ON_ASYNCIO
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

    async with lab(app, tmp_path) as harness:
        with anyio.fail_after(PATIENCE):
            assert (await harness.settled((await app.emit("unprintable")).id))["status"] == "FAILED"
            assert (await harness.settled((await app.emit("deep")).id))["status"] == "FAILED"


@ON_ASYNCIO
async def test_snoozed_trigger_runs_again_with_the_attempt_refunded(tmp_path):
    clock = VirtualClock()
    app = App()
    attempts: list[int] = []

    @app.workflow("nap")
    async def nap(ctx: Any) -> str:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            raise Snooze(until=clock.now() + 3600)
        return "rested"

    async with lab(app, tmp_path, clock=clock) as harness:
        emitted = await app.emit("nap")
        await harness.until(lambda: harness.trigger(emitted.id)["reason"] == "snoozed")
        row = harness.trigger(emitted.id)
        assert (row["status"], row["attempts"], row["due_at"]) == ("PENDING", 0, clock.now() + 3600)

        clock.advance(hours=1)
        harness.engine.feeder.ring()
        assert (await harness.settled(emitted.id))["status"] == "DONE"
        assert attempts == [1, 1]


@ON_ASYNCIO
async def test_late_trigger_carries_the_overdue_time_and_the_description(tmp_path):
    clock = VirtualClock()
    seen: list[Any] = []
    app = App()

    @app.workflow("brief")
    async def brief(ctx: Any) -> None:
        seen.append(ctx.trigger)

    with Producer(tmp_path / "agent.db") as producer:
        producer.emit("brief", at=clock.now() - 600, description="the morning brief")
    async with lab(app, tmp_path, clock=clock) as harness:
        await harness.idle()
        [trigger] = seen
        assert (trigger.description, trigger.overdue_seconds) == ("the morning brief", 600.0)
        assert "10 minutes late" in trigger.note


@ON_ASYNCIO
async def test_result_that_is_not_json_is_not_retried(tmp_path):
    app = App()

    @app.workflow("odd", retry=QUICK)
    async def odd() -> Any:
        return object()

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit("odd")
        row = await harness.settled(emitted.id)
        assert (row["status"], row["attempts"]) == ("DONE", 1)
        assert "result_unstored" in harness.response(emitted.id)["payload"]


async def test_workflow_may_emit_another_trigger(tmp_path):
    app = App()

    @app.workflow("first")
    async def first() -> str:
        return (await app.emit("second")).id

    @app.workflow("second")
    async def second() -> str:
        return "done"

    async with lab(app, tmp_path, settings(concurrency=1)) as harness:
        emitted = await app.emit("first")
        await harness.settled(emitted.id)
        row = await harness.settled(harness.response(emitted.id)["payload"])
        assert row["status"] == "DONE"


@ON_ASYNCIO
async def test_emit_many_is_all_or_nothing(tmp_path):
    app = App()

    @app.workflow("greet")
    async def greet(n: int) -> None: ...

    async with lab(app, tmp_path) as harness:
        emitted = await app.emit_many([TriggerSpec(workflow="greet", payload={"n": n}) for n in range(50)])
        assert len({answer.id for answer in emitted}) == 50
        taken = TriggerSpec(workflow="greet", payload={"n": 1}, dedup_key="k", on_duplicate="error")
        with pytest.raises(DuplicateTrigger, match="dedup key k"):
            await app.emit_many([taken, taken])
        with pytest.raises(InvalidInput):
            await app.emit_many([taken, TriggerSpec(workflow="greet", payload={})])
        assert await app.emit_many([]) == []
        await harness.idle()
        assert harness.rows("SELECT count(*) AS n FROM triggers") == [{"n": 50}]


async def test_emit_is_refused_while_the_app_is_not_running(tmp_path):
    app = App()

    @app.workflow("greet")
    async def greet() -> None: ...

    with pytest.raises(InvalidInput, match="not running"):
        await app.emit("greet")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_emit_from_another_event_loop_is_refused_and_writes_nothing(tmp_path):
    app = App()

    @app.workflow("quick")
    async def quick() -> None: ...

    async with lab(app, tmp_path) as harness:

        def emit_on_another_loop() -> BaseException | None:
            async def emit() -> None:
                await app.emit("quick")

            try:
                asyncio.run(emit())
            except Exception as error:
                return error
            return None

        error = await anyio.to_thread.run_sync(emit_on_another_loop)
        await harness.idle_window()
        await harness.idle()
        [count] = harness.rows("SELECT count(*) AS n FROM triggers")
        assert isinstance(error, InvalidInput)
        assert count == {"n": 0}


@ON_ASYNCIO
async def test_second_engine_on_the_same_database_is_refused(tmp_path):
    async with lab(App(), tmp_path):
        with pytest.raises(DaemonRunning, match="pid"):
            async with lab(App(), tmp_path):
                pytest.fail("a second engine was accepted")


async def test_error_of_the_host_program_is_raised_unwrapped(tmp_path):
    with pytest.raises(ZeroDivisionError):
        async with lab(App(), tmp_path):
            _ = 1 / 0


async def test_host_cancellation_releases_claims_without_attempt_or_crash(tmp_path):
    """The block is cancelled from outside while a workflow runs, as by Ctrl-C in an embedding program."""
    app = App()
    began = anyio.Event()

    @app.workflow("long")
    async def long() -> None:
        began.set()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        async with lab(app, tmp_path) as harness:
            await app.emit("long")
            await began.wait()
            scope.cancel()
            await anyio.sleep_forever()

    [row] = look(harness.path, "SELECT status, attempts, crash_count FROM triggers")
    assert row == {"status": "PENDING", "attempts": 0, "crash_count": 0}
    assert look(harness.path, "SELECT status, ended_at IS NULL AS open FROM executions") == [
        {"status": "incomplete", "open": 0}
    ]
    assert look(harness.path, "SELECT type FROM events ORDER BY seq DESC LIMIT 1") == [{"type": "ATTEMPT_RELEASED"}]


@ON_ASYNCIO
async def test_cancel_of_an_unknown_or_settled_trigger_is_refused(tmp_path):
    app = App()

    @app.workflow("greet")
    async def greet() -> None: ...

    async with lab(app, tmp_path) as harness:
        with pytest.raises(NotFound):
            await app.cancel("nobody")
        emitted = await app.emit("greet")
        await harness.settled(emitted.id)
        with pytest.raises(StateRefused, match="is DONE"):
            await app.cancel(emitted.id)


def test_invalid_workflow_declarations_are_refused():
    app = App()

    async def fine(n: int) -> None: ...

    def with_context(ctx: Any) -> None: ...

    async def positional(n: int, /) -> None: ...

    async def strange(n: threading.Thread) -> None: ...

    app.declare("one", fine, sources=["MEMORY"])
    refusals: list[tuple[str, dict[str, Any]]] = [
        ("declared twice", {"name": "one", "fn": fine}),
        ("a name is", {"name": "a b", "fn": fine}),
        ("goes to workflow one", {"name": "two", "fn": fine, "sources": ["MEMORY"]}),
        ("source 'RADIO'", {"name": "two", "fn": fine, "sources": ["RADIO"]}),
        ("not both", {"name": "two", "fn": fine, "max_attempts": 2, "retry": QUICK}),
        ("max_attempts 0", {"name": "two", "fn": fine, "max_attempts": 0}),
        ("timeout 0", {"name": "two", "fn": fine, "timeout": 0}),
        ("no ctx", {"name": "two", "fn": with_context}),
        ("by name", {"name": "two", "fn": positional}),
        ("Thread is not a type", {"name": "two", "fn": strange}),
    ]
    for match, arguments in refusals:
        with pytest.raises(ConfigInvalid, match=match):
            app.declare(**arguments)
    assert list(app.workflows) == ["one"]
    assert app.by_source == {"MEMORY": "one"}


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


@pytest.mark.parametrize("default", [False, True])
def test_annotation_constraint_is_enforced_on_the_payload(default):
    app = App()

    def required(n: Annotated[int, msgspec.Meta(gt=0)]) -> None: ...

    def optional(n: Annotated[int, msgspec.Meta(gt=0)] = 1) -> None: ...

    workflow = app.declare("w", optional if default else required)
    assert workflow.arguments('{"n":1}') == {"n": 1}
    with pytest.raises(msgspec.ValidationError):
        workflow.arguments('{"n":0}')
