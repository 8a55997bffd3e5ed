"""The workflows of the task campaigns, one of each kind, and the log of their events outside of the database.

User code writes its actions and inputs, one line each, to an append-only file that all lives share:

    enter   a workflow is entered: with its state           received  the result of a wait, or the event of a turn
    begin   the function of a step begins                   got       the result of a step, which is on disk by now
    end     the function is about to return                 leave     the value that the turn is about to return
    fail    the function is about to raise                  effect    an emitted trigger runs

Lines are in the order of the events, across all lives. A kill loses no written line: the power stays on, and the
kernel keeps the data that a killed process wrote.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import anyio

from craftcore import (
    App,
    Ask,
    Child,
    ChildFailed,
    Continue,
    Done,
    Event,
    Fail,
    First,
    Retry,
    RetryPolicy,
    Route,
    RoutedTrigger,
    RoutingContext,
    TaskContext,
    Timer,
)
from tests.crash.child import Journal

SHORT_WAIT = 0.01
"""The timeout, in seconds, of a wait that ends by its timeout."""

LONG_WAIT = 3600.0
"""The timeout, in seconds, of a wait that another event ends: longer than any test runs."""

PATIENT = RetryPolicy(max_attempts=50, base=0, cap=0)

EVENT_LOG = "event_log"


class EventLog:
    """The file of events in a folder, as the life with this number writes to it."""

    def __init__(self, folder: Path, life: int) -> None:
        self.path = folder / EVENT_LOG
        self._journal = Journal(self.path)
        self._life = life

    def write(self, kind: str, *values: Any) -> None:
        self._journal.line(json.dumps([kind, self._life, *values], separators=(",", ":")))


def read_events(path: Path) -> Iterator[list[Any]]:
    """Yield the events that were written so far, each as [kind, life, value, …]."""
    with path.open() as file:
        for line in file:
            yield json.loads(line)


class Recorder:
    """The calls of workflows through `ctx`, with a line in the event log of the current life for each."""

    _log: EventLog
    _on_step: Callable[[], None]

    def attach(self, log: EventLog, on_step: Callable[[], None]) -> None:
        """Write to this log from now on. Each function of a step calls `on_step`."""
        self._log = log
        self._on_step = on_step

    def enter(self, ctx: TaskContext) -> None:
        self._log.write("enter", *_turn_fields(ctx), ctx.state)
        if ctx.turn > 1:
            self._log.write("received", *_turn_fields(ctx), "continued", ctx.received)

    def leave(self, ctx: TaskContext, outcome: Continue[Any] | Done[Any]) -> Continue[Any] | Done[Any]:
        match outcome:
            case Done(result=value):
                self._log.write("leave", *_turn_fields(ctx), "done", value)
            case Continue(state=value):
                self._log.write("leave", *_turn_fields(ctx), "continue", value)
        return outcome

    async def step(
        self,
        ctx: TaskContext,
        name: str,
        value: Any,
        *,
        key: str | None = None,
        plain: bool = False,
        failures: int = 0,
        retry: RetryPolicy | None = None,
    ) -> Any:
        """Run a step whose function returns `value`, after it has raised `failures` times."""
        identity = name if key is None else f"{name}/{key}"

        def begin() -> None:
            self._log.write("begin", *_turn_fields(ctx), identity)
            self._on_step()
            if failures and self._count_failures(ctx, identity) < failures:
                self._log.write("fail", *_turn_fields(ctx), identity)
                raise ConnectionError(f"{identity} fails")

        def run_plain() -> Any:
            begin()
            self._log.write("end", *_turn_fields(ctx), identity, value)
            return value

        async def run_async() -> Any:
            begin()
            await anyio.lowlevel.checkpoint()
            self._log.write("end", *_turn_fields(ctx), identity, value)
            return value

        result = await ctx.step(name, run_plain if plain else run_async, key=key, retry=retry)
        self._log.write("got", *_turn_fields(ctx), identity, result)
        return result

    async def wait(self, ctx: TaskContext, name: str, awaitable: Awaitable[Any]) -> Any:
        """Wait for the awaitable. `name` is the name of the wait in the database."""
        result = await awaitable
        self._log.write("received", *_turn_fields(ctx), name, result)
        return result

    async def wait_for_first(self, ctx: TaskContext, key: str, alternatives: dict[str, Any]) -> First:
        first = await ctx.wait_any(alternatives, key=key)
        self._log.write("received", *_turn_fields(ctx), f"wait_any:{key}/{first.name}", first.value)
        return first

    def record_effect(self, payload: dict[str, Any]) -> None:
        self._log.write("effect", payload)

    def was_retried(self, ctx: TaskContext) -> bool:
        """Return whether a person has retried this task."""
        return any(kind == "retried" and values == [ctx.task_id] for kind, _, *values in read_events(self._log.path))

    def _count_failures(self, ctx: TaskContext, identity: str) -> int:
        """Return how often this step has failed, in all lives."""
        step = ("fail", ctx.task_id, ctx.turn, identity)
        events = _read_step_events(self._log.path)
        return sum((kind, task, turn, name) == step for kind, _, task, turn, _, name in events)


def _turn_fields(ctx: TaskContext) -> tuple[str, int, str]:
    return ctx.task_id, ctx.turn, ctx.execution_id


def _read_step_events(path: Path) -> Iterator[list[Any]]:
    return (line for line in read_events(path) if line[0] in ("begin", "fail"))


class Router:
    """The router: a description `news in SESSION` names a session, and `WORKFLOW in SESSION` also a workflow."""

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        kind, _, session = (trigger.description or "").partition(" in ")
        return Route(session_id=session) if kind == "news" else Route(workflow=kind, session_id=session)


def an_app(recorder: Recorder) -> App:
    """Return an app with every kind of workflow. The result of each does not depend on the number of interruptions."""
    app = App("mortal", router=Router())

    @app.workflow("chat", sources=("MESSAGE",), retry=PATIENT)
    async def chat(ctx: TaskContext, text: str, limit: int) -> Any:
        recorder.enter(ctx)
        state = ctx.state or {"count": 0, "texts": []}
        read = await recorder.step(ctx, "read", ctx.received["text"] if ctx.turn > 1 else text)
        await ctx.reply(f"re {read}")
        state = {"count": state["count"] + 1, "texts": [*state["texts"], read]}
        return recorder.leave(ctx, Done(state) if state["count"] == limit else Continue(state, on="message"))

    @app.workflow("work", retry=PATIENT)
    async def work(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        done = [
            await recorder.step(ctx, "async", f"{name} a"),
            await recorder.step(ctx, "plain", f"{name} p", plain=True),
        ]
        await ctx.note("remember", {"done": done})
        await ctx.emit("effect", {"task": ctx.task_id, "turn": ctx.turn, "item": "first"})
        for item in ("x", "y"):
            done.append(await recorder.step(ctx, "item", f"{name} {item}", key=item, plain=item == "y"))
        async with anyio.create_task_group() as group:
            for item in ("q", "r", "s"):
                group.start_soon(_run_concurrent_step, ctx, name, item)
        return recorder.leave(ctx, Done(done))

    async def _run_concurrent_step(ctx: TaskContext, name: str, item: str) -> None:
        await recorder.step(ctx, "concurrent", f"{name} {item}", key=item, plain=item == "s")
        if item == "r":
            await ctx.emit("effect", {"task": ctx.task_id, "turn": ctx.turn, "item": item}, key=item)

    @app.workflow("waits", retry=PATIENT)
    async def waits(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        results = []
        await recorder.wait(ctx, "sleep#1", ctx.sleep(SHORT_WAIT))
        send = ctx.ask("Send it?", ["send", "hold"], timeout=LONG_WAIT, default="hold", key="send")
        results.append(await recorder.wait(ctx, "ask:send", send))
        before = await recorder.step(ctx, "between", f"{name} between")
        results.append(await recorder.wait(ctx, "wait_for:go", ctx.wait_for("go", timeout=LONG_WAIT, key="go")))
        unanswered = ctx.ask("No answer?", timeout=SHORT_WAIT, default="no answer", key="unanswered")
        results.append(await recorder.wait(ctx, "ask:unanswered", unanswered))
        results.append(await recorder.wait(ctx, "ask:reply", ctx.ask("Reply?", by_message=True, key="reply")))
        late = {"event": Event("never"), "unanswered": Ask("No answer here?"), "late": Timer(SHORT_WAIT)}
        results.append((await recorder.wait_for_first(ctx, "late", late)).name)
        return recorder.leave(ctx, Done([before, *results]))

    @app.workflow("beside", retry=PATIENT)
    async def beside(ctx: TaskContext, name: str) -> Any:
        """Wait in tasks beside each other: all waits are begun together, and end one by one."""
        recorder.enter(ctx)
        results: dict[str, Any] = {}

        async def ask() -> None:
            send = ctx.ask("Send it?", ["send", "hold"], timeout=LONG_WAIT, default="hold", key="send")
            results["send"] = await recorder.wait(ctx, "ask:send", send)
            results["sent"] = await recorder.step(ctx, "sent", f"{name} sent")

        async def receive() -> None:
            results["go"] = await recorder.wait(ctx, "wait_for:go", ctx.wait_for("go", timeout=LONG_WAIT, key="go"))
            check = ctx.ask("Check it?", ["good", "bad"], key="check")
            results["check"] = await recorder.wait(ctx, "ask:check", check)

        async def rest() -> None:
            await recorder.wait(ctx, "sleep:nap", ctx.sleep(SHORT_WAIT, key="nap"))
            results["rested"] = await recorder.step(ctx, "rested", f"{name} rested", plain=True)

        async def choose() -> None:
            offered = {"event": Event("never"), "asked": Ask("This one?", ["yes", "no"]), "late": Timer(LONG_WAIT)}
            results["chosen"] = (await recorder.wait_for_first(ctx, "choice", offered)).name

        async def work() -> None:
            results["work"] = await recorder.step(ctx, "work", f"{name} work")

        async with anyio.create_task_group() as group:
            for task in (ask, receive, rest, choose, work):
                group.start_soon(task)
        return recorder.leave(ctx, Done(dict(sorted(results.items()))))

    @app.workflow("loop", retry=PATIENT)
    async def loop(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        count = await recorder.step(ctx, "add", (ctx.state or 0) + 1, plain=ctx.turn % 2 == 0)
        match count:
            case 1:
                return recorder.leave(ctx, Continue(count))
            case 2:
                return recorder.leave(ctx, Continue(count, after=SHORT_WAIT))
            case 3:
                return recorder.leave(ctx, Continue(count, on="tick", after=LONG_WAIT))
            case 4:
                return recorder.leave(ctx, Continue(count, on="tock", after=SHORT_WAIT))
        return recorder.leave(ctx, Done([name, count]))

    @app.workflow("routed", retry=PATIENT)
    async def routed(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        done = await recorder.step(ctx, "part", f"{name} part {ctx.turn}")
        if ctx.turn == 1:
            return recorder.leave(ctx, Continue(done, on="proactive", after=LONG_WAIT))
        return recorder.leave(ctx, Done([ctx.state, done, ctx.received]))

    @app.workflow("parent", retry=PATIENT)
    async def parent(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        first = await ctx.start_child("child", {"name": f"{name}.first"})
        plain = await ctx.start_child("effect", {"task": ctx.task_id, "turn": ctx.turn, "item": "child"}, key="plain")
        await _wait_for_child(ctx, plain)
        ends = [await _child_result(ctx, first)]
        others = [await ctx.start_child(kind, {"name": f"{name}.{kind}"}) for kind in ("broken", "endless")]
        return recorder.leave(ctx, Done([*ends, *[await _child_result(ctx, child) for child in (plain, *others)]]))

    async def _wait_for_child(ctx: TaskContext, child: Child) -> None:
        """Wait for the end of a child, and for an event and a timer that come later."""
        with suppress(ChildFailed):  # a child that is poison
            await recorder.wait_for_first(
                ctx, "child", {"event": Event("never"), "child": child, "late": Timer(LONG_WAIT)}
            )

    async def _child_result(ctx: TaskContext, child: Child) -> Any:
        """Return the result of a child, or the status with which it ended."""

        async def result() -> Any:
            try:
                return await child.result()
            except ChildFailed as failed:
                return failed.details["status"]

        return await recorder.wait(ctx, f"child/{child.id}", result())

    @app.workflow("child", retry=PATIENT)
    async def child(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        part = await recorder.step(ctx, "part", f"{name} part")
        await recorder.wait(ctx, "sleep:nap", ctx.sleep(SHORT_WAIT, key="nap"))
        return recorder.leave(ctx, Done(part))

    @app.workflow("broken", retry=PATIENT)
    async def broken(ctx: TaskContext, name: str) -> None:
        recorder.enter(ctx)
        await recorder.step(ctx, "before", f"{name} before")
        raise Fail("BROKEN", "always broken")

    @app.workflow("endless", retry=PATIENT)
    async def endless(ctx: TaskContext, name: str) -> None:
        recorder.enter(ctx)
        await recorder.step(ctx, "before", f"{name} before")
        await ctx.wait_for("end")

    @app.workflow("shaky", retry=PATIENT)
    async def shaky(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        done = [await recorder.step(ctx, "brittle", f"{name} brittle", failures=2, retry=PATIENT)]
        if ctx.attempt == 1:
            raise Retry("the first attempt fails")
        done.append(await recorder.step(ctx, "hard", f"{name} hard", failures=1))
        done.append(await recorder.step(ctx, "last", f"{name} last", plain=True))
        return recorder.leave(ctx, Done(done))

    @app.workflow("mended", retry=PATIENT)
    async def mended(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        before = await recorder.step(ctx, "before", f"{name} before")
        if not recorder.was_retried(ctx):
            raise Fail("BROKEN", "broken until a person retries the task")
        return recorder.leave(ctx, Done([before, await recorder.step(ctx, "after", f"{name} after")]))

    @app.workflow("race", retry=PATIENT)
    async def race(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        quick = ctx.ask("Quick?", ["yes", "no"], timeout=2 * SHORT_WAIT, default="no", key="quick")
        answer = await recorder.wait(ctx, "ask:quick", quick)
        first = {"answer": Ask("First?", ["yes", "no"]), "late": Timer(2 * SHORT_WAIT)}
        return recorder.leave(ctx, Done([name, answer, (await recorder.wait_for_first(ctx, "quick", first)).name]))

    @app.workflow("victim", retry=PATIENT)
    async def victim(ctx: TaskContext, name: str) -> Any:
        recorder.enter(ctx)
        count = await recorder.step(ctx, "add", (ctx.state or 0) + 1, plain=ctx.turn % 2 == 0)
        await anyio.sleep(SHORT_WAIT / 10)
        return recorder.leave(ctx, Continue(count) if count < 9 else Done([name, count]))

    @app.workflow("effect", retry=PATIENT)
    async def effect(task: str, turn: int, item: str) -> str:
        recorder.record_effect({"task": task, "turn": turn, "item": item})
        return item

    return app
