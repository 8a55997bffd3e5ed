"""The outlines of a picture with very many marks: one path for all that look alike. Pure.

Marks that would be drawn at the same place of a lane, to the unit, are one piece of a path.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from craftcore.web.pictures.mark import MarkKind, Sense

HEIGHTS = {MarkKind.ATTEMPT: 17, MarkKind.CRASH: 21, MarkKind.LOST: 21, MarkKind.INTENT: 11}
HEIGHT = 5
"""The height of a bar of any other kind."""

MIDDLE = 14
"""The middle of a bar, below the top of its lane."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outline:
    """All marks of one kind and sense. `path`: the lines that draw them, each as thick as `height`."""

    kind: MarkKind
    meaning: Sense
    path: str
    height: int


def make_outlines(bars: Iterable[tuple[MarkKind, Sense, float, float, float]]) -> tuple[Outline, ...]:
    """Return the outlines of marks: kind, sense, left, width and top of each."""
    pieces: dict[tuple[MarkKind, Sense], dict[str, None]] = {}
    for kind, meaning, left, width, top in bars:
        piece = f"M{round(left)} {round(top) + MIDDLE}h{max(2, round(width))}"
        pieces.setdefault((kind, meaning), {})[piece] = None
    return tuple(
        Outline(kind=kind, meaning=meaning, path="".join(found), height=HEIGHTS.get(kind, HEIGHT))
        for (kind, meaning), found in pieces.items()
    )
