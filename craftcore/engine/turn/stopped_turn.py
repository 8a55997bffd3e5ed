"""A turn that a person has stopped, as the next one finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from craftcore.executions.trigger_view import Creator
from craftcore.serialization.decode import decode
from craftcore.tasks.model import RecordedStop

E = TypeVar("E")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoppedTurn(Generic[E]):
    """The turn that was stopped before this one began.

    turn      its number
    received  its `ctx.received`; of the first turn of a task, the payload. None: it had none, or retention removed it
    steps     the names of its completed steps in their order, one with a key as NAME/KEY
    streams   the text that it wrote to each of its streams, by name; a damaged one is left out
    """

    turn: int
    received: E | None
    steps: tuple[str, ...]
    streams: Mapping[str, str]


def read_stop(stop: RecordedStop, creator: Creator | None, received_type: Any) -> StoppedTurn[Any]:
    """Return a stopped turn from its record. `creator`: the trigger that created the task. Raises InvalidInput."""
    text, type_ = stop.received_json, received_type
    if text is None and stop.turn == 1 and creator is not None:
        text, type_ = creator.payload_json or None, Any
    received = None if text is None else decode(text, type_, "ctx.stopped.received")
    steps = dict.fromkeys(identity.removeprefix("step:").partition("|")[0].partition("~")[0] for identity in stop.steps)
    return StoppedTurn(turn=stop.turn, received=received, steps=tuple(steps), streams=stop.streams)
