"""Writes of a turn that are recorded at once with what they change, so a re-entry writes nothing again."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import Any

from craftcore.engine.turn.completed_step import decode_completed
from craftcore.engine.turn.steps import digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.errors import StepConflict
from craftcore.executions.model import EventType
from craftcore.failpoints import Failpoint, hit
from craftcore.tasks.turn_event_store import NewEvent

EventOf = Callable[[Any], tuple[NewEvent, tuple[str, str, Any]]]
"""The event of a result, and the event's text, the text of the result and the result."""


async def commit_once(
    turn: Turn,
    identity: str,
    name: str,
    args: tuple[Any, ...],
    to_text: Callable[[Any], str],
    write: Callable[[EventOf], Awaitable[tuple[str, str, Any]]],
) -> tuple[str, Any]:
    """Write, and record what was written at once. Return the text of its result and the result; None for the result of
    an earlier entry, which is on record.

    Raises StepConflict when the record has another call in this place, and what `write` raises: nothing is written
    then.
    """
    digest = digest_of([name, *args])
    if (done := turn.memo.get(identity)) is not None:
        completed = decode_completed(done)
        if completed.args != digest:
            raise StepConflict(f"{identity} was another call in this turn than {name} with these arguments")
        return bytes(completed.result).decode(), None
    turn.charge_budget()
    began = time.monotonic()

    def event_of(result: Any) -> tuple[NewEvent, tuple[str, str, Any]]:
        text = to_text(result)
        latency_ms = round((time.monotonic() - began) * 1000, 3)
        event = f'{{"args":"{digest}","key":null,"latency_ms":{latency_ms!r},"name":"{name}","result":{text}}}'
        return turn.event(EventType.STEP_COMPLETED, event, identity), (event, text, result)

    event, text, result = await write(event_of)
    hit(Failpoint.STEP_COMMITTED, name)
    turn.add_completed(identity, event)
    return text, result
