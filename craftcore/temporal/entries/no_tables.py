"""The tables of a turn on a cluster: there are none, and each use of one is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from craftcore.errors import InvalidInput
from craftcore.schedules.runtime import RuntimeSchedules
from craftcore.tasks.turn_event_store import NewEvent

T = TypeVar("T")


class NoTables:
    """The tables of a turn on a cluster: there are none."""

    @property
    def schedules(self) -> RuntimeSchedules:
        raise InvalidInput("ctx.schedules is not there on a cluster: it writes rows of a database")

    async def write_user(
        self, fn: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        raise InvalidInput(
            "ctx.transaction is not there on a cluster: write to your own database in a ctx.step, under ctx.task_id"
        )

    async def write_own(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        raise InvalidInput("ctx.schedules is not there on a cluster: it writes rows of a database")

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        raise InvalidInput("ctx.schedules is not there on a cluster: it reads rows of a database")
