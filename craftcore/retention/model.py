"""The words of retention: what a look finds, and what a batch took."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

WINDOW = 5_000
"""Rows that one look visits at most."""

BATCH = 500
"""Rows that one commit changes, about: what must go together, like a record with its events, goes together."""


class Found(NamedTuple):
    """Rows that are due, by number, in order; and after which number the next look begins. None: the table is
    through. `kept`: those that stay, and lose what they say."""

    seqs: list[int]
    after: int | None
    kept: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Removed:
    """The ids that retention removes in the open transaction: the argument of a function of `app.on_retention`.

    tasks     ended tasks. One whose row stays, for its number or for a doubt, is without its content
    triggers  settled triggers. One whose row stays, for its key, is without its content
    """

    tasks: tuple[str, ...] = ()
    triggers: tuple[str, ...] = ()


@dataclass(slots=True)
class Taken:
    """The rows that a batch removed, by table. `passed`: records that stay behind the anchor of the chain. `more`: not
    all that it was given fitted into it. `tasks` and `triggers`: the ids of those that were removed or stripped."""

    removed: Counter[str] = field(default_factory=Counter)
    stripped: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    more: bool = False
    tasks: list[str] = field(default_factory=list)
    triggers: list[str] = field(default_factory=list)

    @property
    def ids(self) -> Removed:
        """The ids of this batch, for functions of the user."""
        return Removed(tuple(self.tasks), tuple(self.triggers))

    @property
    def rows(self) -> int:
        return self.removed.total() + self.stripped.total()

    @property
    def goes_on(self) -> bool:
        """Another batch is to begin where the look did: this one did something, and left something."""
        return self.more and self.rows + self.passed > 0

    def add(self, other: Taken) -> None:
        self.removed.update(other.removed)
        self.stripped.update(other.stripped)
