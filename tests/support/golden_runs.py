"""Runs whose records are golden: one for each end of an attempt, and one for each kind of event.

    python -m tests.support.golden_runs

This command rewrites their records in `golden/*.json`. Review the diff and explain each change. Time is virtual and
advances only in a handler, so each run has the same times and latencies.
"""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from craftcore import (
    App,
    Call,
    Continue,
    Fail,
    NoEffect,
    Retry,
    RetryPolicy,
    Route,
    RoutedTrigger,
    RoutingContext,
    Snooze,
    TaskContext,
    TriggerSpec,
)
from craftcore.executions.chain.seal import Event
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import RecordStore
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.storage.transaction import Reader
from craftcore.triggers.service import TriggerService
from tests.support.engine_harness import Lab, lab
from tests.support.fakes import VirtualClock, VirtualCore

GOLDEN = Path(__file__).parents[1] / "executions" / "golden"

UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}\b")

TIMED = ("STEP_COMPLETED",)
"""Events whose `latency_ms` comes from the real clock."""

HASHES = ("envelope_hash", "events_hash", "response_hash", "prev_hash", "record_hash")
"""Hashes over the texts of a record. The golden files omit them, and the test computes them."""


class Stage:
    """An app without declarations, a clock that does not advance, and a folder for the file."""

    def __init__(self, folder: Path) -> None:
        self.app = App("golden")
        self.clock = VirtualClock()
        self.folder = folder

    def running(self) -> AbstractAsyncContextManager[Lab]:
        return lab(self.app, self.folder, clock=self.clock)

    async def emit(self, workflow: str | None, payload: dict[str, Any] | None = None, **spec: Any) -> str:
        """Emit a trigger with a readable id."""
        asked = TriggerSpec(**{"workflow": workflow, "payload": payload or {}, "id": "the-trigger", **spec})
        [emitted] = await self.app.emit_many([asked])
        return emitted.id

    def emit_without_declarations(self, workflow: str, payload: dict[str, Any]) -> str:
        """Emit as another process does, which lacks the declarations of the app."""
        core = VirtualCore(self.folder / "agent.db", self.clock)
        triggers = TriggerService(self.clock, read_moment)
        spec = TriggerSpec(workflow=workflow, payload=payload, id="the-trigger")
        emitted = core.do(triggers.emit, spec)
        core.close()
        return emitted.id


Run = Callable[[Stage], Awaitable[None]]

RUNS: dict[str, Run] = {}


def golden(run: Run) -> Run:
    RUNS[run.__name__] = run
    return run


# The six ends of the failure model


@golden
async def success(stage: Stage) -> None:
    @stage.app.workflow("greet")
    async def greet(name: str) -> dict[str, str]:
        stage.clock.advance(0.25)
        return {"said": f"Hello {name}"}

    async with stage.running() as it:
        await it.settled(await stage.emit("greet", {"name": "Zoë"}, session_id="s", description="the first"))


@golden
async def error(stage: Stage) -> None:
    @stage.app.workflow("greet")
    async def greet() -> None:
        stage.clock.advance(0.25)
        raise Fail("VALIDATION_ERROR", "nobody to greet", field="name")

    async with stage.running() as it:
        await it.settled(await stage.emit("greet"))


@golden
async def fallback_success(stage: Stage) -> None:
    @stage.app.workflow("processor-a", fallback=["processor-b"])
    async def a() -> None:
        stage.clock.advance(0.25)
        raise Fail("AGENT_ERROR", "processor-a is out of order")

    @stage.app.workflow("processor-b")
    async def b() -> str:
        stage.clock.advance(0.5)
        return "processed"

    async with stage.running() as it:
        await it.settled(await stage.emit("processor-a"))


@golden
async def all_agents_fail(stage: Stage) -> None:
    @stage.app.workflow("processor-a", fallback=["processor-b"], max_attempts=2)
    async def a() -> None:
        stage.clock.advance(0.25)
        raise ValueError("processor-a is out of order")

    @stage.app.workflow("processor-b")
    async def b() -> None:
        stage.clock.advance(0.5)
        raise Retry("processor-b is busy")

    async with stage.running() as it:
        await it.settled(await stage.emit("processor-a"))


@golden
async def timeout(stage: Stage) -> None:
    @stage.app.workflow("slow", timeout=0.25, max_attempts=1)
    async def slow() -> None:
        stage.clock.advance(0.25)
        await anyio.sleep_forever()

    async with stage.running() as it:
        await it.settled(await stage.emit("slow"))


@golden
async def cancelled(stage: Stage) -> None:
    began = anyio.Event()

    @stage.app.workflow("slow")
    async def slow() -> None:
        began.set()
        await anyio.sleep_forever()

    async with stage.running() as it:
        id = await stage.emit("slow")
        await began.wait()
        stage.clock.advance(0.25)
        await stage.app.cancel(id)
        await it.settled(id)


