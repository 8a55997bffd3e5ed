"""The outlines of a picture with very many marks: one path for all that look alike. Pure.

Marks that would be drawn at the same place of a lane, to the unit, are one piece of a path.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from craftcore.web.pictures.mark import MarkKind, Sense

BAR_HEIGHTS = {MarkKind.ATTEMPT: 21, MarkKind.CRASH: 21, MarkKind.LOST: 21, MarkKind.INTENT: 11}
BAR_TOPS = {MarkKind.ATTEMPT: 2, MarkKind.CRASH: 2, MarkKind.LOST: 2, MarkKind.INTENT: 8}
HEIGHT, HIGH = 5, 14
"""The height of any other bar, and how far below the top of its lane it lies."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """All marks of one kind and sense. `path`: the commands that draw them."""

    kind: MarkKind
    meaning: Sense
    path: str


def make_outlines(bars: Iterable[tuple[MarkKind, Sense, float, float, float]]) -> tuple[Outline, ...]:
    """Return the outlines of marks: kind, sense, left, width and top of each."""
    pieces: dict[tuple[MarkKind, Sense], dict[str, None]] = {}
    for kind, meaning, left, width, top in bars:
        place, wide = round(left), max(2, round(width))
        high = round(top) + BAR_TOPS.get(kind, HIGH)
        piece = f"M{place} {high}h{wide}v{BAR_HEIGHTS.get(kind, HEIGHT)}h-{wide}z"
        pieces.setdefault((kind, meaning), {})[piece] = None
    return tuple(Outline(kind=kind, meaning=meaning, path="".join(found)) for (kind, meaning), found in pieces.items())
