"""The picture of a task: each event, wait and crash is drawn once, in order, from a row."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from craftcore.diagnostics.tasks.task_history import Start, TaskHistory
from craftcore.tasks.model import QuestionStatus
from craftcore.web.picture import EVENTS_MAX, MARGIN, Picture, make_picture
from craftcore.web.pictures.lane import LANES_MAX
from craftcore.web.pictures.mark import Mark, MarkKind
from craftcore.web.pictures.scale import WIDTH, make_scale
from tests.support.cells import cells
from tests.support.crash_histories import CrashHistory, HistoryBuilder

CRASHES = (MarkKind.CRASH, MarkKind.LOST)


def rows_of(history: TaskHistory) -> set[str]:
    """Return the rows that a mark can have as its source."""
    return {
        f"task {history.task.id}",
        *(f"record {head.id}" for head in history.heads),
        *(f"event {event.execution_id} {event.seq}" for event in history.events),
        *(f"wait {wait.id}" for wait in history.waits),
        *(f"question {question.id}" for question in history.questions),
        *(f"decision {number} of {one.key}" for number, one in enumerate(history.decisions, 1)),
        *(f"epoch {start.epoch}" for start in history.starts),
    }


def make_begun_task() -> CrashHistory:
    """Return the history of a task whose first attempt has only begun."""
    known = HistoryBuilder(2, steps=0).build()
    assert [event.type for event in known.history.events] == ["INTENT_RECEIVED"]
    return known


def marks(picture: Picture, *kinds: MarkKind) -> list[Mark]:
    return [mark for mark in picture.marks if mark.kind in kinds]


def check_picture(known: CrashHistory) -> Picture:
    """Check that each row is drawn once and in order, and that each mark has a row."""
    history, picture = known.history, make_picture(known.history)
    drawn = Counter((mark.kind in CRASHES, mark.kind, mark.row) for mark in picture.marks if mark.kind != MarkKind.TASK)
    assert set(drawn.values()) == {1}
    assert {mark.row for mark in picture.marks} <= rows_of(history)
    check_order(known, picture)
    assert sorted(mark.row for mark in marks(picture, MarkKind.WAIT)) == sorted(
        f"wait {one.id}" for one in history.waits
    )
    assert {mark.row for mark in marks(picture, MarkKind.CRASH)} == known.crashes
    assert {mark.row.removeprefix("record ") for mark in marks(picture, MarkKind.LOST)} == known.lost
    answered = [one for one in history.questions if one.status is QuestionStatus.ANSWERED]
    answers = Counter(mark.label for mark in marks(picture, MarkKind.ANSWER) if mark.row.startswith("question"))
    assert answers == ({"ada (web): publish": len(answered)} if answered else {})
    check_places(picture)
    return picture


def check_order(known: CrashHistory, picture: Picture) -> None:
    """Check that marks are in the order of the events, and a crash is between the last event and the next start."""
    idle = known.crashes - set(known.happened)
    order = [mark for mark in picture.marks if mark.row.startswith(("event", "epoch")) and mark.row not in idle]
    assert [mark.row for mark in order] == known.happened
    assert all(first.moment <= second.moment for first, second in pairwise(picture.marks))
    starts = {start.epoch: start.started_at for start in known.history.starts}
    for place, mark in enumerate(order):
        if mark.kind is MarkKind.CRASH:
            assert mark.since == order[place - 1].moment
            found_at = starts.get(int(mark.row.split()[1]) + 1, known.history.now)
            assert mark.until == max(mark.since, found_at)
            assert mark.is_open == (int(mark.row.split()[1]) + 1 not in starts)
            assert all(later.moment >= mark.until for later in order[place + 1 :])


def check_places(picture: Picture) -> None:
    """Check that each mark has one place, within its lane and the picture, and later marks are further right."""
    shapes = [shape for row in picture.rows for shape in row.shapes]
    assert Counter(id(shape.mark) for shape in shapes) == Counter(map(id, picture.marks))
    for row in picture.rows:
        for shape in row.shapes:
            assert MARGIN <= shape.left <= shape.left + shape.width <= MARGIN + WIDTH + 0.2
            assert row.top <= shape.top < row.top + row.height
    assert len(picture.rows) <= LANES_MAX
    by_moment = sorted(shapes, key=lambda shape: shape.mark.since)
    assert all(one.left <= other.left for one, other in pairwise(by_moment))
    ticks = [tick.left for tick in picture.ticks]
    assert ticks == sorted(set(ticks))


@pytest.mark.parametrize("hundred", cells(range(10)))
def test_events_waits_and_crashes_of_seeded_histories_are_drawn_once_in_order(hundred):
    for seed in range(100 * hundred, 100 * hundred + 100):
        check_picture(HistoryBuilder(seed).build())


@settings(max_examples=25)
@given(seed=st.integers(min_value=1_000), steps=st.integers(min_value=0, max_value=120), setbacks=st.booleans())
def test_crash_history_of_any_length_is_drawn_once_in_order(seed, steps, setbacks):
    known = HistoryBuilder(seed, steps=steps, setbacks=setbacks).build()
    picture = check_picture(known)
    assert setbacks or not picture.was_clock_set_back


def test_long_idle_time_is_folded_and_work_is_not():
    known = make_begun_task()
    [head], [first] = known.history.heads, known.history.events
    again = head._replace(id="exec-t.2", attempt=2, epoch=8, created_at=first.at + 18_000)
    history = replace(
        known.history,
        heads=(head, again),
        starts=(*known.history.starts, Start(8, first.at + 2, None)),
        events=(first, first._replace(execution_id="exec-t.2", at=again.created_at)),
        now=again.created_at + 60,
    )
    picture = make_picture(history)
    assert [fold.text for fold in picture.folds] == ["5 h folded"]
    [crash] = marks(picture, MarkKind.CRASH)
    assert (crash.row, crash.until - crash.since) == ("epoch 7", 2)
    assert crash.label.startswith("daemon died between ")


def test_scale_of_any_moments_keeps_their_order_and_fits():
    @given(st.lists(st.floats(0, 1e9), min_size=1, max_size=60), st.lists(st.tuples(*[st.floats(0, 1e9)] * 2)))
    def check(moments, spans):
        scale = make_scale(moments, [(min(span), max(span)) for span in spans])
        places = [scale.place(moment) for moment in sorted(set(moments))]
        assert places == list(scale.places)
        assert all(one < other for one, other in pairwise(places))
        assert 0 <= places[0] <= places[-1] <= WIDTH + 0.001

    check()


def test_picture_of_too_many_events_is_refused():
    known = make_begun_task()
    with pytest.raises(ValueError, match="at most 2,000 events"):
        make_picture(replace(known.history, events=known.history.events * (EVENTS_MAX + 1)))


def test_picture_of_a_task_without_any_record_has_its_begin():
    known = make_begun_task()
    picture = make_picture(replace(known.history, heads=(), events=(), starts=()))
    assert [mark.label for mark in picture.marks] == ["report is requested"]


def test_mark_without_setback_is_drawn_at_the_moment_of_its_row():
    for seed in range(50):
        known = HistoryBuilder(seed, setbacks=False).build()
        for mark in make_picture(known.history).marks:
            assert mark.moment == mark.at or mark.kind is MarkKind.STEP, mark
