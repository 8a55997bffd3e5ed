"""The picture of a task: lanes of marks over one scale, ready to be drawn. Pure.

It is made from rows alone: each event, wait, attempt, answer and death is one mark, and a mark has the row that it
comes from. A list of the same marks, in order, goes with it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from craftcore.diagnostics.tasks.task_history import TaskHistory
from craftcore.serialization.time_text import clock_time
from craftcore.web.pictures.lane import Lane, make_lanes
from craftcore.web.pictures.mark import Mark, MarkKind
from craftcore.web.pictures.outline import Outline, make_outlines
from craftcore.web.pictures.scale import WIDTH, Scale, make_scale
from craftcore.web.pictures.task_marks import list_marks

EVENTS_MAX = 2_000
"""How many events a picture has at most."""

MARGIN = 150.0
"""The space of the titles, left of the scale."""

RIGHT = 10.0
TOP, LANE_HEIGHT, LEVEL_HEIGHT = 34.0, 26.0, 9.0
LETTER = 6.2
"""The width of a letter, about."""

LABEL_LEAST = 5
"""A label is drawn in a bar that has space for this number of letters."""

TICK_SPACE = 76.0

SHAPES_MAX = 300
"""A picture with more marks is drawn with outlines."""


class Shape(NamedTuple):
    """A mark and where it is drawn. `text`: as much of its label as its bar has space for; empty: too little."""

    mark: Mark
    left: float
    width: float
    top: float
    text: str

    @property
    def middle(self) -> float:
        return self.left + self.width / 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A lane and where it is drawn."""

    title: str
    top: float
    height: float
    shapes: tuple[Shape, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    """A moment at the top of the scale. `is_last`: its text ends where it is; that of any other begins there."""

    left: float
    text: str
    is_last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldShape:
    """A folded time and where it is drawn."""

    left: float
    width: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """All that is drawn.

    outlines         what is drawn instead of the shapes when there are very many; empty: the shapes are drawn
    marks            the same as a list, in order
    has_more         there are older events, which are not in it
    was_clock_set_back  a mark is not drawn at the moment that its row has
    """

    width: float
    height: float
    rows: tuple[Row, ...]
    ticks: tuple[Tick, ...]
    folds: tuple[FoldShape, ...]
    outlines: tuple[Outline, ...]
    marks: tuple[Mark, ...]
    events: int
    has_more: bool
    was_clock_set_back: bool


def make_picture(history: TaskHistory) -> Picture:
    """Return the picture of a task. Raises ValueError for a history of more than EVENTS_MAX events."""
    if len(history.events) > EVENTS_MAX:
        raise ValueError(f"a picture has at most {EVENTS_MAX:,} events, not {len(history.events):,}")
    marks = list_marks(history)
    if not marks:
        return Picture(
            width=MARGIN + WIDTH + RIGHT,
            height=TOP,
            rows=(),
            ticks=(),
            folds=(),
            outlines=(),
            marks=(),
            events=0,
            has_more=history.has_more,
            was_clock_set_back=False,
        )
    work = [(one.since, one.until) for one in marks if one.kind is MarkKind.ATTEMPT]
    scale = make_scale((moment for one in marks for moment in (one.since, one.until)), work)
    rows = tuple(_place_rows(make_lanes(marks), scale))
    folds = tuple(FoldShape(left=MARGIN + one.left, width=one.width, text=one.text) for one in scale.folds)
    return Picture(
        width=MARGIN + WIDTH + RIGHT,
        height=rows[-1].top + rows[-1].height + RIGHT,
        rows=rows,
        ticks=tuple(_place_ticks(scale, any(one.is_open for one in marks))),
        folds=folds,
        outlines=_make_outlines(rows) if len(marks) > SHAPES_MAX else (),
        marks=tuple(marks),
        events=len(history.events),
        has_more=history.has_more,
        was_clock_set_back=any(one.moment > one.at for one in marks if one.kind is not MarkKind.CRASH),
    )


def _place_rows(lanes: list[Lane], scale: Scale) -> Iterator[Row]:
    top = TOP
    for lane in lanes:
        shapes = []
        for placed in lane.placed:
            mark = placed.mark
            left = scale.place(mark.since)
            width = scale.place(mark.until) - left
            letters = int(width / LETTER)
            text = mark.label[:letters] if letters >= LABEL_LEAST else ""
            shapes.append(
                Shape(
                    mark=mark,
                    left=round(MARGIN + left, 1),
                    width=round(width, 1),
                    top=top + placed.level * LEVEL_HEIGHT,
                    text=text,
                )
            )
        height = LANE_HEIGHT + (lane.levels - 1) * LEVEL_HEIGHT
        yield Row(title=lane.title, top=top, height=height, shapes=tuple(shapes))
        top += height


def _make_outlines(rows: tuple[Row, ...]) -> tuple[Outline, ...]:
    shapes = [shape for row in rows for shape in row.shapes]
    return make_outlines((one.mark.kind, one.mark.meaning, one.left, one.width, one.top) for one in shapes)


def _place_ticks(scale: Scale, is_open: bool) -> Iterator[Tick]:
    """Yield the moments that are written at the top: the first, the end of each fold, the last, as far as there is
    space. `is_open`: the last one is now."""
    after_folds = {fold.left + fold.width for fold in scale.folds}
    space_from = 0.0
    for moment, place in zip(scale.moments[:-1], scale.places[:-1], strict=True):
        is_written = place == 0.0 or place in after_folds
        if is_written and place >= space_from and place + 2 * TICK_SPACE <= scale.places[-1]:
            yield Tick(left=round(MARGIN + place, 1), text=clock_time(moment)[11:19], is_last=False)
            space_from = place + TICK_SPACE
    text = "now" if is_open else clock_time(scale.moments[-1])[11:19]
    yield Tick(left=round(MARGIN + scale.places[-1], 1), text=text, is_last=True)
