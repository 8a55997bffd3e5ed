"""The calls of programs on schedules: awaitable for apps, turns and asynchronous producers, blocking for producers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, Unpack, overload

from craftcore.blocking_calls import BlockingCalls, Run, make_blocking
from craftcore.errors import InvalidInput
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import Occurrence, Schedule, ScheduleChanges, ScheduleOptions, ScheduleSpec
from craftcore.schedules.runtime import RuntimeSchedules

T = TypeVar("T")

AllSchedules = list[Schedule]
History = list[Occurrence]
Moments = list[float]
TriggerIds = list[str]


class ScheduleDatabase(Protocol):
    """The awaitable ways to the database of one kind of caller."""

    async def write(self, name: str, kind: Any, call: Callable[..., T], *args: Any) -> T:
        """Commit `call(tx, *args)`, and let the scheduler know. `name` is that of the call, `kind` the type of its
        result."""

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)`."""


class Schedules:
    """Schedules at run time. Each call is on disk when it returns, and a restart keeps what was added.

    Schedules of code and of the settings file can be paused, resumed, run and skipped, but not changed or removed here.
    Moments are epoch seconds. Every method that takes an `id` raises NotFound when there is no such schedule.
    """

    def __init__(self, rules: RuntimeSchedules, database: ScheduleDatabase) -> None:
        self._rules = rules
        self._database = database

    async def add(
        self,
        id: str,
        when: str,
        *,
        workflow: str | None = None,
        payload: Mapping[str, Any] | None = None,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule:
        """Add a schedule, or change the one with this id. The same again changes nothing. An option that is not given
        has its default. The arguments are those of ScheduleSpec.

        Raises InvalidInput (ScheduleInvalid, UnknownWorkflow, PayloadTooLarge), and StateRefused for an id of code or
        of the settings file, or of a schedule that has finished.
        """
        spec = ScheduleSpec(id=id, when=when, workflow=workflow, payload=payload or {}, **options)
        return await self._database.write("add", Schedule, self._rules.add, spec)

    async def edit(self, id: str, **changes: Unpack[ScheduleChanges]) -> Schedule:
        """Change what is given, and leave the rest. It never fires the past. Errors are those of `add`."""
        return await self._database.write("edit", Schedule, self._rules.edit, id, changes)

    async def pause(self, id: str, reason: str = "paused") -> Schedule:
        """Let it fire nothing until it is resumed. Fired work goes on. Raises StateRefused when it is not active."""
        return await self._database.write("pause", Schedule, self._rules.pause, id, reason)

    async def resume(self, id: str) -> Schedule:
        """Let it fire again from now on; occurrences of the pause are skipped. Raises StateRefused."""
        return await self._database.write("resume", Schedule, self._rules.resume, id)

    async def remove(self, id: str) -> TriggerIds:
        """Remove it, and cancel its triggers that have not started; return their ids. Its history stays. Raises
        StateRefused for one of code or of the settings file."""
        return await self._database.write("remove", TriggerIds, self._rules.remove, id)

    async def run_now(self, id: str) -> FiringResult:
        """Fire it once more, now. Its overlap policy holds."""
        return await self._database.write("run_now", FiringResult, self._rules.run_now, id)

    async def skip_next(self, id: str) -> float:
        """Skip its next occurrence, and on the next call the one after it; return the moment. Raises StateRefused."""
        return await self._database.write("skip_next", float, self._rules.skip_next, id)

    async def list(self) -> AllSchedules:
        """Return every schedule that was not removed, by id. A damaged one is left out."""
        return await self._database.read(self._rules.list_all)

    async def get(self, id: str) -> Schedule:
        """Return one schedule."""
        return await self._database.read(self._rules.get, id)

    async def history(self, id: str, *, limit: int = 100) -> History:
        """Return what became of its occurrences, newest first. `limit`: up to 10,000."""
        return await self._database.read(self._rules.history, id, limit)

    @overload
    async def preview(self, id: str, *, count: int = 10) -> Moments: ...

    @overload
    async def preview(self, *, when: str, timezone: str | None = None, count: int = 10) -> Moments: ...

    async def preview(
        self, id: str | None = None, *, when: str | None = None, timezone: str | None = None, count: int = 10
    ) -> Moments:
        """Return the next moments of a schedule, or of an expression that is not added. `timezone` is an IANA name and
        belongs to `when`; None: the machine's. `count`: up to 10,000. Raises InvalidInput."""
        if id is not None and when is None and timezone is None:
            return await self._database.read(self._rules.preview, id, count)
        return self._rules.preview_expression(require_expression(id, when), timezone, count)


class BlockingSchedules(BlockingCalls):
    """The calls of Schedules, blocking. Arguments, results and errors are the same."""

    _awaitable: Schedules

    def __init__(self, schedules: Schedules, run: Run) -> None:
        self._awaitable = schedules
        self._run = run

    add = make_blocking(Schedules.add)
    edit = make_blocking(Schedules.edit)
    pause = make_blocking(Schedules.pause)
    resume = make_blocking(Schedules.resume)
    remove = make_blocking(Schedules.remove)
    run_now = make_blocking(Schedules.run_now)
    skip_next = make_blocking(Schedules.skip_next)
    list = make_blocking(Schedules.list)
    get = make_blocking(Schedules.get)
    history = make_blocking(Schedules.history)

    @overload
    def preview(self, id: str, *, count: int = 10) -> Moments: ...

    @overload
    def preview(self, *, when: str, timezone: str | None = None, count: int = 10) -> Moments: ...

    def preview(
        self, id: str | None = None, *, when: str | None = None, timezone: str | None = None, count: int = 10
    ) -> Moments:
        """Do what Schedules.preview does."""
        calls: Any = self._awaitable
        return self._run(calls.preview(id, when=when, timezone=timezone, count=count))


def require_expression(id: str | None, when: str | None) -> str:
    """Return `when`. Raises InvalidInput unless it is given, and no id."""
    if when is None or id is not None:
        raise InvalidInput("preview takes the id of a schedule, or an expression as when=…, with a timezone if need be")
    return when
