"""A database with tasks at rest, as a stopped engine leaves it, for commands and producers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import anyio
import msgspec

from craftcore import App, Continue, Done, Fail, RetryPolicy, TaskContext
from craftcore.clock import Clock
from craftcore.daemon.lifespan import running
from tests.support.engine_harness import settings
from tests.support.fakes import ClockState, VirtualClock, VirtualCore
from tests.support.log_capture import suppressed_logs
from tests.support.processes import PATIENCE

T = TypeVar("T")
HOUR = 3600.0

_RUN: dict[tuple[str, ClockState], tuple[Any, dict[str, bytes], ClockState]] = {}
"""The result, the files and the clock of a run on a new file, by its description and the clock before the run."""

FILES = ("", ".lock")
"""The suffixes of the files of a closed database."""


_RUN_MAX = 40


@dataclass
class Shipping:
    """The form of a question."""

    street: str
    count: Annotated[int, msgspec.Meta(ge=1, le=9)] = 1
    express: bool = False
    speed: Literal["slow", "fast"] = "slow"


def an_app() -> App:
    """Return an app with one workflow for each kind of wait and each kind of end."""
    app = App("resting")

    @app.workflow("ask")
    async def ask(ctx: TaskContext, question: str = "Send it?", **asked: Any) -> Any:
        asked.setdefault("options", ["send", "hold"])
        return await ctx.ask(question, **asked)

    @app.workflow("ship")
    async def ship(ctx: TaskContext) -> Shipping:
        return await ctx.ask("Where to?", form=Shipping, to="finance")

    @app.workflow("wait")
    async def wait(ctx: TaskContext, timeout: float | None = None) -> Any:
        return await ctx.wait_for("approved", timeout=timeout)

    @app.workflow("nap")
    async def nap(ctx: TaskContext, seconds: float = HOUR) -> str:
        await ctx.step("lullaby", sing, "la la")
        await ctx.note("mood", {"sleepy": True})
        await ctx.sleep(seconds)
        return "awake"

    async def sing(text: str) -> str:
        return text.upper()

    @app.workflow("chat", sources=["MESSAGE"])
    async def chat(ctx: TaskContext[list[str]], text: str) -> Any:
        texts = [*(ctx.state or []), ctx.received["text"] if ctx.received else text]
        return Done(texts) if "bye" in texts else Continue(texts, on="message")

    @app.workflow("replies")
    async def replies(ctx: TaskContext, text: str) -> Any:
        said = text if ctx.turn == 1 else ctx.received["text"]
        if said == "fail":
            raise Fail("VALIDATION_ERROR", "it has no answer")
        if said == "ask":
            await ctx.ask("What does it say?")
        await ctx.reply({"said": said})
        return Continue(None, on="message")

    @app.workflow("count")
    async def count(ctx: TaskContext[int], upto: int = 3) -> Any:
        return Continue((ctx.state or 0) + 1) if ctx.turn < upto else ctx.state

    @app.workflow("parent")
    async def parent(ctx: TaskContext) -> Any:
        return await (await ctx.start_child("nap")).result()

    @app.workflow("fails", max_attempts=1)
    async def fails(ctx: TaskContext[int], code: str | None = "VALIDATION_ERROR") -> Any:
        if ctx.turn == 1:
            return Continue(1)
        if code is None:
            raise RuntimeError("it broke")
        raise Fail(code, "it never will")

    @app.workflow("shaky", retry=RetryPolicy(max_attempts=3, base=HOUR, cap=HOUR))
    async def shaky(ctx: TaskContext) -> None:
        raise RuntimeError("not yet")

    @app.workflow("plain")
    async def plain(name: str = "you") -> str:
        return f"Hello {name}"

    return app


def at_rest(path: Path, act: Callable[[App], Awaitable[T]], clock: Clock | None = None, app: App | None = None) -> T:
    """Run an engine on the file, call `act`, and stop when no work runs or is due."""
    app = app or an_app()
    if not path.exists():
        VirtualCore(path, clock if isinstance(clock, VirtualClock) else VirtualClock()).close()

    async def live() -> T:
        async with running(app, path, settings(), clock) as engine:
            answer = await act(app)
            with anyio.fail_after(PATIENCE):
                while not engine.is_idle:  # noqa: ASYNC110 - an engine has no event to wait on
                    await anyio.sleep(0.002)
        return answer

    with suppressed_logs():
        return anyio.run(live)


def a_task(
    path: Path, workflow: str, clock: Clock | None = None, /, *, session_id: str | None = None, **payload: Any
) -> str:
    """Run a task until the engine is idle, and return its id.

    The first task of a new file with an unused clock is run once, and then copied.
    """

    async def emit(app: App) -> str:
        return (await app.emit(workflow, payload, session_id=session_id)).id

    return run_once(path, clock, repr((workflow, session_id, payload)), lambda: at_rest(path, emit, clock))


def run_once(path: Path, clock: Clock | None, description: str, run: Callable[[], T]) -> T:
    """Return the result of `run`, which leaves the database closed and its tasks at rest.

    On a new file with a virtual clock, `run` is called once for each description and state of the clock. Later calls
    copy its files and its clock. The description must name everything else that the run depends on. The cache ignores
    monkeypatch, so a test must not patch anything before the first call.
    """
    if not isinstance(clock, VirtualClock) or path.exists() or path.is_symlink():
        return run()
    began = description, clock.state
    if began not in _RUN:
        answer = run()
        files = {end: path.with_name(path.name + end).read_bytes() for end in FILES}
        if len(_RUN) == _RUN_MAX:
            del _RUN[next(iter(_RUN))]
        _RUN[began] = answer, files, clock.state
        return answer
    known: T
    known, files, clock.state = _RUN[began]
    restore_files(path, files)
    return known


def restore_files(path: Path, files: dict[str, bytes]) -> None:
    """Write the files of a closed database, with the permissions that a new one has."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    for end, content in files.items():
        file = path.with_name(path.name + end)
        file.touch(mode=0o600)
        file.write_bytes(content)
