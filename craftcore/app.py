"""App: declarations of user code, and the calls into the engine that runs them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, Unpack, overload

from craftcore.config import Config, config_of
from craftcore.errors import ConfigInvalid, InvalidInput, UnknownWorkflow
from craftcore.notifications.model import FAILURES, NotificationKind, NotifiedWorkflow
from craftcore.registry.registry import F, Registry
from craftcore.results.handle import EmittedHandle, Handle, KnownHandle
from craftcore.schedules.calls import Schedules
from craftcore.schedules.model import ScheduleOptions, ScheduleSpec
from craftcore.serialization.arguments import show_value
from craftcore.tasks.work_store import WorkFilter
from craftcore.triggers.model import EmitOptions, TriggerSpec
from craftcore.triggers.start_holds import hold_target

if TYPE_CHECKING:
    from craftcore.engine.engine import Engine
    from craftcore.engine.turn.context import TaskContext
    from craftcore.tasks.all_work import CancelledWork
    from craftcore.tasks.model import Question, Task


P = ParamSpec("P")
R = TypeVar("R")


class App(Registry):
    """An app: workflows, and a router if it needs its own.

        app = App("assistant")

        @app.workflow("greet")
        async def greet(name: str) -> str:
            return f"Hello {name}"

    Run it with `craftcore run MODULE:app`, or inside a program with `async with app.running("agent.db"):`.
    """

    _engine: Engine | None

    def schedule(
        self,
        id: str,
        when: str,
        *,
        workflow: str,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> None:
        """Declare a schedule. The arguments are those of ScheduleSpec.

        Taken over when the app starts, by id: the same declaration changes nothing, whenever that was; a changed one
        takes effect from then on; one that is gone is disabled. Raises ConfigInvalid for an id declared twice or an app
        that runs already, and when the app starts for what cannot be used.
        """
        self._declare_schedule(
            ScheduleSpec(id=id, when=when, workflow=workflow, payload={} if payload is None else payload, **options)
        )

    def every(self, interval: str, name: str | None = None, /, **options: Unpack[ScheduleOptions]) -> Callable[[F], F]:
        """Declare a workflow and its schedule: `@app.every("5m")`. The interval is that of `every 5m`.

        Both are called `name`; None: as the function. Options and errors are those of `schedule`.
        """
        return self._scheduled(f"every {interval}", name, options)

    def cron(self, expression: str, name: str | None = None, /, **options: Unpack[ScheduleOptions]) -> Callable[[F], F]:
        """Declare a workflow and its schedule: `@app.cron("0 7 * * *", timezone="Europe/Berlin")`.

        Both are called `name`; None: as the function. Options and errors are those of `schedule`.
        """
        return self._scheduled(expression, name, options)

    def _name_of(self, fn: Callable[..., Any]) -> str:
        """Return the name of the workflow that is this function. Raises UnknownWorkflow."""
        for name, workflow in self.workflows.items():
            if workflow.fn is fn:
                return name
        raise UnknownWorkflow(f"{show_value(fn)} is not declared as a workflow of app {self.name}")

    def _scheduled(self, when: str, name: str | None, options: ScheduleOptions) -> Callable[[F], F]:
        def declare(fn: F) -> F:
            id = fn.__name__ if name is None else name
            self.declare(id, fn)
            self.schedule(id, when, workflow=id, **options)
            return fn

        return declare

    def on_failure(self, fn: F) -> F:
        """Declare a workflow that is run for each trigger that becomes DEAD or FAILED: `@app.on_failure`.

        It takes one argument, a Notification, and is called `on_failure.` and the function's name. It runs at least
        once, with retries as any workflow; its own failure is not notified. Raises ConfigInvalid.
        """
        return self._declare_handler(fn, "on_failure", FAILURES)

    def on_question(self, fn: F) -> F:
        """Declare a workflow that is run for each question to a person, doubts about irreversible actions included.
        The rest is as for `on_failure`."""
        return self._declare_handler(fn, "on_question", ("question", "in_doubt"))

    def _declare_handler(self, fn: F, decorator: str, kinds: tuple[NotificationKind, ...]) -> F:
        if not callable(fn):
            raise ConfigInvalid(f"{decorator} takes no arguments: declare it with @app.{decorator}")
        name = f"{decorator}.{fn.__name__}"
        names = [each for each in inspect.signature(fn).parameters if each != "ctx"]
        if len(names) != 1:
            raise ConfigInvalid(f"workflow {name} must take one argument, a Notification, besides a ctx")
        self.declare(name, fn)
        self.notified[name] = NotifiedWorkflow(names[0], frozenset(kinds))
        return fn

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
        return await self.emit(self._name_of(workflow), payload)

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
