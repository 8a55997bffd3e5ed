"""The claim window: leased triggers in rank order, in memory. It may be lost at any time; the table is the truth."""

from __future__ import annotations

import heapq
from collections.abc import Callable

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
        self._suspects = 0

    @property
    def suspects(self) -> int:
        """How many must run alone."""
        return self._suspects

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
        self._suspects += is_suspect
        return True

    def peek(self) -> Claim | None:
        """Return the claim that would be popped next; None when there is none."""
        return self._heap[0][1] if self._heap else None

    def peek_suspect(self) -> Claim | None:
        """Return the best of those that must run alone; None when there is none."""
        if not self._suspects:
            return None
        return min(entry for entry in self._heap if must_run_alone(entry[1]))[1]

    def peek_innocent(self) -> Claim | None:
        """Return the best of those that were in no crash; None when there is none."""
        return min((entry for entry in self._heap if not entry[1].crash_count), default=(None, None))[1]

    def pop(self, claim: Claim) -> Claim:
        """Take this one out. Its lane stays taken until `release_lane`."""
        self._suspects -= must_run_alone(claim)
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
