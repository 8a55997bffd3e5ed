"""How a turn ends: what its code returns, and what the engine makes of it. Whatever else code returns is the task's
result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

from craftcore.serialization.arguments import Duration
from craftcore.tasks.model import NewWait

S = TypeVar("S")

NEAR_LIMIT = 0.8
"""The share of its limit above which a state is reported."""


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


# How a turn can end, beside failing. What it comes to is decided by the settlement of its trigger.


@dataclass(frozen=True, slots=True, kw_only=True)
class Returned:
    """The task is done."""

    result_json: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Continues:
    """The next turn takes this state: at once, or when `wait` is over."""

    state_json: str
    wait: NewWait | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Suspends:
    """The same turn is entered again when `wait` is over."""

    wait: NewWait


Move = Returned | Continues | Suspends
