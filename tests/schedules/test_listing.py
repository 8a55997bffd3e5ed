"""Pages of schedules, by id."""

from __future__ import annotations

from craftcore.schedules.model import Schedule
from craftcore.schedules.store import ScheduleStore
from craftcore.storage.damaged_rows import Damaged
from tests.executions.test_listing_plans import plans_of
from tests.support.schedule_steps import put


def ids(rows: list[Schedule | Damaged]) -> list[str | None]:
    return [row.id for row in rows]


def test_pages_of_schedules_have_each_schedule_once(core):
    for number in range(7):
        put(core, id=f"job-{number}")
    core.do(core.schedules.remove, "job-3")
    store = ScheduleStore()

    with core.reading() as reader:
        first = ids(store.list_page(reader, 4))
        second = ids(store.list_page(reader, 4, after=first[-1] or ""))
        third = ids(store.list_page(reader, 4, after=second[-1] or ""))
        removed = ids(store.list_page(reader, 10, removed=True))

    assert first + second == [f"job-{number}" for number in range(7) if number != 3]
    assert third == []
    assert len(removed) == 7


def test_page_of_schedules_is_read_by_the_index_of_ids(core):
    put(core)

    plan = plans_of(core, lambda tx: ScheduleStore().list_page(tx, 50, after="backup"))

    assert plan == ["SEARCH schedules USING INDEX sqlite_autoindex_schedules_1 (id>?)"]
