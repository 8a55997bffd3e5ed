"""The kinds of callers that make the calls of `WorkCalls`, over a file and over a cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio
import anyio.to_thread
import msgspec
import pytest

from craftcore import App, AsyncProducer, Call, Continue, Producer, TaskContext
from craftcore.client.backend import Capability
from craftcore.results.handle import BlockingHandle
from craftcore.tasks.model import Question, Task
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.temporal_producer import TemporalProducer
from craftcore.temporal.worker import working
from tests.support.engine_harness import lab
from tests.support.processes import PATIENCE
from tests.temporal.conftest import cluster as cluster
from tests.temporal.conftest import frequent_heartbeats as frequent_heartbeats
from tests.temporal.conftest import stop_server

T = TypeVar("T")

FILE = ("app", "async producer", "producer")
CLUSTER = ("app on a cluster", "producer of a cluster")


failed_attempts: list[str] = []
"""The ids of the tasks whose workflow `fail` ran, once for each attempt."""


class Order(msgspec.Struct):
    """The form of a question. It refuses an odd count itself."""

    item: str
    count: Annotated[int, msgspec.Meta(ge=1)] = 2

    def __post_init__(self) -> None:
        if self.count % 2:
            raise ValueError("an odd count")


def build_app() -> App:
    """Return the app that the calls are about."""
    app = App("backends")

    @app.workflow("add")
    async def add(ctx: TaskContext, left: int, right: int) -> int:
        return await ctx.step("add", lambda: left + right)

    @app.workflow("wait")
    async def wait(ctx: TaskContext) -> Any:
        return await ctx.wait_for("go")

    @app.workflow("ask")
    async def ask(ctx: TaskContext) -> str | None:
        return await ctx.ask("Shall I?", ["yes", "no"])

    @app.workflow("order")
    async def order(ctx: TaskContext) -> list[Any]:
        asked = await ctx.ask("How many?", form=Order, to="finance")
        return [type(asked).__name__, asked.item, asked.count]

    @app.workflow("fail", max_attempts=1)
    async def fail(ctx: TaskContext) -> str:
        failed_attempts.append(ctx.task_id)
        raise ConnectionError("down")

    @app.workflow("chat")
    async def chat(ctx: TaskContext) -> Continue[int]:
        if ctx.turn == 2:
            await ctx.wait_for("more")
        return Continue(ctx.turn, on="go")

    @app.workflow("reply", max_attempts=1)
    async def reply(ctx: TaskContext, text: str) -> Continue[None]:
        said = text if ctx.turn == 1 else ctx.received["text"]
        await ctx.reply(f"{said}?")
        return Continue(None, on="message")

    @app.action("pay", irreversible=True)
    async def pay(call: Call) -> str:
        raise ConnectionError("the answer of the provider is lost")

    @app.workflow("buy")
    async def buy(ctx: TaskContext) -> str:
        return await ctx.act(pay)

    return app


class Caller:
    """One kind of caller. Each of its calls is awaited here, also a blocking one."""

    def __init__(self, calls: Any, lacks: dict[Capability, str]) -> None:
        self.calls = calls
        self.lacks = lacks

    async def make(self, name: str, *args: Any, **kwargs: Any) -> Any:
        """Make a call, and return its result."""
        return await run(getattr(self.calls, name), *args, **kwargs)

    async def emit(self, workflow: str, **payload: Any) -> str:
        return str((await self.make("emit", workflow, payload)).id)

    async def result(self, id: str) -> Any:
        return await run(self.calls.handle(id).result, timeout=PATIENCE)

    async def wait_for_status(self, id: str, status: str, event: str = "") -> Task:
        """Wait until a task has this status, and waits for this event if one is given."""

        async def look() -> Task | None:
            task: Task | None = await self.make("task", id)
            return task if task is not None and task.status == status and event in (task.reason or "") else None

        return await until(look)

    async def wait_for_question(self, task_id: str, words: str = "") -> Question:
        """Wait until a task asks, in these words if any are given."""

        async def look() -> Question | None:
            asked = await self.make("questions")
            return next((one for one in asked if one.task_id == task_id and words in one.question), None)

        return await until(look)


async def until(look: Callable[[], Awaitable[T | None]]) -> T:
    """Wait until `look` returns a value, and return it."""
    with anyio.fail_after(PATIENCE):
        while (found := await look()) is None:  # noqa: ASYNC110 - another process changes what it returns
            await anyio.sleep(0.02)
    return found


async def run(call: Any, *args: Any, **kwargs: Any) -> Any:
    """Return the result of an awaitable or a blocking call."""
    owner = getattr(call, "__self__", None)
    if isinstance(owner, Producer | TemporalProducer | BlockingHandle):
        return await anyio.to_thread.run_sync(partial(call, *args, **kwargs))
    return await call(*args, **kwargs)


@pytest.fixture(params=[*FILE, *(pytest.param(kind, marks=pytest.mark.cluster) for kind in CLUSTER)])
def kind(request: pytest.FixtureRequest) -> str:
    """Return a kind of caller."""
    return str(request.param)


@pytest.fixture
def anyio_backend() -> str:
    """Return the event loop that all kinds of callers support."""
    return "asyncio"


@pytest.fixture
def settings_of_cluster(kind: str, request: pytest.FixtureRequest) -> TemporalSettings | None:
    """Return the settings of a running cluster; None for a file. The server starts outside of any event loop."""
    return request.getfixturevalue("cluster") if kind in CLUSTER else None


@pytest.fixture
async def caller(kind: str, settings_of_cluster: TemporalSettings | None, tmp_path: Path) -> AsyncIterator[Caller]:
    app = build_app()
    async with (
        on_file(app, kind, tmp_path)
        if settings_of_cluster is None
        else on_cluster(app, kind, settings_of_cluster) as caller
    ):
        yield caller


@asynccontextmanager
async def on_file(app: App, kind: str, folder: Path) -> AsyncIterator[Caller]:
    async with lab(app, folder) as harness:
        if kind == "app":
            yield Caller(app, {})
        elif kind == "producer":
            with Producer(harness.path) as producer:
                yield Caller(producer, {})
        else:
            async with AsyncProducer(harness.path) as producer:
                yield Caller(producer, {})


@asynccontextmanager
async def on_cluster(app: App, kind: str, settings: TemporalSettings) -> AsyncIterator[Caller]:
    from craftcore.temporal.cluster_requests import ClusterRequests

    settings = replace(settings, task_queue=f"backends {kind}")
    lacks = dict(ClusterRequests.lacks)
    async with working(app, settings):
        if kind == "app on a cluster":
            yield Caller(app, lacks)
        else:
            producer = await anyio.to_thread.run_sync(partial(TemporalProducer, settings=settings))
            with ExitStack() as stack:
                stack.callback(producer.close)
                yield Caller(producer, lacks)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """Stop the server after the last test of this folder."""
    if nextitem is None or Path(__file__).parent not in nextitem.path.parents:
        stop_server()
