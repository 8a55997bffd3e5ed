"""The reply of a turn to what it has received: `ctx.reply`."""

from __future__ import annotations

from typing import Any

from craftcore.engine.turn.completed_step import decode_completed
from craftcore.engine.turn.steps import digest_of, make_completed_event
from craftcore.engine.turn.turn import Turn
from craftcore.errors import StepConflict
from craftcore.executions.model import EventType
from craftcore.failpoints import Failpoint, hit
from craftcore.serialization.encode import encode


async def reply(turn: Turn, value: Any, key: str | None) -> None:
    """Answer what the turn has received and has not answered, once per key, or place among the keyless, in a turn."""
    identity = turn.next_ordinal("reply", key)
    text = encode(value, "reply")
    digest = digest_of(["reply", text])
    if (done := turn.memo.get(identity)) is not None:
        if decode_completed(done).args != digest:
            raise StepConflict(f"{identity} was another reply in this turn: take what it says from a step")
        return
    turn.require_small(text, "reply")
    turn.charge_budget()
    if turn.has_streams:
        await turn.streams.save()  # first: whoever follows them stops at the reply
    event = turn.event(EventType.STEP_COMPLETED, make_completed_event(digest, None, 0, "reply", text), identity)
    await turn.services.journal.reply(
        turn.task, turn.received_waits, text, event, is_first_agent=turn.later_agent is None
    )
    hit(Failpoint.STEP_COMMITTED, "reply")
    turn.add_completed(identity, event.payload_json)
