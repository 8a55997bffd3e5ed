"""Suspects: a trigger that was in too many crashes starts with nothing beside it, so that a crash blames only it.

Both waits that this costs the others are bounded. Running work has WAIT_SECONDS to end before a suspect starts; then
the suspect starts beside it. A suspect runs alone for ALONE_SECONDS, twice as long after each further crash; then
others start beside it. A crash is proof as long as nothing ran beside the suspect. When nothing runs, after a crash for
example, suspects start first.
"""

from __future__ import annotations

from collections.abc import Callable

import anyio

from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import CRASHES_BEFORE_ALONE

ALONE_SECONDS = 30.0
"""How long others wait for a suspect at its third start: most of what kills a process does so at once."""

WAIT_SECONDS = 30.0

DOUBLINGS_MAX = 20


class ExclusiveRun:
    """The exclusive run of a suspect, or its wait for one. All on the loop's thread; `wake` is called when others may
    start."""

    def __init__(self, wake: Callable[[], None], now: Callable[[], float], *, is_bounded: bool) -> None:
        self._wake = wake
        self._now = now
        self._is_bounded = is_bounded  # with a concurrency of 1 nothing can start beside it
        self._alone: Claim | None = None
        self._outlived: Claim | None = None
        self._waiting: int | None = None
        self._deadline: float | None = None
        self._news = anyio.Event()
        self.suspect: str | None = None
        """The trigger that runs alone or waits to; None: none does."""
        self.since = 0.0
        """The wall time at which it began to run alone, or to wait for that, while there is a suspect."""
        self.until = 0.0
        """The wall time at which others start at the latest, while there is a suspect."""

    @property
    def is_on(self) -> bool:
        """True while nothing may be started beside the suspect."""
        return self._alone is not None

    @property
    def outlived(self) -> Claim | None:
        """The suspect that still runs after its time alone, until something has started beside it."""
        return self._outlived

    def begin(self, claim: Claim) -> None:
        """Note that this suspect is started, and nothing runs beside it."""
        self._alone, self._outlived, self._waiting = claim, None, None
        doublings = min(max(0, claim.crash_count - CRASHES_BEFORE_ALONE), DOUBLINGS_MAX)
        self._count_down(claim, ALONE_SECONDS * 2**doublings)

    def has_waited(self, claim: Claim) -> bool:
        """Return whether a suspect has waited long enough for what runs to end; the first call begins its wait."""
        if self._waiting == claim.seq:
            return self._deadline is None
        self._waiting = claim.seq
        self._count_down(claim, WAIT_SECONDS)
        return False

    def note_joined(self, outlived: Claim) -> None:
        """Note that another attempt was started beside this suspect, which outlived its time; its row has that."""
        if self._outlived is outlived:
            self._outlived = None

    def end(self, claim: Claim) -> None:
        """Note that this trigger is settled, or was not started after all."""
        if self._outlived is not None and self._outlived.seq == claim.seq:
            self._outlived = None
        if (self._alone is not None and self._alone.seq == claim.seq) or self._waiting == claim.seq:
            self._clear()

    def note_started_beside(self, claim: Claim) -> None:
        """Note that this suspect has waited, and starts beside others."""
        if self._waiting == claim.seq:
            self._clear()

    async def watch(self) -> None:
        """Let the others start when the time is over; until cancelled."""
        while True:
            self._news = anyio.Event()
            left = None if self._deadline is None else max(0.0, self._deadline - anyio.current_time())
            with anyio.move_on_after(left):
                await self._news.wait()
                continue
            if self._deadline is None or anyio.current_time() < self._deadline:
                continue
            self._deadline = self.suspect = None
            if self._alone is not None:
                self._alone, self._outlived = None, self._alone
            self._wake()

    def _count_down(self, claim: Claim, seconds: float) -> None:
        self.suspect = claim.id if self._is_bounded else None
        self.since = self._now()
        self.until = self.since + seconds
        self._deadline = anyio.current_time() + seconds if self._is_bounded else None
        self._news.set()

    def _clear(self) -> None:
        self._alone = self._waiting = self.suspect = self._deadline = None
        self._news.set()
