"""The workflows of the task campaigns, one of each kind, and their actions outside of the database.

User code writes its actions and inputs, one line each, to an append-only file that all lives share:

    enter   a workflow is entered: with its state           heard   the result of a wait, or the event of a turn
    begin   the function of a step begins                   got     the result of a step; from here on it is on disk
    end     the function is about to return                 leave   the value that the turn is about to return
    fail    the function is about to raise                  effect  an emitted trigger runs

Lines are in the order of the events, in all processes. A kill loses no written line: the power stays on, and the kernel
keeps the data that a dead process wrote.
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

A_MOMENT = 0.01
"""How long a wait lasts that nobody ends."""

FOR_EVER = 3600.0
"""The timeout of a wait that somebody ends: no test lives as long."""

PATIENT = RetryPolicy(max_attempts=50, base=0, cap=0)

SEEN = "seen"


class Seen:
    """The file of one folder, as one life writes to it."""

    def __init__(self, folder: Path, life: int) -> None:
        self.path = folder / SEEN
        self._journal = Journal(self.path)
        self._life = life

    def line(self, what: str, *more: Any) -> None:
        self._journal.line(json.dumps([what, self._life, *more], separators=(",", ":")))


def lines_of(path: Path) -> Iterator[list[Any]]:
    """All that was written so far: [what, life, …]."""
    with path.open() as file:
        for line in file:
            yield json.loads(line)


class Deeds:
    """What workflows do through `ctx`, written down in the life that is lived."""

    _seen: Seen
    _on_step: Callable[[], None]

    def live(self, seen: Seen, on_step: Callable[[], None]) -> None:
        """A life begins. `on_step` is called in each function of a step."""
        self._seen = seen
        self._on_step = on_step

    def enter(self, ctx: TaskContext) -> None:
        self._seen.line("enter", *_where(ctx), ctx.state)
        if ctx.turn > 1:
            self._seen.line("heard", *_where(ctx), "continued", ctx.received)

    def leave(self, ctx: TaskContext, outcome: Continue[Any] | Done[Any]) -> Continue[Any] | Done[Any]:
        match outcome:
            case Done(result=value):
                self._seen.line("leave", *_where(ctx), "done", value)
            case Continue(state=value):
                self._seen.line("leave", *_where(ctx), "continue", value)
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
        """A step whose function brings `value`, after it has failed so often."""
        identity = name if key is None else f"{name}/{key}"

        def begin() -> None:
            self._seen.line("begin", *_where(ctx), identity)
            self._on_step()
            if failures and self._failed(ctx, identity) < failures:
                self._seen.line("fail", *_where(ctx), identity)
                raise ConnectionError(f"{identity} fails")

        def do_it() -> Any:
            begin()
            self._seen.line("end", *_where(ctx), identity, value)
            return value

        async def do() -> Any:
            begin()
            await anyio.lowlevel.checkpoint()
            self._seen.line("end", *_where(ctx), identity, value)
            return value

        result = await ctx.step(name, do_it if plain else do, key=key, retry=retry)
        self._seen.line("got", *_where(ctx), identity, result)
        return result

    async def wait(self, ctx: TaskContext, name: str, waiting: Awaitable[Any]) -> Any:
        """Wait; `name` is the wait's in its table."""
        brought = await waiting
        self._seen.line("heard", *_where(ctx), name, brought)
        return brought

    async def first(self, ctx: TaskContext, key: str, alternatives: dict[str, Any]) -> First:
        """Wait for the first of several."""
        first = await ctx.wait_any(alternatives, key=key)
        self._seen.line("heard", *_where(ctx), f"wait_any:{key}/{first.name}", first.value)
        return first

    def effect(self, payload: dict[str, Any]) -> None:
        self._seen.line("effect", payload)

    def was_retried(self, ctx: TaskContext) -> bool:
        """Whether a person has let this task try again."""
        return any(what == "retried" and more == [ctx.task_id] for what, _, *more in lines_of(self._seen.path))

    def _failed(self, ctx: TaskContext, identity: str) -> int:
        """How often this step has failed, in whichever life."""
        failed = ((task, turn, who) for what, _, task, turn, _, who in _steps(self._seen.path) if what == "fail")
        return sum(step == (ctx.task_id, ctx.turn, identity) for step in failed)


