"""The alternatives of `ctx.wait_any`, beside the end of a child: an event, an answer, the end of a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from craftcore.serialization.arguments import Duration


@dataclass(frozen=True, slots=True)
class Event:
    """An event that is signalled to the task; its value is what the event brought, converted to `type`. "message": a
    message to the task."""

    name: str
    type: Any = Any


@dataclass(frozen=True, slots=True)
class Ask:
    """A question to a person; its value is the answer: one of the options, or any text without them, or an instance of
    the `form`. It is withdrawn when something else comes first. `by_message`, `form` and `to` are those of ctx.ask."""

    question: str
    options: Sequence[str] | None = None
    by_message: bool = False
    form: Any = None
    to: str | None = None


@dataclass(frozen=True, slots=True)
class Timer:
    """The end of a time that begins when the task starts to wait; its value is None."""

    after: Duration


class First(NamedTuple):
    """The alternative that came first: its name, and its value."""

    name: str
    value: Any
