"""Changes of schedules by a turn. The record of each is in its commit, so a re-entry changes nothing again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import anyio
import msgspec

from craftcore.engine.turn.steps import Completed, digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.errors import KeyRequired, StepConflict
from craftcore.executions.model import EventType
from craftcore.failpoints import Failpoint, hit
from craftcore.schedules.model import Schedule
from craftcore.schedules.store import columns_of, schedule_of
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.storage.transaction import Transaction

T = TypeVar("T")


class TurnDatabase:
    """The database of `ctx.schedules`: each write is a completed step of the turn."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    async def write(self, name: str, kind: Any, call: Callable[..., T], *args: Any) -> T:
        """Commit `call(tx, *args)` and its record at once, or return the result that is on record.

        Raises StepConflict when the record has another call in this place.
        """
        turn = self._turn
        try:
            identity = turn.next_ordinal("schedules", None)
        except KeyRequired:
            raise KeyRequired(
                "call ctx.schedules in the turn's own task, outside of steps: its calls are known by their order"
            ) from None
        digest = digest_of([name, *args])
        if (done := turn.memo.get(identity)) is not None:
            event = msgspec.json.decode(done, type=Completed)
            if event.args != digest:
                raise StepConflict(f"{identity} was another call in this turn: schedules.{name} has other arguments")
            recorded: T = _read_result(bytes(event.result).decode(), kind)
            return recorded
        turn.charge_budget()
        began = time.monotonic()

        def record(tx: Transaction) -> tuple[T, str]:
            result = call(tx, *args)
            latency_ms = round((time.monotonic() - began) * 1000, 3)
            text = (
                f'{{"args":"{digest}","key":null,"latency_ms":{latency_ms!r},"name":"schedules.{name}",'
                f'"result":{_result_text(result)}}}'
            )
            turn.doors.recording.record(tx, turn.event(EventType.STEP_COMPLETED, text, identity))
            return result, text

        try:
            result, text = await turn.doors.commits.commit(record)
        finally:
            turn.doors.on_changed()  # also when the turn is cancelled: the commit may have come about
        hit(Failpoint.STEP_COMMITTED)
        turn.add_completed(identity, text)
        answer: T = result
        return answer

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)` as it is now. It is not recorded."""
        self._turn.refuse_when_over()
        return await anyio.to_thread.run_sync(self._turn.doors.read, call, *args)


def _result_text(result: object) -> str:
    return canonicalize(columns_of(result)) if isinstance(result, Schedule) else encode(result, "result")


def _read_result(text: str, kind: Any) -> Any:
    return schedule_of(decode(text)) if kind is Schedule else decode(text, kind)
