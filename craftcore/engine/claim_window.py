"""The claim window, and the slots of running triggers.

The window has leased triggers in rank order, in memory. It may be lost at any time; the table is the truth. A trigger
that starts is taken out of it, and has a slot until it ends.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from craftcore.engine.exclusive_run import ExclusiveRun
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import must_run_alone

Rank = tuple[float, int, int]


class ClaimWindow:
    """A heap of claims and the lanes that are taken.

    A lane is taken from the moment one of its triggers enters the window until that one is settled:
    so its triggers run one at a time and in order.
    """

    def __init__(self, rank: Callable[[Claim], Rank]) -> None:
        self._rank = rank
        self._heap: list[tuple[Rank, Claim]] = []
        self._lanes: set[str] = set()
        self.suspects = 0
        """How many must run alone."""

    def __len__(self) -> int:
        return len(self._heap)

    @property
    def busy_lanes(self) -> frozenset[str]:
        """Lanes with a trigger in the window or running."""
        return frozenset(self._lanes)

    @property
    def worst(self) -> float | None:
        """The rank of the last in the window; None when it is empty."""
        return max(rank for (rank, _, _), _ in self._heap) if self._heap else None

    def push(self, claim: Claim) -> bool:
        """Take a claim into the window, and its lane with it. False when the lane is taken; then, and after an error,
        nothing has changed."""
        entry, is_suspect = (self._rank(claim), claim), must_run_alone(claim)
        if claim.lane is not None and claim.lane in self._lanes:
            return False
        heapq.heappush(self._heap, entry)
        if claim.lane is not None:
            self._lanes.add(claim.lane)
        self.suspects += is_suspect
        return True

    def peek(self) -> Claim | None:
        """Return the claim that would be popped next; None when there is none."""
        return self._heap[0][1] if self._heap else None

    def peek_suspect(self) -> Claim | None:
        """Return the best of those that must run alone; None when there is none."""
        if not self.suspects:
            return None
        return min(entry for entry in self._heap if must_run_alone(entry[1]))[1]

    def peek_innocent(self) -> Claim | None:
        """Return the best of those that were in no crash; None when there is none."""
        return min((entry for entry in self._heap if not entry[1].crash_count), default=(None, None))[1]

    def pop(self, claim: Claim) -> Claim:
        """Take this one out. Its lane stays taken until `release_lane`."""
        self.suspects -= must_run_alone(claim)
        if self._heap[0][1] is claim:
            heapq.heappop(self._heap)
        else:
            self._heap = [entry for entry in self._heap if entry[1] is not claim]
            heapq.heapify(self._heap)
        return claim

    def take_out(self, claim: Claim) -> Claim:
        """Take this one out, which will not run, and free its lane."""
        self.release_lane(claim.lane)
        return self.pop(claim)

    def take_lane(self, lane: str) -> bool:
        """Take a lane that a router chose. False when it is taken already."""
        if lane in self._lanes:
            return False
        self._lanes.add(lane)
        return True

    def release_lane(self, lane: str | None) -> None:
        """Free the lane of a settled trigger."""
        if lane is not None:
            self._lanes.discard(lane)

    def claims(self) -> list[Claim]:
        """Return what is in the window, in no order."""
        return [claim for _, claim in self._heap]


class Slots:
    """Slots of one engine: how many run at once, one of each lane, and nothing beside a suspect."""

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
