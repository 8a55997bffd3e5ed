"""An app under test: its engine on a database of its own, under virtual time."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self, Unpack

import anyio
import anyio.abc

from craftcore.app import App
from craftcore.config import Config, DaemonSettings, StorageSettings
from craftcore.diagnostics.reasons.trigger_reasons import list_reasons, task_reasons
from craftcore.engine.failure import sole_exception
from craftcore.errors import InvalidInput, NotFound, StateRefused
from craftcore.results.handle import EmittedHandle, Handle
from craftcore.serialization.arguments import Duration
from craftcore.services import Services
from craftcore.tasks.model import Question, Task
from craftcore.testing import provider as stand_ins
from craftcore.testing.due_store import copy_committed, next_due, waits_for_others
from craftcore.testing.effect import Effect
from craftcore.testing.life import Life
from craftcore.testing.provider import Provider
from craftcore.testing.virtual_clock import NEW_YEAR, VirtualClock, sum_up
from craftcore.testing.world import World, world_of_process
from craftcore.triggers.model import EmitOptions, Trigger

DATABASE = "lab.db"
ANSWERED_BY = "lab"

CONFIG = Config(
    daemon=DaemonSettings(shutdown_grace=0.0, poll_seconds=30.0), storage=StorageSettings(synchronous="normal")
)
"""The settings of a lab: no power is cut, and what runs when it stops is not waited for."""


class Lab:
    """An app with an engine of its own, in a temporary folder, under a clock that the test moves.

        async with Lab(app) as lab:
            order = await lab.emit("order", {"id": 7})
            await lab.advance(hours=9)
            assert await lab.result(order) == "delivered"

    `start`: where the clock begins, an aware datetime or epoch seconds. `zone`: the IANA name of the machine's time
    zone. `folder`: an empty folder for the databases; None: a temporary one. The ready-made actions `email.send` and
    `http.request` reach no network: providers of the test take their calls.
    """

    def __init__(
        self,
        app: App,
        *,
        config: Config = CONFIG,
        start: datetime | float = NEW_YEAR,
        zone: str = "UTC",
        folder: str | Path | None = None,
        seed: int = 0,
    ) -> None:
        self.app = app
        self.clock = VirtualClock(
            start.timestamp() if isinstance(start, datetime) else start, seed=seed, zone_name=zone
        )
        self._world = World(self.clock, stand_ins.make_networked_providers())
        self._config = config
        self._given_folder = folder
        self._stack = AsyncExitStack()
        self._tasks: anyio.abc.TaskGroup | None = None
        self._life: Life | None = None

    async def __aenter__(self) -> Self:
        folder = self._given_folder
        self._folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()) if folder is None else folder)
        self._database = self._folder / DATABASE
        self._stack.enter_context(world_of_process(self._world))
        self._tasks = await self._stack.enter_async_context(anyio.create_task_group())
        try:
            await self._begin()
        except BaseException as error:
            await self._close(error)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with anyio.CancelScope(shield=True):
            await self._stop()
        await self._close(error)

    async def _close(self, error: BaseException | None) -> None:
        """Leave the task group. An error of the engine is raised as it is, without a group around it."""
        try:
            await self._stack.__aexit__(type(error) if error else None, error, error.__traceback__ if error else None)
        except BaseExceptionGroup as group:
            if (end := sole_exception(group)) is not error:
                raise end from None

    async def _begin(self) -> None:
        """Boot the first life."""
        await self._boot()

    # Work

    async def emit(
        self, workflow: str | None = None, payload: Mapping[str, Any] | None = None, **options: Unpack[EmitOptions]
    ) -> EmittedHandle[Any]:
        """Emit a trigger, as `app.emit` does."""
        return await self._running.app.emit(workflow, payload, **options)

    async def result(self, work: Handle[Any] | str, type: Any = None) -> Any:
        """Run until idle, and return the result of emitted work, as `handle.result` does.

        Raises WorkFailed with the code of its failure; StateRefused, with what it waits for, when it has not ended.
        """
        await self._run_due()
        handle = self._find(work)
        try:
            return await handle.result(type, timeout=0)
        except TimeoutError:
            reasons = "; ".join(self._list_reasons(await handle.state()))
            raise StateRefused(f"{handle.id} has not ended: {reasons}") from None

    async def why(self, work: Handle[Any] | str) -> list[str]:
        """Return why emitted work has not ended, or how it has, as `craftcore trigger why` says it."""
        return self._list_reasons(await self._find(work).state())

    def _list_reasons(self, state: Task | Trigger) -> list[str]:
        reasons = task_reasons if isinstance(state, Task) else list_reasons
        weight = self._config.triggers.priority_weight
        with self._open_services().reading() as reader:
            found = reasons(reader, state, self.clock.now(), daemon_runs=True, priority_weight=weight)  # type: ignore[arg-type]
        return [finding.text for finding in found]

    def _find(self, work: Handle[Any] | str) -> Handle[Any]:
        return self._running.app.handle(work if isinstance(work, str) else work.id)

    async def signal(self, work: Handle[Any] | str, event: str, payload: Any = None) -> bool:
        """Signal an event to a task, as `app.signal` does, and run until idle. Return whether it waited for that."""
        waited = await self._running.app.signal(work if isinstance(work, str) else work.id, event, payload)
        await self._run_due()
        return waited

    async def answer(self, choice: str, *, question: str = "") -> None:
        """Answer the only open question whose text contains `question`, and run until idle; `happened` with its result.

        Raises NotFound without one, InvalidInput with several.
        """
        await self._answer(choice, question, None)

    async def _answer(self, choice: str, question: str, note: str | None) -> None:
        await self._run_due()
        found = [asked for asked in await self._running.app.questions() if question in asked.question]
        if not found:
            raise NotFound(f"no open question contains {question!r}")
        if len(found) > 1:
            texts = "; ".join(asked.question for asked in found)
            raise InvalidInput(f"{len(found)} open questions contain {question!r}: {texts}")
        await self._answer_truthfully(found[0], choice, note)
        await self._run_due()

    async def answer_doubts(self) -> None:
        """Answer every question about an irreversible action of unknown outcome, as a person who looks it up at the
        provider does: `happened` when its effect is there, otherwise `resend`. A call that acts late is waited for."""
        await self._run_due()
        while await self._answer_known_doubts():
            await self._run_due()

    async def _answer_known_doubts(self) -> bool:
        """Return whether there was one."""
        late = {call.key for call in self._world.late}
        questions = await self._running.app.questions()
        doubts = [asked for asked in questions if asked.activity_key and asked.activity_key not in late]
        done = {effect.key for effect in self._world.effects}
        for asked in doubts:
            await self._answer_truthfully(asked, "happened" if asked.activity_key in done else "resend", None)
        return bool(doubts)

    async def _answer_truthfully(self, asked: Question, choice: str, note: str | None) -> None:
        reference = self._world.find_reference(asked.activity_key, self.app.actions) if choice == "happened" else None
        await self._running.app.answer(asked.id, choice, note=note, reference=reference, answered_by=ANSWERED_BY)

    async def questions(self) -> list[Question]:
        """Return what waits for an answer, asked longest ago first."""
        return await self._running.app.questions()

    # Time

    async def run_until_idle(self) -> None:
        """Run everything that is due now, and what follows from it. The clock does not move.

        Raises TimeoutError when the engine is busy for 60 seconds of real time.
        """
        await self._run_due()

    async def run_until_waiting(self, work: Handle[Any] | str) -> str:
        """Run until idle, and return what a task waits for: an event, a message or an answer. So a chat is tested,
        which waits for the next message for ever and has no result.

        Raises StateRefused, with the reasons, when it does not wait: it has ended, sleeps, or waits for a child.
        """
        await self._run_due()
        handle = self._find(work)
        state = await handle.state()
        with self._open_services().reading() as reader:
            if not waits_for_others(reader, handle.id):
                reasons = "; ".join(self._list_reasons(state))
                raise StateRefused(f"{handle.id} does not wait for an event, a message or an answer: {reasons}")
        return state.reason or ""

    async def _run_due(self) -> None:
        await self._running.wait_until_idle()
        if self._world.refusal is not None:
            raise InvalidInput(self._world.refusal)

    async def advance(
        self, duration: Duration = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Let virtual time pass. It jumps from one thing that happens to the next; each is run to its end."""
        await self._advance_to(self.clock.now() + sum_up(duration, minutes, hours, days))

    async def _advance_to(self, target: float) -> None:
        await self._run_due()
        while True:
            next_at = self._next_moment(target)
            self._pass_until(target if next_at is None else next_at)
            await self._run_due()
            if next_at is None:
                return

    def _next_moment(self, target: float) -> float | None:
        """Return when the next thing happens, in epoch seconds; None: nothing does until `target`."""
        with self._open_services().reading() as reader:
            due = next_due(reader, self.clock.now())
        moments = (due, self.clock.next_wake, *(call.at for call in self._world.late))
        return min((at for at in moments if at is not None and at <= target), default=None)

    # Crashes

    async def crash(self) -> None:
        """Kill the engine. Only what SIGKILL leaves is there for the next life: what is committed. Calls that are on
        their way have no effect, and nothing can be emitted before `restart`."""
        life = self._running
        life.is_dead = True
        self._database = copy_committed(self._database, self._folder / f"life-{self._world.life + 1}")
        await life.stop()
        self._life = None

    async def restart(self) -> None:
        """Boot the engine on the same database: after a crash, or in order when it runs."""
        await self._stop()
        await self._boot()

    async def down(
        self,
        duration: Duration = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        killed: bool = False,
    ) -> None:
        """Let time pass without an engine, as when a machine is off for a night, then boot and run until idle.

        The engine ends in order, or, if `killed`, as in `crash`; one that has crashed stays down. Work that was
        due meanwhile is late: schedules catch up by their policy, timers and deadlines are overdue, leases have ended.
        Only calls that act late at a provider go on.
        """
        target = self.clock.now() + sum_up(duration, minutes, hours, days)
        if killed:
            await self.crash()
        await self._stay_down(target)

    async def _stay_down(self, target: float) -> None:
        await self._stop()
        for at in sorted(call.at for call in self._world.late if call.at < target):
            self._pass_until(at)
        self._pass_until(target)
        await self._boot()
        await self._run_due()

    def _pass_until(self, moment: float) -> None:
        """Let time pass up to a moment, and calls at providers act that are due by then."""
        self.clock.advance(max(0.0, moment - self.clock.now()))
        self._world.act_late(self.clock.now())

    async def _boot(self) -> None:
        self._world.life += 1
        assert self._tasks is not None
        life = Life(self.app, self._database, self._config, self.clock, self._world)
        await self._tasks.start(life.run)
        self._life = life

    async def _stop(self) -> None:
        if self._life is not None:
            await self._life.stop()
            self._life = None

    @property
    def _running(self) -> Life:
        if self._life is None:
            raise StateRefused("the engine of the lab has crashed: await lab.restart()")
        return self._life

    # Effects

    def provider(self, action: str, **options: Any) -> Provider:
        """Return the provider that takes the calls of an action from now on; `options` are those of Provider. The
        function that the app declares for the action is not called. Without `returns` a call returns a value of the
        type that the action declares. Raises InvalidInput for other options or actions.
        """
        stand_ins.require_action(action, self.app.actions)
        for name in options:
            stand_ins.require_option(action, name)
        if "returns" not in options:
            options["returns"] = stand_ins.make_default_returns(action, self.app.actions)
        made = self._world.providers[action] = Provider(action, **options)
        if self._life is not None:
            self._life.replace_actions()
        return made

    def effects(self, action: str | None = None) -> list[Effect]:
        """Return what actions have done to the world in all lives, in order. `action`: of this one only."""
        return [effect for effect in self._world.effects if action is None or effect.action == action]

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a query on the database."""
        with self._open_services().reading() as reader:
            return reader.fetch_all(sql, **parameters)

    def _open_services(self) -> Services:
        return Services(self._database, replace(self._config), self.clock, read_only=True)
