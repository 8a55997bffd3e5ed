"""The scale of a picture: moments become places, and long idle times are folded. Pure.

Between two moments lies a gap. Gaps in which nothing of the task ran are idle. The longest of them are folded to
a small, equal width, until the others are together as long as the work at most.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

from craftcore.serialization.time_text import format_span

WIDTH = 1000.0
FOLD_WIDTH, FOLDS_SHARE = 56.0, 0.35
LEAST_WIDTH, LEAST_SHARE = 3.0, 0.3
"""The width of a fold and of any other gap, at most; and the share of the whole that all of them may take."""

IDLE_SHOWN = 1.0
"""Seconds of idle time that are always shown."""


@dataclass(frozen=True, slots=True)
class Fold:
    """An idle gap that is not shown at its length."""

    left: float
    width: float
    seconds: float

    @property
    def text(self) -> str:
        """Return `5 h folded`."""
        return f"{format_span(self.seconds)} folded"


@dataclass(frozen=True, slots=True)
class Scale:
    """Moments, in order, and their places from 0 to WIDTH. A later moment has a place further to the right."""

    moments: tuple[float, ...]
    places: tuple[float, ...]
    folds: tuple[Fold, ...]

    def place(self, moment: float) -> float:
        """Return the place of a moment; of one between two moments of the scale, its share of their gap."""
        if moment <= self.moments[0]:
            return self.places[0]
        index = bisect_right(self.moments, moment) - 1
        if index + 1 == len(self.moments):
            return self.places[-1]
        begin, end = self.moments[index], self.moments[index + 1]
        left, right = self.places[index], self.places[index + 1]
        return left + (right - left) * (moment - begin) / (end - begin)


def make_scale(moments: Iterable[float], work: Iterable[tuple[float, float]]) -> Scale:
    """Return the scale over these moments. `work`: the times in which something ran. Raises ValueError for no
    moment."""
    ordered = sorted(set(moments))
    if not ordered:
        raise ValueError("a scale needs a moment")
    gaps = list(pairwise(ordered))
    folded = _find_folded(gaps, _merge(work))
    fold_width = min(FOLD_WIDTH, WIDTH * FOLDS_SHARE / max(1, len(folded)))
    shown = [gap for gap in gaps if gap not in folded]
    least = min(LEAST_WIDTH, WIDTH * LEAST_SHARE / max(1, len(shown)))
    seconds = sum(end - begin for begin, end in shown)
    rest = WIDTH - fold_width * len(folded) - least * len(shown)
    places, folds = [0.0], []
    for begin, end in gaps:
        if (begin, end) in folded:
            folds.append(Fold(places[-1], fold_width, end - begin))
            places.append(places[-1] + fold_width)
        else:
            places.append(places[-1] + least + rest * ((end - begin) / seconds))
    return Scale(tuple(ordered), tuple(places), tuple(folds))


def _find_folded(gaps: list[tuple[float, float]], work: list[tuple[float, float]]) -> set[tuple[float, float]]:
    """Return the idle gaps to fold: the longest, until the others are together as long as the work at most."""
    begins = [begin for begin, _ in work]
    idle = []
    busy = 0.0
    for begin, end in gaps:
        index = bisect_right(begins, begin) - 1
        if index >= 0 and work[index][1] >= end:
            busy += end - begin
        else:
            idle.append((begin, end))
    shown, folded = 0.0, set()
    for gap in sorted(idle, key=lambda gap: gap[1] - gap[0]):
        shown += gap[1] - gap[0]
        if shown > max(IDLE_SHOWN, busy):
            folded.add(gap)
    return folded


def _merge(spans: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Return the spans in order, those that touch as one."""
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((begin, end))
    return merged
