"""The timeline of the next 24 hours: its marks, bands and limits, with any schedules, triggers and waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from craftcore.schedules.model import Schedule
from craftcore.schedules.recurrence.timing import Cron, Every, Once
from craftcore.schedules.tick_plan import list_upcoming
from craftcore.storage.damaged_rows import Damaged
from craftcore.storage.transaction import Transaction
from craftcore.web.timeline import (
    DAY,
    DENSE,
    SLOT,
    SPAN,
    WIDTH,
    Band,
    Entry,
    Lane,
    Timeline,
    count_firings,
    expand_schedule,
    list_firings,
    make_lane,
    make_timeline,
    place,
)
from craftcore.web.timeline_store import READ, TimelineStore
from tests.executions.test_listing_plans import plans_of
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.schedule_steps import put, stored, tick
from tests.support.task_steps import a_question, a_sleep, begin, for_event, on_event, suspend
from tests.support.trigger_steps import emit
from tests.triggers.test_claim_plans import steps_of, undone

HOUR = 3600.0


def read(core: VirtualCore) -> Timeline:
    with core.reading() as reader:
        timeline, damaged = TimelineStore().read(reader, core.clock.now())
    assert damaged == []
    return timeline


def entries(core: VirtualCore, lane: str) -> list[tuple[float, str, str]]:
    """Return (seconds from now, kind, name) for each entry of a lane."""
    [found] = [row for row in read(core).lanes if row.name == lane]
    return [(one.at - core.clock.now(), one.kind, one.name) for one in found.entries]


def test_timeline_of_an_empty_database_is_empty(core):
    timeline = read(core)

    assert timeline.is_empty
    assert [lane.name for lane in timeline.lanes] == ["schedules", "triggers", "waits"]


def test_dense_schedule_is_a_band_and_a_rare_schedule_is_marks(core):
    put(core, id="sweep", when="every 5m")
    put(core, id="brief", when="0 7 * * *", timezone="UTC")

    [lane, *_] = read(core).lanes

    [stripe] = lane.stripes
    assert (stripe.band.name, stripe.band.expression, stripe.band.count) == ("sweep", "every 5m", 291)
    assert stripe.width == pytest.approx(WIDTH, rel=0.01)
    assert [(one.at - NEW_YEAR, one.name, one.href) for one in lane.entries] == [
        (7 * HOUR, "brief", "/schedules/brief")
    ]


def test_daily_schedule_that_has_just_fired_is_shown_with_its_next_occurrence(core, clock):
    put(core, when="10 12 * * *", timezone="UTC")
    clock.advance(hours=12, minutes=14)
    tick(core)

    assert entries(core, "schedules") == [(DAY - 240, "schedule", "job")]


def test_schedule_of_every_two_hours_is_marks_in_each_quarter_of_an_hour(core, clock):
    put(core, when="0 */2 * * *", timezone="UTC")

    for number in range(8):
        assert len(entries(core, "schedules")) in (12, 13), number
        clock.advance(seconds=SLOT)


def test_pending_trigger_is_on_the_timeline_until_a_day_from_now(core, clock):
    emit(core, at=clock.now() + 60, workflow="sync")
    emit(core, at=clock.now() + DAY, workflow="last")
    emit(core, at=clock.now() + DAY + 1, workflow="beyond")
    emit(core, workflow="due")

    assert entries(core, "triggers") == [(60.0, "trigger", "sync"), (DAY, "trigger", "last")]


def test_wait_is_shown_as_a_question_a_sleep_or_an_event(core, clock):
    now = clock.now()
    suspend(core, begin(core, workflow="nap"), a_sleep(now + 100))
    suspend(core, begin(core, workflow="report"), a_question(until=now + 200))
    suspend(core, begin(core, workflow="order"), for_event("paid", until=now + 300))
    suspend(core, begin(core, workflow="idle"), on_event("message"))

    assert entries(core, "waits") == [
        (100.0, "timer", "nap: sleep#1"),
        (200.0, "question", "report: ask#1"),
        (300.0, "event", "order: paid"),
    ]
    assert entries(core, "triggers") == []
    [question] = core.rows("SELECT id FROM questions")
    [lane] = [row for row in read(core).lanes if row.name == "waits"]
    assert [one.href for one in lane.entries][1] == f"/q/{question['id']}"


def test_deadline_of_a_task_that_runs_or_waits_longer_is_shown(core, clock):
    begin(core, workflow="runs", deadline=500.0)
    suspend(core, begin(core, workflow="waits", deadline=400.0), for_event("paid"))

    assert entries(core, "waits") == [(400.0, "deadline", "waits"), (500.0, "deadline", "runs")]


def test_schedule_that_is_due_comes_first(core, clock):
    put(core, when="every 6h")
    clock.advance(hours=6, seconds=30)

    assert list_firings(stored(core), clock.now())[0] == NEW_YEAR + 6 * HOUR


def test_damaged_schedule_is_named_beside_the_others(core):
    put(core, id="fine", when="every 6h")
    put(core, id="broken", when="every 6h")
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET timezone = CAST(x'ff' AS TEXT) WHERE id = 'broken'")

    with core.reading() as reader:
        timeline, [damaged] = TimelineStore().read(reader, core.clock.now())

    assert isinstance(damaged, Damaged)
    assert damaged.id == "broken"
    assert {one.name for one in timeline.lanes[0].entries} == {"fine"}


def test_lane_with_more_rows_than_the_limit_is_marked(core, clock):
    for number in range(READ + 2):
        emit(core, at=clock.now() + 60 + number)

    [_, lane, _] = read(core).lanes

    assert (len(lane.entries), lane.more) == (READ, True)
    assert sum(mark.count for mark in lane.marks) == READ


timings = st.one_of(
    st.builds(lambda at: Once(at=at), st.floats(NEW_YEAR, NEW_YEAR + 2 * DAY)),
    st.builds(
        lambda anchor, step: Every(anchor_at=int(NEW_YEAR) + anchor, step_seconds=step),
        st.integers(-100_000, 100_000),
        st.integers(30, 200_000),
    ),
    st.builds(
        lambda cron: Cron(expression=cron, timezone="Europe/Berlin"),
        st.sampled_from(["* * * * *", "0 7 * * *", "*/20 3-9 * * *", "30 2 * * 0", "0 0 29 2 *"]),
    ),
)


@pytest.fixture(scope="module")
def example(tmp_path_factory: pytest.TempPathFactory) -> Any:
    core = VirtualCore(tmp_path_factory.mktemp("one") / "agent.db", VirtualClock())
    put(core)
    yield stored(core)
    core.close()


def list_within(schedule: Schedule, now: float) -> list[float]:
    """Return the occurrences within the span, read in growing numbers until one is after the span."""
    number = 2 * DENSE
    while len(fires := list_upcoming(schedule, now, number)) == number and fires[-1] <= now + SPAN:
        number *= 4
    return [at for at in fires if now < at <= now + SPAN]


@given(
    timing=timings,
    since=st.floats(0, DAY),
    until=st.one_of(st.none(), st.floats(0, 2 * DAY)),
    runs=st.one_of(st.none(), st.integers(0, 50)),
)
def test_occurrence_of_a_day_is_a_mark_or_counted_in_a_band(example, timing, since, until, runs):
    now = NEW_YEAR + since
    schedule = replace(
        example,
        timing=timing,
        high_water_at=NEW_YEAR + since / 2,
        next_at=None,
        until_at=None if until is None else NEW_YEAR + until,
        max_runs=runs,
        runs=0,
    )

    found = expand_schedule(schedule, now)

    fires = list_within(schedule, now)
    if len(fires) <= DENSE:
        assert not isinstance(found, Band)
        assert [one.at for one in found] == fires
    else:
        assert isinstance(found, Band)
        assert (found.first_at, found.count) == (fires[0], len(fires))
        assert fires[-1] <= found.last_at <= now + SPAN
        assert count_firings(schedule, now)[0] == len(fires)


@given(st.lists(st.floats(-DAY, 2 * DAY), max_size=300))
def test_marks_are_bounded_in_order_and_count_every_entry_once(offsets):
    found = [Entry(at=NEW_YEAR + one, kind="trigger", name="x", href="/") for one in offsets]

    lane = make_lane("triggers", found, NEW_YEAR)

    assert sum(mark.count for mark in lane.marks) == len(lane.entries) == sum(one <= SPAN for one in offsets)
    lefts = [mark.left for mark in lane.marks]
    assert lefts == sorted(lefts)
    assert all(0 <= left <= WIDTH for left in lefts)
    assert len(lane.marks) <= SPAN / SLOT + 1


@given(st.floats(0, 4e9))
def test_ticks_are_full_hours_within_the_day(now):
    timeline = make_timeline(now, [])

    assert len(timeline.ticks) == 8
    assert all(at % 10_800 == 0 and now < at <= now + DAY and left == place(at, now) for at, left in timeline.ticks)


@pytest.fixture(scope="module", params=[300, 20_000])
def crowded_core(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCore]:
    """Make a database with many pending triggers, settled triggers and ended tasks."""
    core = VirtualCore(tmp_path_factory.mktemp("crowded_core") / "agent.db", VirtualClock())
    put(core, when="every 6h")
    emit(core, at=NEW_YEAR + 60)
    suspend(core, begin(core, workflow="nap"), a_sleep(NEW_YEAR + 100))
    copy_rows(core, "triggers", request.param, {"id": "id || '-' || n", "dedup_key": "NULL", "dedup_scope": "NULL"})
    yield core
    core.close()


def copy_rows(core: VirtualCore, table: str, number: int, changes: dict[str, str]) -> None:
    with core.transaction() as tx:
        columns = [row[1] for row in tx.fetch_tuples(f"PRAGMA table_info({table})")]
        values = ", ".join("NULL" if name == "seq" else changes.get(name, name) for name in columns)
        tx.run(
            f"""
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :more)
            INSERT INTO {table} ({", ".join(columns)})
            SELECT {values} FROM {table}, numbers WHERE {table}.seq = 1
            """,
            more=number,
        )


def test_lane_of_unchanged_schedules_is_kept_and_a_change_is_seen(core):
    timelines = TimelineStore()

    def schedules() -> Lane:
        with core.reading() as reader:
            return timelines.read(reader, core.clock.now())[0].lanes[0]

    put(core, when="every 6h")
    first = schedules()
    assert schedules() is first

    core.clock.advance(seconds=1)
    put(core, when="every 1h")
    assert len(schedules().entries) + len(schedules().stripes) != len(first.entries)
    kept = schedules()
    core.clock.advance(seconds=SLOT)
    assert schedules() is not kept


def test_damaged_schedule_is_read_again_each_time(core):
    timelines = TimelineStore()
    put(core, when="every 6h")
    with core.reading() as reader:
        kept = timelines.read(reader, core.clock.now())

    with core.transaction() as tx:
        tx.run("UPDATE schedules SET workflow = CAST(x'ff' AS TEXT), updated_at = updated_at + 1")
    with core.reading() as reader:
        assert [len(timelines.read(reader, core.clock.now())[1]) for _ in range(2)] == [1, 1]
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET workflow = 'sync'")
    with core.reading() as reader:
        assert timelines.read(reader, core.clock.now())[1] == kept[1] == []


def test_timeline_reads_only_live_rows_by_indexes(crowded_core):
    plan = set(plans_of(crowded_core, lambda tx: TimelineStore().read(tx, NEW_YEAR)))

    scans = {line for line in plan if line.startswith("SCAN") and "used" not in line}
    assert scans <= {"SCAN tasks USING INDEX tasks_running", "SCAN (subquery-1)", "SCAN CONSTANT ROW"}
    assert any("triggers_pending (priority=? AND due_at>? AND due_at<?)" in line for line in plan)
    assert any("schedules_next (next_at>? AND next_at<?)" in line for line in plan)


def test_cost_of_the_timeline_is_bounded(crowded_core):
    with undone(crowded_core) as tx:
        assert steps_of(tx, lambda: TimelineStore().read(tx, NEW_YEAR)) < 60_000


def test_next_items_cost_only_the_shown_rows(crowded_core):
    def find(tx: Transaction) -> None:
        assert len(TimelineStore().list_next(tx, NEW_YEAR, 3)) == 3

    plan = plans_of(crowded_core, find)

    assert {line for line in plan if line.startswith("SCAN")} <= {"SCAN used", "SCAN CONSTANT ROW"}
    assert "SEARCH schedules USING INDEX schedules_next (next_at>?)" in plan
    with undone(crowded_core) as tx:
        assert steps_of(tx, lambda: find(tx)) < 2_000
