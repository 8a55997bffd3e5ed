"""Writes of our own tables by a turn. The record of each is in its commit, so a re-entry writes nothing again."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import msgspec

from craftcore.engine.turn.steps import Completed, digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.errors import StepConflict
from craftcore.executions.model import EventType
from craftcore.failpoints import Failpoint, hit
from craftcore.storage.transaction import Transaction


async def commit_once(
    turn: Turn,
    identity: str,
    name: str,
    call: Callable[..., Any],
    args: tuple[Any, ...],
    to_text: Callable[[Any], str],
) -> tuple[str, Any]:
    """Commit `call(tx, *args)` and its record at once. Return the text of its result and the result; None for the
    result of an earlier entry, which is on record.

    Raises StepConflict when the record has another call in this place, and what `call` raises: nothing is written then.
    """
    digest = digest_of([name, *args])
    if (done := turn.memo.get(identity)) is not None:
        event = msgspec.json.decode(done, type=Completed)
        if event.args != digest:
            raise StepConflict(f"{identity} was another call in this turn than {name} with these arguments")
        return bytes(event.result).decode(), None
    turn.charge_budget()
    began = time.monotonic()

    def record(tx: Transaction) -> tuple[str, str, Any]:
        result = call(tx, *args)
        text = to_text(result)
        latency_ms = round((time.monotonic() - began) * 1000, 3)
        event = f'{{"args":"{digest}","key":null,"latency_ms":{latency_ms!r},"name":"{name}","result":{text}}}'
        turn.doors.recording.record(tx, turn.event(EventType.STEP_COMPLETED, event, identity))
        return event, text, result

    try:
        event, text, result = await turn.doors.commits.commit(record)
    finally:
        turn.doors.on_changed()  # also when the turn is cancelled: the commit may have come about
    hit(Failpoint.STEP_COMMITTED, name)
    turn.add_completed(identity, event)
    return text, result
