"""How a turn ends by returning. Whatever else it returns is the task's result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from craftcore.serialization.arguments import Duration

S = TypeVar("S")


@dataclass(frozen=True, slots=True)
class Continue(Generic[S]):
    """The task goes on: `state` is committed, and the next turn finds it as `ctx.state`.

    It goes on at once, after `after` seconds, or when the named event arrives; with both, at the first of them. A
    message to the task is the event "message".
    """

    state: S
    after: Duration | None = None
    on: str | None = None


@dataclass(frozen=True, slots=True)
class Done(Generic[S]):
    """The task is done, with this result. Returning the result itself says the same."""

    result: S