def _where(ctx: TaskContext) -> tuple[str, int, str]:
    return ctx.task_id, ctx.turn, ctx.execution_id


def _steps(path: Path) -> Iterator[list[Any]]:
    return (line for line in lines_of(path) if line[0] in ("begin", "fail"))


class Rule:
    """What names no workflow says in its description where it goes: to the live task of a session, or to a workflow."""

    async def route(self, trigger: RoutedTrigger, context: RoutingContext) -> Route:
        kind, _, session = (trigger.description or "").partition(" in ")
        return Route(session_id=session) if kind == "news" else Route(workflow=kind, session_id=session)


def an_app(deeds: Deeds) -> App:
    """Every kind of workflow. What each comes to does not depend on how often it was interrupted."""
    app = App("mortal", router=Rule())

    @app.workflow("chat", sources=("MESSAGE",), retry=PATIENT)
    async def chat(ctx: TaskContext, text: str, upto: int) -> Any:
        deeds.enter(ctx)
        state = ctx.state or {"count": 0, "said": []}
        said = await deeds.step(ctx, "hear", ctx.received["text"] if ctx.turn > 1 else text)
        state = {"count": state["count"] + 1, "said": [*state["said"], said]}
        return deeds.leave(ctx, Done(state) if state["count"] == upto else Continue(state, on="message"))

    @app.workflow("work", retry=PATIENT)
    async def work(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        done = [await deeds.step(ctx, "async", f"{name} a"), await deeds.step(ctx, "plain", f"{name} p", plain=True)]
        await ctx.note("remember", {"done": done})
        await ctx.emit("effect", {"of": ctx.task_id, "turn": ctx.turn, "what": "first"})
        for item in ("x", "y"):
            done.append(await deeds.step(ctx, "item", f"{name} {item}", key=item, plain=item == "y"))
        async with anyio.create_task_group() as beside:
            for item in ("q", "r", "s"):
                beside.start_soon(_beside, ctx, name, item)
        return deeds.leave(ctx, Done(done))

    async def _beside(ctx: TaskContext, name: str, item: str) -> None:
        await deeds.step(ctx, "beside", f"{name} {item}", key=item, plain=item == "s")
        if item == "r":
            await ctx.emit("effect", {"of": ctx.task_id, "turn": ctx.turn, "what": item}, key=item)

    @app.workflow("waits", retry=PATIENT)
    async def waits(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        brought = []
        await deeds.wait(ctx, "sleep#1", ctx.sleep(A_MOMENT))
        send = ctx.ask("Send it?", ["send", "hold"], timeout=FOR_EVER, default="hold", key="send")
        brought.append(await deeds.wait(ctx, "ask:send", send))
        before = await deeds.step(ctx, "between", f"{name} between")
        brought.append(await deeds.wait(ctx, "wait_for:go", ctx.wait_for("go", timeout=FOR_EVER, key="go")))
        nobody = ctx.ask("Nobody answers?", timeout=A_MOMENT, default="nobody", key="nobody")
        brought.append(await deeds.wait(ctx, "ask:nobody", nobody))
        brought.append(await deeds.wait(ctx, "ask:reply", ctx.ask("Reply?", by_message=True, key="reply")))
        late = {"event": Event("never"), "nobody": Ask("Nobody is there?"), "late": Timer(A_MOMENT)}
        brought.append((await deeds.first(ctx, "late", late)).name)
        return deeds.leave(ctx, Done([before, *brought]))

    @app.workflow("loop", retry=PATIENT)
    async def loop(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        count = await deeds.step(ctx, "add", (ctx.state or 0) + 1, plain=ctx.turn % 2 == 0)
        match count:
            case 1:
                return deeds.leave(ctx, Continue(count))
            case 2:
                return deeds.leave(ctx, Continue(count, after=A_MOMENT))
            case 3:
                return deeds.leave(ctx, Continue(count, on="tick", after=FOR_EVER))
            case 4:
                return deeds.leave(ctx, Continue(count, on="tock", after=A_MOMENT))
        return deeds.leave(ctx, Done([name, count]))

    @app.workflow("routed", retry=PATIENT)
    async def routed(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        done = await deeds.step(ctx, "part", f"{name} part {ctx.turn}")
        if ctx.turn == 1:
            return deeds.leave(ctx, Continue(done, on="proactive", after=FOR_EVER))
        return deeds.leave(ctx, Done([ctx.state, done, ctx.received]))

    @app.workflow("parent", retry=PATIENT)
    async def parent(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        first = await ctx.start_child("child", {"name": f"{name}.first"})
        plain = await ctx.start_child("effect", {"of": ctx.task_id, "turn": ctx.turn, "what": "child"}, key="plain")
        await _first(ctx, plain)
        ends = [await _end(ctx, first)]
        others = [await ctx.start_child(kind, {"name": f"{name}.{kind}"}) for kind in ("broken", "endless")]
        return deeds.leave(ctx, Done([*ends, *[await _end(ctx, child) for child in (plain, *others)]]))

    async def _first(ctx: TaskContext, child: Child) -> None:
        """Wait for the end of a child, and for what does not come."""
        with suppress(ChildFailed):  # of poison
            await deeds.first(ctx, "child", {"event": Event("never"), "child": child, "late": Timer(FOR_EVER)})

    async def _end(ctx: TaskContext, child: Child) -> Any:
        """What a child brought, or how it ended."""

        async def result() -> Any:
            try:
                return await child.result()
            except ChildFailed as failed:
                return failed.details["status"]

        return await deeds.wait(ctx, f"child/{child.id}", result())

    @app.workflow("child", retry=PATIENT)
    async def child(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        part = await deeds.step(ctx, "part", f"{name} part")
        await deeds.wait(ctx, "sleep:nap", ctx.sleep(A_MOMENT, key="nap"))
        return deeds.leave(ctx, Done(part))

    @app.workflow("broken", retry=PATIENT)
    async def broken(ctx: TaskContext, name: str) -> None:
        deeds.enter(ctx)
        await deeds.step(ctx, "before", f"{name} before")
        raise Fail("BROKEN", "it never will")

    @app.workflow("endless", retry=PATIENT)
    async def endless(ctx: TaskContext, name: str) -> None:
        deeds.enter(ctx)
        await deeds.step(ctx, "before", f"{name} before")
        await ctx.wait_for("end")

    @app.workflow("shaky", retry=PATIENT)
    async def shaky(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        done = [await deeds.step(ctx, "brittle", f"{name} brittle", failures=2, retry=PATIENT)]
        if ctx.attempt == 1:
            raise Retry("not the first time")
        done.append(await deeds.step(ctx, "hard", f"{name} hard", failures=1))
        done.append(await deeds.step(ctx, "last", f"{name} last", plain=True))
        return deeds.leave(ctx, Done(done))

    @app.workflow("mended", retry=PATIENT)
    async def mended(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        before = await deeds.step(ctx, "before", f"{name} before")
        if not deeds.was_retried(ctx):
            raise Fail("BROKEN", "until a person says: again")
        return deeds.leave(ctx, Done([before, await deeds.step(ctx, "after", f"{name} after")]))

    @app.workflow("race", retry=PATIENT)
    async def race(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        quick = ctx.ask("Quick?", ["yes", "no"], timeout=2 * A_MOMENT, default="no", key="quick")
        answer = await deeds.wait(ctx, "ask:quick", quick)
        first = {"answer": Ask("First?", ["yes", "no"]), "late": Timer(2 * A_MOMENT)}
        return deeds.leave(ctx, Done([name, answer, (await deeds.first(ctx, "quick", first)).name]))

    @app.workflow("victim", retry=PATIENT)
    async def victim(ctx: TaskContext, name: str) -> Any:
        deeds.enter(ctx)
        count = await deeds.step(ctx, "add", (ctx.state or 0) + 1, plain=ctx.turn % 2 == 0)
        await anyio.sleep(A_MOMENT / 10)
        return deeds.leave(ctx, Continue(count) if count < 9 else Done([name, count]))

    @app.workflow("effect", retry=PATIENT)
    async def effect(of: str, turn: int, what: str) -> str:
        deeds.effect({"of": of, "turn": turn, "what": what})
        return what

    return app
