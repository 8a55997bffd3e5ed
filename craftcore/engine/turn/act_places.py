"""The places of acts in one entry of a turn: the parts of their keys that tell them apart within their task."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence

from craftcore.activities.model import Activity


class ActPlaces:
    """The places that the calls of an entry have, and those that are on record from earlier entries of the turn."""

    def __init__(self) -> None:
        self.reached: set[str] = set()
        """The places that calls of this entry have by their own key or number."""
        self.moved: dict[str, str] = {}
        """The place of an earlier entry by the place that its call has now."""
        self.taken: set[str] = set()
        """The places that belong to a call with another key or number."""
        self.has_asked = False
        self.recorded: set[str] = set()
        """The places on record when this entry came to its first act, and asked for them."""
        self.left: set[str] = set()
        """Those of them that no call of this entry has come to."""
        self.earlier: Sequence[Activity] | None = None
        """The acts that were left when this entry asked for them; None: it has not asked, as nothing was left."""

    def begin(self, recorded: Iterable[str]) -> None:
        """Note the places on record."""
        self.has_asked = True
        self.recorded = set(recorded)
        self.left = self.recorded - self.reached - self.taken

    def reach(self, place: str) -> None:
        """Note that a call of this entry has come to its own place."""
        self.reached.add(place)
        self.left.discard(place)

    def is_left(self, place: str) -> bool:
        """Return whether no call of this entry has come to it."""
        return place not in self.reached and place not in self.taken

    def move(self, place: str, to: str) -> str:
        """Give the call of a place the place of an act on record, and return that."""
        self.moved[place] = to
        self.taken.add(to)
        self.left.discard(to)
        return to


def next_free(place: str, used: Container[str]) -> str:
    """Return the first number after a counted place that is not used: `1.3@b` after `1.2@b`."""
    number, at, agent = place.partition("@")
    turn, _, count = number.partition(".")
    following = int(count) + 1
    while f"{turn}.{following}{at}{agent}" in used:
        following += 1
    return f"{turn}.{following}{at}{agent}"
