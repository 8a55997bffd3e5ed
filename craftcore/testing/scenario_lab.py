"""The lab of a scenario that is killed and goes on: each call of the scenario is made once, over all lives."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, TypeVar, Unpack

from craftcore.app import App
from craftcore.errors import InvalidInput, NotFound, StateRefused
from craftcore.results.handle import EmittedHandle, Handle
from craftcore.serialization.arguments import Duration
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question, Task
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.work_store import WorkUpdate
from craftcore.testing.due_store import was_answered, was_signalled
from craftcore.testing.lab import Lab
from craftcore.testing.life_log import Called, LifeLog, Past, Record, Returned
from craftcore.testing.logged_world import LoggedWorld
from craftcore.testing.virtual_clock import sum_up
from craftcore.triggers.model import EmitOptions, Emitted, Trigger

PATIENCE = 86_400.0
"""Seconds of virtual time that `result` and `answer` wait for what a crash has delayed."""

T = TypeVar("T")


class ScenarioLab(Lab):
    """A lab that goes on where an earlier life of it was killed.

    Calls that returned in an earlier life return the same again, without an engine. The engine boots at the first call
    that has not: then the clock and the world are as they were at the kill. A call that was cut off is made again;
    emits, answers and signals that are on disk are found there.
    """

    def __init__(self, app: App, folder: Path, past: Sequence[Record], log: LifeLog, life: int) -> None:
        super().__init__(app, folder=folder)
        self._past = Past(past)
        self._log = log
        self._world = self._logged_world = LoggedWorld(log, life)
        self.clock = self._logged_world.clock
        self._numbers = count(1)
        self.emitted: list[str] = []

    async def _begin(self) -> None:
        """Boot at the first call that no earlier life has completed."""

    async def _call_once(self, method: str, call: Callable[[int], Awaitable[T]], target: float | None = None) -> T:
        """Return what an earlier life's call returned, or make the call."""
        index = next(self._numbers)
        if (cut := self._past.begun.get(index)) is not None and cut.method != method:
            raise InvalidInput(
                f"call {index} of the scenario was {cut.method} in an earlier life, and is {method} now: "
                "a scenario must do the same each time"
            )
        if (returned := self._past.returned.get(index)) is not None:
            self._restore(self._past.take_before(index))
            if returned.error is not None:
                raise returned.error
            return returned.value  # type: ignore[no-any-return]
        if self._life is None:
            self._restore(self._past.take_rest())
            self._logged_world.resume()
            await self._boot()
        self._log.append(Called(index, method, target))
        try:
            value = await call(index)
        except Exception as error:
            self._log.append(Returned(index, None, error))
            raise
        self._log.append(Returned(index, value, None))
        return value

    def _restore(self, records: Sequence[Record]) -> None:
        for record in records:
            self._logged_world.restore(record)

    # The calls

    async def emit(
        self, workflow: str | None = None, payload: Mapping[str, Any] | None = None, **options: Unpack[EmitOptions]
    ) -> EmittedHandle[Any]:
        """Emit a trigger, as `app.emit` does. Without a dedup key it gets one, so that it is found after a kill."""

        async def emit(index: int) -> Emitted:
            if options.get("dedup_key") is None and options.get("id") is None:
                options["dedup_key"], options["dedup_scope"] = f"scenario:{index}", "ever"
            handle = await self._running.app.emit(workflow, payload, **options)
            return Emitted(**{name: getattr(handle, name) for name in Emitted.__dataclass_fields__})

        emitted = await self._call_once("emit", emit)
        self.emitted.append(emitted.id)
        return EmittedHandle(_ScenarioClient(self), emitted)

    async def result(self, work: Handle[Any] | str, type: Any = None) -> Any:
        """Return the result of emitted work. Up to a day of virtual time may pass until it is there."""
        return await self._call_once(
            "result", lambda _: self._wait_for(partial(super(ScenarioLab, self).result, work, type))
        )

    async def run_until_waiting(self, work: Handle[Any] | str) -> str:
        """Return what a task waits for. Up to a day of virtual time may pass until it does."""
        return await self._call_once(
            "run_until_waiting", lambda _: self._wait_for(partial(super(ScenarioLab, self).run_until_waiting, work))
        )

    async def why(self, work: Handle[Any] | str) -> list[str]:
        """Return why emitted work has not ended, or how it has."""
        return await self._call_once("why", lambda _: super(ScenarioLab, self).why(work))

    async def state(self, work: Handle[Any] | str) -> Task | Trigger:
        """Return the task as it is, or the trigger while it has created no task."""
        return await self._call_once("state", lambda _: self._find(work).state())

    async def cancel(self, work: Handle[Any] | str) -> None:
        """Cancel emitted work. Work that a cut-off call has cancelled is left so."""

        async def cancel(index: int) -> None:
            with suppress(*(() if self._past.begun.get(index) is None else (StateRefused,))):
                await self._find(work).cancel()
            await self._run_due()

        await self._call_once("cancel", cancel)

    async def signal(self, work: Handle[Any] | str, event: str, payload: Any = None) -> bool:
        """Signal an event to a task, and run until idle."""

        async def signal(index: int) -> bool:
            id, sender, waited = work if isinstance(work, str) else work.id, f"scenario:{index}", True
            if not self._is_on_disk(was_signalled, sender):
                waited = await self._running.app.signal(id, event, payload, sent_by=sender)
            await self._run_due()
            return waited

        return await self._call_once("signal", signal)

    async def answer(self, choice: str, *, question: str = "") -> None:
        """Answer the only open question whose text contains `question`, and run until idle. Up to a day of virtual
        time may pass until it is asked."""

        async def answer(index: int) -> None:
            note = f"scenario:{index}"
            if self._is_on_disk(was_answered, note):
                await self._run_due()
            else:
                await self._wait_for(partial(self._answer, choice, question, note))

        await self._call_once("answer", answer)

    async def answer_doubts(self) -> None:
        """Answer the questions about unknown outcomes truthfully. This lab does so whenever it runs."""
        await self.run_until_idle()

    async def questions(self) -> list[Question]:
        """Return what waits for an answer, asked longest ago first."""
        return await self._call_once("questions", lambda _: self._running.app.questions())

    async def run_until_idle(self) -> None:
        """Run everything that is due now, and what follows from it."""
        await self._call_once("run_until_idle", lambda _: self._run_due())

    async def advance(
        self, duration: Duration = 0.0, *, minutes: float = 0.0, hours: float = 0.0, days: float = 0.0
    ) -> None:
        """Let virtual time pass. After a kill it ends where it would have ended without."""
        target = self.clock.now() + sum_up(duration, minutes, hours, days)

        async def advance(index: int) -> None:
            cut = self._past.begun.get(index)
            await self._advance_to(target if cut is None or cut.target is None else cut.target)

        await self._call_once("advance", advance, target)

    async def down(
        self,
        duration: Duration = 0.0,
        *,
        minutes: float = 0.0,
        hours: float = 0.0,
        days: float = 0.0,
        killed: bool = False,
    ) -> None:
        """Let time pass without an engine, which ends in order. After a kill it ends where it would have ended without.
        Raises StateRefused for `killed`."""
        if killed:
            raise StateRefused("lab.down: a crash matrix kills the scenario by itself; leave killed out")
        target = self.clock.now() + sum_up(duration, minutes, hours, days)

        async def stay_down(index: int) -> None:
            cut = self._past.begun.get(index)
            await self._stay_down(target if cut is None or cut.target is None else cut.target)

        await self._call_once("down", stay_down, target)

    async def crash(self) -> None:
        """Raise StateRefused."""
        raise StateRefused("lab.crash: a crash matrix kills the scenario by itself")

    async def restart(self) -> None:
        """Boot the engine again, in order."""
        await self._call_once("restart", lambda _: super(ScenarioLab, self).restart())

    def rows(self, sql: str, **parameters: Any) -> list[dict[str, Any]]:
        """Return the rows of a query on the database."""
        index = next(self._numbers)
        if (returned := self._past.returned.get(index)) is not None:
            return returned.value  # type: ignore[no-any-return]
        rows = super().rows(sql, **parameters)
        self._log.append(Returned(index, rows, None))
        return rows

    # Below the calls

    @property
    def refusal(self) -> str | None:
        """Why a stand-in could not take a call; None: all could."""
        return self._world.refusal

    async def _run_due(self) -> None:
        await super()._run_due()
        while await self._answer_known_doubts():
            await super()._run_due()

    async def _wait_for(self, call: Callable[[], Awaitable[T]]) -> T:
        """Make a call when what it needs is there. Raises what the call raises after a day of virtual time."""
        until = self.clock.now() + PATIENCE
        while True:
            try:
                return await call()
            except (StateRefused, NotFound):
                if (next_at := self._next_moment(until)) is None:
                    raise
                await self._advance_to(next_at)

    def _is_on_disk(self, was_written: Callable[[Reader, str], bool], mark: str) -> bool:
        with self._open_services().reading() as reader:
            return was_written(reader, mark)

    async def finish(self, expected: Sequence[str] | None) -> list[str]:
        """Run until emitted work has the statuses expected, for at most a day of virtual time. Return its statuses."""

        async def require(index: int) -> list[str]:
            await self._run_due()
            found = [await self._status(id) for id in self.emitted]
            if expected is not None and found != list(expected):
                raise StateRefused("work has not ended as without a crash")
            return found

        with suppress(StateRefused):
            return await self._call_once("finish", lambda index: self._wait_for(partial(require, index)))
        return [await self._status(id) for id in self.emitted]

    async def _status(self, id: str) -> str:
        try:
            return str((await self._find(id).state()).status)
        except NotFound:
            return "lost"


class _ScenarioClient:
    """The calls behind a handle that a scenario holds."""

    def __init__(self, lab: ScenarioLab) -> None:
        self._lab = lab

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        return await self._lab.result(id, type)

    async def state_of(self, id: str) -> Task | Trigger:
        return await self._lab.state(id)

    async def cancel_work(self, id: str) -> None:
        await self._lab.cancel(id)

    def follow_work(self, id: str) -> AsyncGenerator[WorkUpdate, None]:
        raise StateRefused("events of a handle: a scenario of a crash matrix cannot follow work")

    def follow_stream(self, id: str, name: str, after: int) -> AsyncGenerator[StreamChunk, None]:
        raise StateRefused("stream of a handle: a scenario of a crash matrix cannot follow work")
