"""The watch for turns that complete nothing. One that does not is put to a person, and runs on meanwhile."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from craftcore.engine.attempt import Attempt
from craftcore.engine.turn.turn import TurnServices
from craftcore.log import get_logger
from craftcore.tasks.model import CANCEL, WAIT_ON, NewQuestion, QuestionKind

log = get_logger(__name__)

CHECKS = 10
"""How often within the time after which a turn counts as stalled."""


class StallWatch:
    """Watches the turns of one engine; those that completed nothing for `tasks.stall_after` seconds are asked about."""

    def __init__(self, running: Callable[[], list[Attempt]], services: TurnServices) -> None:
        self._running = running
        self._services = services
        self._stall_after = services.settings.stall_after

    async def watch(self) -> None:
        """Look, sleep; until cancelled."""
        while self._stall_after > 0:
            await anyio.sleep(self._stall_after / CHECKS)
            for attempt in self._running():
                turn = attempt.turn
                if turn is None or turn.is_over:
                    continue
                if any(call.deadline > anyio.current_time() for call in attempt.calls):
                    continue  # what it calls has been given so long
                if time.monotonic() - max(turn.progress_at, turn.asked_at) >= self._stall_after:
                    turn.asked_at = time.monotonic()
                    await self._ask(attempt)

    async def _ask(self, attempt: Attempt) -> None:
        assert attempt.turn is not None, attempt.claim
        task = attempt.turn.task
        question = NewQuestion(
            kind=QuestionKind.STALLED,
            question=f"Turn {task.turn} of task {task.id} ({task.workflow}) runs and has completed nothing for "
            f"{self._stall_after:g} seconds. Cancel the task, or wait on?",
            options=(WAIT_ON, CANCEL),
        )
        await self._services.journal.ask_stalled(attempt.claim, task, question)
        log.warning("task.stalled", task=task.id, turn=task.turn, seconds=self._stall_after)
