"""App: declarations of user code, and the calls into the engine that runs them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from craftcore.config import Config, config_of
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.registry.declarations import Declarations
from craftcore.results.handle import EmittedHandle, Handle, KnownHandle
from craftcore.schedules.calls import Schedules
from craftcore.tasks.work_store import WorkFilter
from craftcore.triggers.model import EmitOptions, TriggerSpec
from craftcore.triggers.start_holds import hold_target

if TYPE_CHECKING:
    from craftcore.engine.engine import Engine
    from craftcore.engine.turn.context import TaskContext
    from craftcore.tasks.all_work import CancelledWork
    from craftcore.tasks.model import Question, Task
    from craftcore.temporal.cluster_requests import ClusterRequests


P = ParamSpec("P")
R = TypeVar("R")


class App(Declarations):
    """An app: workflows, and a router if it needs its own.

        app = App("assistant")

        @app.workflow("greet")
        async def greet(name: str) -> str:
            return f"Hello {name}"

    Run it with `craftcore run MODULE:app`, or inside a program with `async with app.running("agent.db"):`.
    """

    _engine: Engine | None

    async def emit(
        self, workflow: str | None, payload: Mapping[str, Any] | None = None, **options: Unpack[EmitOptions]
    ) -> EmittedHandle[Any]:
        """Accept a trigger: it is on disk when this returns. The options are those of TriggerSpec.

        `await handle.result()` waits for what becomes of it.
        Raises InvalidInput (PayloadTooLarge, UnknownWorkflow, DuplicateTrigger): nothing was written;
        StorageFull: nothing was written, try again later; OutcomeUnknown: emit its `spec` again after a restart.
        """
        spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
        return await self._running.requests.emit(spec)

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

    async def emit_many(self, specs: Iterable[TriggerSpec]) -> list[EmittedHandle[Any]]:
        """Accept many in one commit: all or, when one is refused, none."""
        return await self._running.requests.emit_many(list(specs))

    def handle(self, id: str) -> Handle[Any]:
        """Return the handle of emitted work by its id. Nothing is read until one of its methods is called."""
        return KnownHandle(id, self._running.requests)

    async def find(
        self,
        *,
        workflow: str | None = None,
        session_id: str | None = None,
        dedup_key: str | None = None,
        status: str | None = None,
        limit: int = 100,
    ) -> list[Handle[Any]]:
        """Return the newest work that matches all that is given, newest first.

        `status`: that of the task, or of a trigger that has created none. `limit`: up to 10,000. Found is what
        retention has not deleted. Raises InvalidInput for a status or a limit that there is not.
        """
        return await self._running.requests.find_work(WorkFilter(workflow, session_id, dedup_key, status), limit)

    @property
    def schedules(self) -> Schedules:
        """The schedules at run time: add, edit, pause, resume, remove, run_now, skip_next, list, get, history and
        preview. Raises InvalidInput while the app does not run."""
        return self._running.requests.schedules

    async def cancel(self, trigger_id: str) -> None:
        """Cancel a trigger; running code is cancelled at its next await. Raises NotFound or StateRefused."""
        await self._running.requests.cancel(trigger_id)

    async def cancel_all(self, reason: str = "cancelled", *, with_schedules: bool = True) -> CancelledWork:
        """Cancel all work in one commit: every live trigger and task, and every schedule. Nothing of it comes back at a
        restart. Running code is cancelled at its next await, that of the caller too, if it is a workflow.

        A schedule of an operator is removed. One that code or a settings file declares is paused. Messages that no task
        has read are left unread. `with_schedules` False: schedules stay as they are. Work that is emitted afterwards
        runs. Raises StorageFull: nothing was cancelled.
        """
        return await self._running.requests.cancel_all(reason, with_schedules=with_schedules)

    async def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool:
        """Tell a live task that something happened; it is on disk when this returns. True when it waited for just that;
        otherwise it is kept until the task does, also before its first turn.

        `start`: emitted in the same commit when there is no such live task; the signal goes to the task that it starts.
        With `task_id` None its dedup key says whether one lives.
        Raises InvalidInput or PayloadTooLarge; NotFound; StateRefused when the task has ended or its mailbox is full.
        """
        return await self._running.requests.signal(task_id, event, payload, sent_by=sent_by, start=start)

    async def answer(
        self,
        question_id: str,
        choice: str,
        *,
        note: str | None = None,
        reference: str | None = None,
        answered_by: str,
    ) -> None:
        """Answer a question, once. `reference`: the provider's, of an irreversible action that happened.

        Raises NotFound; InvalidInput for a text that is not an option; StateRefused: too late.
        """
        await self._running.requests.answer(
            question_id, choice, note=note, reference=reference, answered_by=answered_by
        )

    async def cancel_task(self, task_id: str) -> None:
        """Cancel a live task; running code is cancelled at its next await. Raises NotFound or StateRefused."""
        await self._running.requests.cancel_task(task_id)

    async def stop_turn(self, task_id: str) -> None:
        """Stop the turn of a live task, and keep the task: it waits for what begins its next turn, such as a message,
        with the state that this one found. Running code is cancelled at its next await.

        Raises NotFound; StateRefused: it has ended, no turn has begun, or nothing could begin another.
        """
        await self._running.requests.stop_turn(task_id)

    async def retry_task(self, task_id: str) -> None:
        """Let a FAILED task try its last turn again. Raises NotFound or StateRefused."""
        await self._running.requests.retry_task(task_id)

    async def hold(
        self,
        *,
        workflow: str | None = None,
        source: str | None = None,
        schedule: str | None = None,
        reason: str | None = None,
    ) -> bool:
        """Keep work from starting until `release`: a workflow, a source or a schedule; none of them: everything.

        Triggers are accepted, and due ones wait; a running attempt goes on to its end. A restart keeps the hold. False
        when it is held already. Raises UnknownWorkflow, NotFound for a schedule, InvalidInput for more than one target,
        StateRefused when there are 100 holds.
        """
        return await self._running.requests.hold(hold_target(workflow, source, schedule), reason)

    async def release(
        self, *, workflow: str | None = None, source: str | None = None, schedule: str | None = None
    ) -> bool:
        """Let held work start again; without a target, all of it, and that of safe mode. False when nothing was
        held."""
        return await self._running.requests.release(hold_target(workflow, source, schedule))

    async def task(self, task_id: str) -> Task | None:
        """Return the current row of a task; None when there is none: the first turn of what was just emitted has not
        begun."""
        return await self._running.requests.task(task_id)

    async def questions(self, limit: int = 100) -> list[Question]:
        """Return what waits for an answer, asked longest ago first."""
        return await self._running.requests.questions(limit)

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
    def _running(self) -> Engine:
        if self._engine is None:
            raise InvalidInput(
                "the app is not running: emit inside `async with app.running(...)`, or from outside with a Producer"
            )
        return self._engine
