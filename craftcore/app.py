"""App: declarations of user code, and the calls into the engine that runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar, overload

from craftcore.client.backend import Backend
from craftcore.client.work_calls import WorkCalls
from craftcore.config import Config, config_of
from craftcore.errors import ConfigInvalid, DaemonRunning, InvalidInput
from craftcore.registry.declarations import Declarations
from craftcore.results.handle import EmittedHandle
from craftcore.serialization.arguments import show_value
from craftcore.triggers.model import NewTrigger

if TYPE_CHECKING:
    from craftcore.client.async_producer_backend import AsyncProducerBackend
    from craftcore.engine.engine import Engine
    from craftcore.engine.turn.context import TaskContext
    from craftcore.temporal.cluster_requests import ClusterRequests


P = ParamSpec("P")
R = TypeVar("R")

SEVERAL_WORKERS = (
    'With several workers of a web server, or beside a daemon, use app.lifespan(…, client="auto"): one process runs '
    "the engine, and the others are its clients"
)


class App(Declarations, WorkCalls):
    """An app: workflows, and a router if it needs its own.

        app = App("assistant")

        @app.workflow("greet")
        async def greet(name: str) -> str:
            return f"Hello {name}"

    Run it with `craftcore run MODULE:app`, or inside a program with `async with app.running("agent.db"):`.
    """

    _engine: Engine | None
    _client: AsyncProducerBackend | None = None

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
        self,
        path: str | Path,
        *,
        config: Config | str | Path | None = None,
        client: Literal["never", "auto"] = "never",
    ) -> Callable[[Any], AbstractAsyncContextManager[None]]:
        """Return the lifespan of a Starlette or FastAPI application: `FastAPI(lifespan=app.lifespan("agent.db"))`.

        The engine runs while the server does, on its event loop. Arguments and errors are those of `running`. When the
        engine fails, the calls of the app raise InvalidInput from then on, and the server logs the error.

        `client="auto"` is for a server with several worker processes, or beside a daemon. One process runs the engine.
        In the others the same calls write into the file and wait for results there. When the process of the engine
        ends or its engine fails, another one takes over within about a second.
        """
        if client not in ("never", "auto"):
            raise ConfigInvalid(f'lifespan: client {show_value(client)} must be "never" or "auto"')

        @asynccontextmanager
        async def run(_application: Any) -> AsyncIterator[None]:
            if client == "auto":
                async with self._engine_or_client(Path(path), config_of(config)):
                    yield
                return
            try:
                async with self.running(path, config=config):
                    yield
            except DaemonRunning as error:
                raise DaemonRunning(f"{error.message}. {SEVERAL_WORKERS}", **error.details) from error

        return run

    @asynccontextmanager
    async def _engine_or_client(self, path: Path, config: Config) -> AsyncIterator[None]:
        from craftcore.client.app_client_backend import AppClientBackend
        from craftcore.daemon.takeover import engine_or_client  # what an App runs is wired above it

        def open_client() -> None:
            self._client = AppClientBackend(path, config, self._check_declared, self._find_result_type)

        def close_client() -> None:
            client, self._client = self._client, None
            if client is not None:
                client.close()

        async with engine_or_client(self, path, config, open_client, close_client):
            yield

    def _check_declared(self, row: NewTrigger) -> None:
        if row.workflow in self.workflows:
            self.check(row)

    def _find_result_type(self, workflow: str | None) -> Any:
        declared = self.workflows.get(workflow or "")
        return None if declared is None else declared.result_type

    def attach(self, engine: Engine | None) -> None:
        """Set the engine that runs this app, or None. Raises ConfigInvalid for a second engine."""
        super().attach(engine)

    @property
    def _backend(self) -> Backend:
        if self._engine is None and self._client is not None:
            return self._client
        if self._engine is None:
            raise InvalidInput(
                "the app is not running: emit inside `async with app.running(...)`, or from outside with a Producer"
            )
        return self._engine.client
