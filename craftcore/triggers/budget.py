"""How many triggers of each limited workflow one look may claim. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Budget(NamedTuple):
    """`places`: how many more of each limited workflow. `by_source`: the limited workflow that takes a source's
    triggers which name none."""

    places: Mapping[str, int]
    by_source: Mapping[str, str]


class Spending:
    """A budget while one look spends it.

    A trigger's destination is the workflow it names, else `/` and its source: no name of a workflow has a slash.
    """

    def __init__(self, budget: Budget) -> None:
        self._left = dict(budget.places)
        self._limited = {name: name for name in budget.places}
        self._limited.update((f"/{source}", name) for source, name in budget.by_source.items())
        self._workflows: dict[int, str] = {}

    @property
    def full(self) -> list[str]:
        """The destinations of which nothing more may be claimed."""
        return [destination for destination in self._limited if self.is_full(destination)]

    def is_full(self, destination: str) -> bool:
        """Whether nothing more may be claimed of what goes there."""
        workflow = self._limited.get(destination)
        return workflow is not None and self._left[workflow] <= 0

    def note(self, seq: int, destination: str) -> None:
        """Remember where a candidate goes, if that is limited."""
        if (workflow := self._limited.get(destination)) is not None:
            self._workflows[seq] = workflow

    def has_place(self, seq: int) -> bool:
        """Whether this candidate may be claimed."""
        workflow = self._workflows.get(seq)
        return workflow is None or self._left[workflow] > 0

    def take(self, seq: int) -> None:
        """This candidate is claimed."""
        if (workflow := self._workflows.get(seq)) is not None:
            self._left[workflow] -= 1
