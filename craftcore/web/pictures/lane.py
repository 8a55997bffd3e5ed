"""The lanes of a picture: one for each attempt and each wait, in the order of turns. Pure.

A task with very many attempts and waits has fewer lanes: one for the attempts of a turn, and one for its waits. When
these are too many as well, there is one for all attempts, and one for all waits.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from craftcore.web.pictures.mark import Mark, MarkKind

LANES_MAX = 40
LEVELS_MAX = 4
"""Steps of one attempt that run at once are drawn one below the other, in at most this number of levels."""

TITLE_MAX = 22
LAST = 1 << 62
"""The turn of what belongs to none: it comes below all turns."""


class LaneKind(IntEnum):
    """The content of a lane. Within a turn, lanes are in this order."""

    TASK = 0
    ATTEMPTS = 1
    WAITS = 2
    DAEMON = 3


LaneKey = tuple[int, LaneKind, str]
"""The turn of a lane, its kind, and what tells lanes of one kind apart."""

KINDS = {
    MarkKind.TASK: LaneKind.TASK,
    MarkKind.WAIT: LaneKind.WAITS,
    MarkKind.QUESTION: LaneKind.WAITS,
    MarkKind.ANSWER: LaneKind.WAITS,
}


class Placed(NamedTuple):
    """A mark and the level in its lane at which it is drawn."""

    mark: Mark
    level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Lane:
    """One row of a picture."""

    title: str
    placed: tuple[Placed, ...]
    levels: int


def make_lanes(marks: list[Mark]) -> list[Lane]:
    """Return the lanes, each with its marks in order. Every mark is in one of them."""
    keys = [_key(mark) for mark in marks]
    if len(set(keys)) > LANES_MAX:
        keys = [(turn, kind, "") for turn, kind, _ in keys]
    if len(set(keys)) > LANES_MAX:
        keys = [(0, kind, "") for _, kind, _ in keys]
    lanes: dict[LaneKey, list[Mark]] = {}
    for key, mark in zip(keys, marks, strict=True):
        lanes.setdefault(key, []).append(mark)
    places = {key: place for place, key in enumerate(lanes)}
    ordered = sorted(lanes, key=lambda key: (*key[:2], places[key]))
    titled: set[int] = set()
    return [_lane(_title(key, lanes[key][0], titled), lanes[key]) for key in ordered]


def _key(mark: Mark) -> LaneKey:
    kind = KINDS.get(mark.kind, LaneKind.ATTEMPTS)
    if mark.kind is MarkKind.CRASH and mark.attempt is None:
        kind = LaneKind.DAEMON
    turn = mark.turn if mark.turn is not None else -1 if kind is LaneKind.TASK else LAST
    return turn, kind, mark.lane


def _title(key: LaneKey, first: Mark, titled: set[int]) -> str:
    """Return `turn 1` for the first attempt of a turn, `attempt 2` for another, and the label of a wait."""
    turn, kind, lane = key
    match kind:
        case LaneKind.TASK | LaneKind.DAEMON:
            return kind.name.lower()
        case LaneKind.WAITS:
            title = first.label if lane else "waits"
        case LaneKind.ATTEMPTS:
            title = first.label.partition(":")[0]
            if turn not in titled:
                title = f"turn {turn}" if 0 < turn < LAST else "attempts"
            titled.add(turn)
    return title if len(title) <= TITLE_MAX else f"{title[: TITLE_MAX - 1]}…"


def _lane(title: str, marks: list[Mark]) -> Lane:
    """Return a lane in which steps that ran at once do not cover each other, as far as there are levels."""
    ends: list[float] = []
    placed = []
    for mark in marks:
        level = 0
        if mark.kind is MarkKind.STEP and mark.until > mark.since:
            free = [number for number, end in enumerate(ends) if end <= mark.since]
            level = free[0] if free else min(len(ends), LEVELS_MAX - 1)
            if level == len(ends):
                ends.append(mark.until)
            else:
                ends[level] = max(ends[level], mark.until)
        placed.append(Placed(mark, level))
    return Lane(title=title, placed=tuple(placed), levels=max(1, len(ends)))
