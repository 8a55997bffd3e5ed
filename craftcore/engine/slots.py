"""Slots of running triggers: how many run at once, one of each lane, and nothing beside a suspect."""

from __future__ import annotations

from craftcore.engine.claim_window import ClaimWindow
from craftcore.engine.exclusive_run import ExclusiveRun
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import must_run_alone


class Slots:
    """Slots of one engine, and the lanes that are taken. A slot is taken from the window to the end of the run."""

    def __init__(self, window: ClaimWindow, exclusive: ExclusiveRun, concurrency: int) -> None:
        self._window = window
        self._exclusive = exclusive
        self._concurrency = concurrency
        self.taken = 0

    def reserve(self, *, is_running: bool) -> list[Claim]:
        """Take the best claims there are slots for. One that was in too many crashes waits until nothing else runs, and
        those that were in none start meanwhile."""
        claims: list[Claim] = []
        while not self._exclusive.is_on and (best := self._pop_best(is_running)) is not None:
            if must_run_alone(best) and not (self.taken or is_running) and self._exclusive.has_time(best):
                self._exclusive.begin(best, self._window.suspects)
            elif self.taken >= self._concurrency:
                break
            elif must_run_alone(best) and not self._exclusive.has_waited(best):
                if (best := self._window.peek_innocent()) is None:
                    break
            else:
                self._exclusive.note_started_beside(best)
            claims.append(self._window.pop(best))
            self.taken += 1
        return claims

    def reserve_next(self) -> list[Claim]:
        """Take the best claim although no slot is free: it starts in the commit that settles what runs. None that must
        run alone: it waits for the end of what runs."""
        best = None if self._exclusive.is_on else self._window.peek()
        if best is None or must_run_alone(best):
            return []
        self.taken += 1
        return [self._window.pop(best)]

    def reserve_new(self) -> bool:
        """Take a slot for a trigger that starts in the commit of its emit. False: none is free, others
        wait for one, or a suspect runs: its row must name what starts beside it."""
        is_free = self.taken < self._concurrency and not len(self._window)
        may = is_free and not self._exclusive.is_on and self._exclusive.outlived is None
        self.taken += may
        return may

    def take_again(self) -> None:
        """Take a slot for a trigger that has started although its emit gave its slot back."""
        self.taken += 1

    def _pop_best(self, is_running: bool) -> Claim | None:
        """Return the next to start: while nothing runs, one that must run alone, so that nothing has to end for it."""
        suspect = None if self.taken or is_running else self._window.peek_suspect()
        return suspect or self._window.peek()

    def release(self) -> None:
        """Release the slot of a trigger that ended, or was not started."""
        self.taken -= 1

    def leave(self, claim: Claim, lane: str | None) -> None:
        """Release the lane of a trigger that is settled, or was not started, and let others start beside it."""
        self._window.release_lane(lane)
        self._exclusive.end(claim)

    def take_lane(self, lane: str) -> bool:
        """Take a lane that a router chose. Return False when it is taken already."""
        return self._window.take_lane(lane)

    def release_lane(self, lane: str) -> None:
        """Release a lane that a router left."""
        self._window.release_lane(lane)