@golden
async def result_that_cannot_be_kept(stage: Stage) -> None:
    @stage.app.workflow("greet")
    async def greet() -> Any:
        return object

    async with stage.running() as it:
        await it.settled(await stage.emit("greet"))


# Decisions of a router


class ToTheProcessors:
    """A router that routes to the first processor, with the other as fallback."""

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        return Route(workflow="processor-a", fallback=("processor-b",))


@golden
async def routed(stage: Stage) -> None:
    stage.app.router = ToTheProcessors()

    @stage.app.workflow("processor-a")
    async def a() -> str:
        stage.clock.advance(0.25)
        return "processed"

    @stage.app.workflow("processor-b")
    async def b() -> None:
        raise AssertionError("not to be run")

    async with stage.running() as it:
        await it.settled(await stage.emit(None, source="PROACTIVE"))


# Triggers without a run of their workflow


@golden
async def unknown_workflow(stage: Stage) -> None:
    stage.emit_without_declarations("gret", {})
    async with stage.running() as it:
        await it.settled("the-trigger")


@golden
async def unknown_source(stage: Stage) -> None:
    async with stage.running() as it:
        await it.settled(await stage.emit(None, source="PROACTIVE"))


@golden
async def payload_that_does_not_fit(stage: Stage) -> None:
    @stage.app.workflow("greet")
    async def greet(name: str) -> None:
        raise AssertionError("not to be run")

    stage.emit_without_declarations("greet", {"nmae": "Zoë"})
    async with stage.running() as it:
        await it.settled("the-trigger")


# Repeated attempts


@golden
async def snoozed(stage: Stage) -> None:
    tries: list[float] = []

    @stage.app.workflow("greet")
    async def greet() -> str:
        tries.append(stage.clock.now())
        if len(tries) == 1:
            stage.clock.advance(0.25)
            raise Snooze(until=3600.0 + stage.clock.now() - 0.25)
        return "Hello"

    async with stage.running() as it:
        id = await stage.emit("greet")
        await it.until(lambda: it.trigger(id)["reason"] == "snoozed")
        stage.clock.advance(hours=1)
        it.engine.ring(schedules=False)
        await it.settled(id)


@golden
async def released(stage: Stage) -> None:
    """Release an attempt at a shutdown, and run it again in the next engine."""
    boots = 0

    @stage.app.workflow("slow")
    async def slow() -> str:
        if boots == 1:
            await anyio.sleep_forever()
        return "done"

    async with stage.running() as it:
        boots += 1
        id = await stage.emit("slow")
        await it.until(lambda: it.engine.running == 1)
        it.engine.stop_now()
    async with stage.running() as it:
        boots += 1
        await it.settled(id)


@golden
async def overdue(stage: Stage) -> None:
    @stage.app.workflow("greet")
    async def greet() -> str:
        return "Hello"

    async with stage.running() as it:
        id = await stage.emit("greet", delay=60)
        await it.idle_window()
        stage.clock.advance(hours=1)
        it.engine.ring(schedules=False)
        await it.settled(id)


# Tasks


@golden
async def suspended_and_resumed(stage: Stage) -> None:
    @stage.app.action("email.send", irreversible=True)
    async def send(call: Call, *, to: str) -> str:
        stage.clock.advance(0.5)
        return "ref-1"

    async def fetch(city: str) -> str:
        stage.clock.advance(0.25)
        return f"rain in {city}"

    @stage.app.workflow("brief")
    async def brief(ctx: TaskContext, city: str) -> str:
        weather = await ctx.step("weather", fetch, city)
        await ctx.note("fetched", {"city": city})
        await ctx.sleep(60)
        ref: str = await ctx.act(send, to="me@example.org")
        return f"{weather}: {ref}"

    async with stage.running() as it:
        id = await stage.emit("brief", {"city": "Rome"}, session_id="s")
        await it.waiting(id)
        stage.clock.advance(60)
        it.engine.ring(schedules=False)
        await it.ended(id)


@golden
async def continued(stage: Stage) -> None:
    @stage.app.workflow("count")
    async def count(ctx: TaskContext[int]) -> Any:
        stage.clock.advance(0.25)
        return Continue(1) if ctx.state is None else ctx.state

    async with stage.running() as it:
        await it.ended(await stage.emit("count"))


@golden
async def step_failed(stage: Stage) -> None:
    tries: list[float] = []

    async def fetch() -> str:
        tries.append(stage.clock.now())
        stage.clock.advance(0.25)
        if len(tries) == 1:
            raise Retry("no answer")
        return "rain"

    @stage.app.workflow("brief")
    async def brief(ctx: TaskContext) -> str:
        weather: str = await ctx.step("weather", fetch, retry=RetryPolicy(max_attempts=2, base=0, cap=0))
        return weather

    async with stage.running() as it:
        await it.ended(await stage.emit("brief"))


