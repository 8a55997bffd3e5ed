"""App: declarations of user code, and the calls into the engine that runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from craftcore.client.backend import Backend
from craftcore.client.work_calls import WorkCalls
from craftcore.config import Config, config_of
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.registry.declarations import Declarations
from craftcore.results.handle import EmittedHandle

if TYPE_CHECKING:
    from craftcore.engine.engine import Engine
    from craftcore.engine.turn.context import TaskContext
    from craftcore.temporal.cluster_requests import ClusterRequests


P = ParamSpec("P")
R = TypeVar("R")


class App(Declarations, WorkCalls):
    """An app: workflows, and a router if it needs its own.

        app = App("assistant")

        @app.workflow("greet")
        async def greet(name: str) -> str:
            return f"Hello {name}"

    Run it with `craftcore run MODULE:app`, or inside a program with `async with app.running("agent.db"):`.
    """

    _engine: Engine | None

    @overload
    async def start_workflow(
        self, workflow: Callable[Concatenate[TaskContext[Any], P], Awaitable[R]], /, *args: P.args, **payload: P.kwargs
    ) -> EmittedHandle[R]: ...

    @overload
    async def start_workflow(
        self, workflow: Callable[P, Awaitable[R]], /, *args: P.args, **payload: P.kwargs
    ) -> EmittedHandle[R]: ...

    @overload
    async def start_workflow(
        self, workflow: Callable[P, R], /, *args: P.args, **payload: P.kwargs
    ) -> EmittedHandle[R]: ...

    async def start_workflow(self, workflow: Callable[..., Any], /, *args: Any, **payload: Any) -> EmittedHandle[Any]:
        """Accept a trigger for a function that this app declares as a workflow, with these arguments, by name. A type
        checker knows them, and the type of the result. Errors are those of `emit`, which has options."""
        if args:
            raise InvalidInput("start_workflow takes the arguments of a workflow by name")
        return await self.emit(self.find_name(workflow), payload)

    def running(
        self, path: str | Path, *, config: Config | str | Path | None = None
    ) -> AbstractAsyncContextManager[Engine]:
        """Return the engine inside a program of one's own, on asyncio or trio: `async with app.running("agent.db"):`.

        It has what the daemon has: the ready-made workflows and actions, schedules of the settings, retention, metrics.
        `config`: settings, or the path of a settings file; None: the defaults. Leaving the block drains: running
        workflows get `daemon.shutdown_grace` seconds. Raises ConfigInvalid; DaemonRunning when another process runs
        this database.
        """
        from craftcore.daemon.lifespan import running  # what an App runs is wired above it

        return running(self, Path(path), config_of(config))

    def connected(
        self, url: str, *, config: Config | str | Path | None = None
    ) -> AbstractAsyncContextManager[ClusterRequests]:
        """Return a connection to a Temporal cluster for a program that runs no worker.

        In `async with app.connected("temporal://host:7233/namespace"):` the calls of the app go to the cluster, on
        asyncio. The namespace may be left out. `config`: settings, whose [temporal] has TLS, key and data converter.
        Raises InvalidInput for another URL, ConfigInvalid without the extra temporal, ClusterUnavailable.
        """
        from craftcore.config.temporal_settings import read_url

        given = config_of(config)
        settings = read_url(url, given.temporal)
        try:
            from craftcore.temporal.attachment import connected  # its library is large, and may be missing
        except ModuleNotFoundError as error:
            raise ConfigInvalid("a cluster needs temporalio: pip install 'craftcore[temporal]'") from error
        return connected(self, settings)

    def lifespan(
        self, path: str | Path, *, config: Config | str | Path | None = None
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """Return the lifespan of a Starlette or FastAPI application: `FastAPI(lifespan=app.lifespan("agent.db"))`.

        The engine runs while the server does, on its event loop. Arguments and errors are those of `running`. When the
        engine fails, the calls of the app raise InvalidInput from then on, and the server logs the error.
        """

        @asynccontextmanager
        async def run(_application: Any) -> AsyncIterator[None]:
            async with self.running(path, config=config):
                yield

        return run

    def attach(self, engine: Engine | None) -> None:
        """Set the engine that runs this app, or None. Raises ConfigInvalid for a second engine."""
        super().attach(engine)

    @property
    def _backend(self) -> Backend:
        if self._engine is None:
            raise InvalidInput(
                "the app is not running: emit inside `async with app.running(...)`, or from outside with a Producer"
            )
        return self._engine.client
