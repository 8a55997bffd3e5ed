"""Suspects: a trigger that was in too many crashes starts with nothing beside it, so that a crash blames only it.

The time that this costs the others is bounded in the whole: ALONE_SECONDS for all suspects within ten minutes, twice as
long after each further crash. Each suspect has an equal share of what is left, and then others start beside it. A crash
is proof as long as nothing ran beside the suspect. When nothing runs, after a crash for example, suspects start first.
While something runs, a suspect waits for its end for WAIT_SECONDS, and then starts beside it. Meanwhile work that was
in no crash starts as ever.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import anyio

from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import CRASHES_BEFORE_ALONE

ALONE_SECONDS = 30.0
"""How long others wait for all suspects at their third start: most of what kills a process does so at once."""

SLICE_SECONDS = 1.0
"""The least time alone of a suspect, as long as any is left."""

ALONE_WITHIN_SECONDS = 600.0
"""The seconds within which all suspects have that time together."""

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
        self.outlived: Claim | None = None
        """The suspect that still runs after its time alone, until something has started beside it."""
        self._waiting: int | None = None
        self._deadline: float | None = None
        self._began_at = self._counted_since = -math.inf
        self._spent = 0.0
        self._news = anyio.Event()
        self.suspect: str | None = None
        """The trigger that runs alone; None: none does."""
        self.since = 0.0
        """The wall time at which it began to run alone, while there is a suspect."""
        self.until = 0.0
        """The wall time at which others start at the latest, while there is a suspect."""

    @property
    def is_on(self) -> bool:
        """True while nothing may be started beside the suspect."""
        return self._alone is not None

    def begin(self, claim: Claim, suspects: int) -> None:
        """Note that this suspect is started, and nothing runs beside it. `suspects`: how many there are."""
        self._alone, self.outlived, self._waiting = claim, None, None
        left = self._time_left(claim)
        seconds = min(left, max(left / suspects, SLICE_SECONDS))
        if self._is_bounded:
            self.suspect, self.since = claim.id, self._now()
            self.until = self.since + seconds
        self._count_down(seconds)

    def has_time(self, claim: Claim) -> bool:
        """Return whether others may be kept waiting for this suspect."""
        return not self._is_bounded or self._time_left(claim) > 0

    def _time_left(self, claim: Claim) -> float:
        if (now := anyio.current_time()) - self._counted_since > ALONE_WITHIN_SECONDS:
            self._counted_since, self._spent = now, 0.0
        doublings = min(max(0, claim.crash_count - CRASHES_BEFORE_ALONE), DOUBLINGS_MAX)
        return ALONE_SECONDS * float(2**doublings) - self._spent

    def has_waited(self, claim: Claim) -> bool:
        """Return whether a suspect has waited long enough for what runs to end; the first call begins its wait. A wait
        in vain takes of the time of all suspects, so that they do not wait one after the other."""
        if self._waiting == claim.seq:
            return self._deadline is None
        if not self.has_time(claim):
            return True
        self._waiting = claim.seq
        self._count_down(WAIT_SECONDS)
        return False

    def note_joined(self, outlived: Claim) -> None:
        """Note that another attempt was started beside this suspect, which outlived its time; its row has that."""
        if self.outlived is outlived:
            self.outlived = None

    def end(self, claim: Claim) -> None:
        """Note that this trigger is settled, or was not started after all."""
        if self.outlived is not None and self.outlived.seq == claim.seq:
            self.outlived = None
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
            self._spent += anyio.current_time() - self._began_at
            if self._alone is not None:
                self._alone, self.outlived = None, self._alone
            self._wake()

    def _count_down(self, seconds: float) -> None:
        self._began_at = anyio.current_time()
        self._deadline = self._began_at + seconds if self._is_bounded else None
        self._news.set()

    def _clear(self) -> None:
        if self._alone is not None:
            self._spent += anyio.current_time() - self._began_at
        self._alone = self._waiting = self.suspect = self._deadline = None
        self._news.set()