@golden
async def emitted_and_child(stage: Stage) -> None:
    @stage.app.workflow("other")
    async def other(n: int) -> None:
        pass

    @stage.app.workflow("child")
    async def child(ctx: TaskContext, n: int) -> int:
        return n + 1

    @stage.app.workflow("parent")
    async def parent(ctx: TaskContext) -> int:
        await ctx.emit("other", {"n": 1}, delay=3600)
        started = await ctx.start_child("child", {"n": 2})
        answer: int = await started.result(int)
        return answer

    async with stage.running() as it:
        await it.ended(await stage.emit("parent"))


@golden
async def delivered(stage: Stage) -> None:
    @stage.app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext, text: str) -> list[str]:
        answer = await ctx.wait_for("message")
        return [text, answer["text"]]

    async with stage.running() as it:
        id = await stage.emit(None, {"text": "hello"}, source="MESSAGE", session_id="s")
        await it.waiting(id)
        await stage.emit(None, {"text": "bye"}, source="MESSAGE", session_id="s", id="the-message")
        await it.ended(id)


@golden
async def act_that_was_not_sent(stage: Stage) -> None:
    @stage.app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        stage.clock.advance(0.25)
        if call.attempt == 1:
            raise NoEffect("connection refused")
        return "ref-2"

    @stage.app.workflow("buy", max_attempts=2)
    async def buy(ctx: TaskContext) -> str:
        ref: str = await ctx.act(pay)
        return ref

    async with stage.running() as it:
        await it.ended(await stage.emit("buy"))


@golden
async def act_in_doubt(stage: Stage) -> None:
    @stage.app.action("pay", irreversible=True, on_unknown="assume_done")
    async def pay(call: Call) -> None:
        stage.clock.advance(0.25)
        raise ConnectionResetError("the connection was lost")

    @stage.app.workflow("buy")
    async def buy(ctx: TaskContext) -> str:
        await ctx.act(pay)
        return "bought"

    async with stage.running() as it:
        await it.ended(await stage.emit("buy"))


# The records of the runs


class Recorded(NamedTuple):
    """The result of a run: its records, the oldest first, and the number of starts of each trigger."""

    records: list[ExecutionRecord]
    starts: dict[str, int]


@cache
def recorded(name: str, backend: str = "asyncio") -> Recorded:
    """Return the result of the named run, on its own file."""
    with tempfile.TemporaryDirectory() as folder:
        stage = Stage(Path(folder))
        anyio.run(RUNS[name], stage, backend=backend)
        core = VirtualCore(stage.folder / "agent.db", stage.clock)
        with core.reading() as reader:
            found = Recorded(all_records(reader), dict(reader.fetch_tuples("SELECT id, starts FROM triggers")))
        core.close()
    return found


def all_records(reader: Reader) -> list[ExecutionRecord]:
    """Return every complete record of a file, the oldest first."""
    store = RecordStore()
    found = [store.get_by_seq(reader, seq) for (seq,) in reader.fetch_tuples("SELECT seq FROM executions ORDER BY seq")]
    return [record for record in found if record is not None]


def to_plain_json(records: list[ExecutionRecord]) -> list[dict[str, Any]]:
    """Return records as plain JSON. Random ids are numbered in the order of their appearance."""
    text = json.dumps([_one(record) for record in records])
    names: dict[str, str] = {}
    numbered = UUID.sub(lambda found: names.setdefault(found.group(), f"id-{len(names) + 1}"), text)
    plain: list[dict[str, Any]] = json.loads(numbered)
    return plain


def _one(record: ExecutionRecord) -> dict[str, Any]:
    omitted = {"events", "envelope_json", "routing_json", "response_json", "stripped_at", "invalidated", *HASHES}
    fields = [name for name in ExecutionRecord.__slots__ if name not in omitted]
    return {
        "header": {name: getattr(record, name) for name in fields},
        "envelope": record.envelope,
        "routing": record.routing,
        "events": [_event(event) for event in record.events],
        "response": record.response,
    }


def _event(event: Event) -> dict[str, Any]:
    """Return the fields of an event that have a value."""
    fields = {name: value for name, value in event._asdict().items() if value is not None}
    fields["payload"] = json.loads(fields.pop("payload_json"))
    if event.type in TIMED:
        assert fields["payload"]["latency_ms"] >= 0, event
        fields["payload"]["latency_ms"] = "measured"
    return fields


def text_of(records: list[dict[str, Any]]) -> str:
    """Return the records as readable text: one line for each part of a record and for each event."""
    return "[\n" + ",\n".join(_record_text(record) for record in records) + "\n]\n"


def _record_text(record: dict[str, Any]) -> str:
    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    parts = [f'  "{name}": {line(record[name])}' for name in ("header", "envelope", "routing")]
    events = ",\n".join(f"    {line(event)}" for event in record["events"])
    parts += [f'  "events": [\n{events}\n  ]', f'  "response": {line(record["response"])}']
    return "{\n" + ",\n".join(parts) + "\n}"


def main() -> None:
    for name in RUNS:
        (GOLDEN / f"{name}.json").write_text(text_of(to_plain_json(recorded(name).records)))
        print(name)


if __name__ == "__main__":
    main()
