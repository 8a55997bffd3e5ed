"""The state of one entry of a turn: what it has completed, what it waits for, how far it has come."""

from __future__ import annotations

import time
from collections.abc import Mapping

import anyio

from craftcore.engine.turn.unawaited_calls import CallsMade
from craftcore.tasks.model import CONTINUED, Entry, NewWait, Task
from craftcore.tasks.session_message import NewMessage
from craftcore.tasks.wait_rules import has_renewed_budget

SAVE_SECONDS = 1.0
"""How long the end of a turn waits for its last chunks. Missing ones are written when it is entered again."""


class Suspend(BaseException):
    """Unwinds a turn that waits; not an error. A turn that swallows it fails."""


class RetryActLater(BaseException):
    """Ends an attempt so that the next one calls an act again. No error of the workflow, and none for it to catch: code
    that tried the act once more, as another one, would do it twice."""

    def __init__(self, message: str, after: float | None) -> None:
        super().__init__(message)
        self.message = message
        self.after = after


class PendingCall:
    """An irreversible action on its way through the ledger, known by what it is called with. A second caller of the
    same one waits for it."""

    __slots__ = ("_over", "args_hash")

    def __init__(self, args_hash: str) -> None:
        self.args_hash = args_hash
        self._over: anyio.Event | None = None

    async def wait_until_recorded(self) -> None:
        """Wait until what it came to is on disk."""
        self._over = self._over or anyio.Event()  # hardly any is waited for
        await self._over.wait()

    def finish(self) -> None:
        if self._over is not None:
            self._over.set()


class TurnState:
    """The state of an entry, as the engine reads it. `Turn` adds the calls that workflow code makes."""

    def __init__(self, entry: Entry, *, max_steps: int) -> None:
        self._entry = entry
        self._max_steps = max_steps
        self.in_flight: set[PendingCall] = set()
        """Irreversible actions that it has on their way."""
        self.acts: set[str] = set()
        """Those that this entry has come to."""
        self.memo = dict(entry.memo)
        self.failures = entry.failures
        self.wait: NewWait | None = None
        """The wait for which the turn is suspended."""
        self.again: RetryActLater | None = None
        """Why this attempt ends so that the next one can go on."""
        self.is_over = False
        self.messages: list[NewMessage] = []
        """The messages that this entry has appended to its session. They are stored when the turn is over."""
        self.calls_made = CallsMade()
        """The calls of `ctx` that its code has made."""
        self.progress_at = time.monotonic()
        self.asked_at = 0.0
        """When a person was asked whether it is stalled, by monotonic time; 0.0: never."""

    def list_streams(self) -> Mapping[str, frozenset[str]]:
        """Return the streams of the turn, and the parts that wrote each."""
        return self._entry.streams

    async def close_streams(self) -> None:
        """Return once the streams of a turn that has succeeded are as its code has written them, on disk."""

    async def save_streams(self) -> None:
        """Return once all that was written to streams is on disk, or after SAVE_SECONDS."""

    async def end(self) -> None:
        """Note that the workflow has ended, and wait until none of its irreversible actions is on its way: the record
        of the turn is settled after the last of them."""
        self.is_over = True
        self.calls_made.close()
        await self.save_streams()
        while self.in_flight:
            with anyio.CancelScope(shield=True):
                await next(iter(self.in_flight)).wait_until_recorded()

    @property
    def task(self) -> Task:
        return self._entry.task

    @property
    def spent(self) -> int:
        """How much of its work budget this turn has taken: what it completed, less a budget for each renewal in it."""
        renewals = sum(has_renewed_budget(wait) for wait in self._entry.waits.values() if wait.name != CONTINUED)
        return max(0, len(self.memo) + len(self.acts) - renewals * self._max_steps)
