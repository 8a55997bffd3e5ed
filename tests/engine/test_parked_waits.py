"""Parked waits and running calls: the pass of the event loop at which a turn is suspended."""

from __future__ import annotations

from typing import NoReturn

import anyio
import anyio.lowlevel
import pytest

from craftcore.engine.turn.parked_waits import REST_PASSES, ParkedWaits, RunningCall
from craftcore.tasks.model import NewWait, WaitKind

pytestmark = pytest.mark.anyio


class Suspended(Exception):
    """The turn is suspended."""


class Turn:
    """The waits for which it was suspended first."""

    def __init__(self) -> None:
        self.wait: NewWait | None = None
        self.parked = ParkedWaits(lambda: None, self.suspend)

    def suspend(self, wait: NewWait) -> NoReturn:
        self.wait = self.wait or wait
        raise Suspended

    async def begin(self, name: str) -> None:
        """Wait in a task beside the turn's own."""
        try:
            await self.parked.suspend_when_idle(NewWait(name=name, kind=WaitKind.TIMER))
        except Suspended:
            pass

    @property
    def names(self) -> list[str]:
        return [] if self.wait is None else [self.wait.name, *(wait.name for wait in self.wait.beside)]


async def rest() -> None:
    """Let more passes of the event loop go by than a turn rests."""
    for _ in range(3 * REST_PASSES):
        await anyio.lowlevel.checkpoint()


async def test_turn_is_suspended_after_the_last_running_call():
    turn = Turn()
    async with anyio.create_task_group() as group:
        group.start_soon(turn.begin, "a")
        group.start_soon(turn.begin, "b")
        with RunningCall(turn.parked):
            await rest()
            assert turn.names == []
        await rest()
        assert turn.names == ["a", "b"]
        group.cancel_scope.cancel()


async def test_call_is_busy_only_while_no_call_inside_waits():
    turn = Turn()
    async with anyio.create_task_group() as group:
        with RunningCall(turn.parked):
            async with anyio.create_task_group() as inside:
                for name in ("a", "b"):
                    inside.start_soon(turn.begin, name)
                await rest()
                assert turn.names == ["a", "b"]
                inside.cancel_scope.cancel()
        group.cancel_scope.cancel()
