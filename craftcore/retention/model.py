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


@dataclass(slots=True)
class Taken:
    """The rows that a batch removed, by table. `passed`: records that stay behind the anchor of the chain. `more`: not
    all that it was given fitted into it."""

    removed: Counter[str] = field(default_factory=Counter)
    stripped: Counter[str] = field(default_factory=Counter)
    passed: int = 0
    more: bool = False

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
