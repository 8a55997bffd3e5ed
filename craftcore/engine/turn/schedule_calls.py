"""Changes of schedules by a turn. The record of each is in its commit, so a re-entry changes nothing again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from craftcore.engine.turn.steps import commit_once
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.unawaited_calls import track_await
from craftcore.errors import KeyRequired
from craftcore.schedules.calls import Schedules
from craftcore.schedules.model import Schedule
from craftcore.schedules.store import columns_of, schedule_of
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode

T = TypeVar("T")


class TurnDatabase:
    """The database of `ctx.schedules`: each write is a completed step of the turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def write(self, name: str, kind: Any, call: Callable[..., T], *args: Any) -> T:
        """Commit `call(tx, *args)` and its record at once, or return the result that is on record.

        Raises StepConflict when the record has another call in this place.
        """
        try:
            identity = self._turn.next_ordinal("schedules", None)
        except KeyRequired:
            raise KeyRequired(
                "call ctx.schedules in the turn's own task, outside of steps: its calls are known by their order"
            ) from None
        write = partial(self._turn.services.tables.write_own, call, args)
        text, result = await commit_once(self._turn, identity, f"schedules.{name}", args, _result_text, write)
        if result is None:
            result = _read_result(text, kind)
        answer: T = result
        return answer

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)` as it is now. It is not recorded."""
        self._turn.refuse_when_over()
        return await self._turn.services.tables.read(call, *args)


class TurnSchedules(Schedules):
    """The calls of `ctx.schedules`. One that is not awaited fails the attempt, as for every call of `ctx`."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn.services.tables.schedules, TurnDatabase(turn))
        self._calls_made = turn.calls_made


for _name in ("add", "edit", "pause", "resume", "remove", "run_now", "skip_next", "list", "get", "history", "preview"):
    setattr(TurnSchedules, _name, track_await(f"ctx.schedules.{_name}")(getattr(Schedules, _name)))


def _result_text(result: object) -> str:
    return canonicalize(columns_of(result)) if isinstance(result, Schedule) else encode(result, "result")


def _read_result(text: str, kind: Any) -> Any:
    return schedule_of(decode(text)) if kind is Schedule else decode(text, kind)
