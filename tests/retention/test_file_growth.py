"""File size over a year of daily work: bounded by the rows that retention keeps."""

from __future__ import annotations

from craftcore.config import RetentionSettings
from craftcore.storage.files.file_size import KEPT_FREE, count_free_pages
from craftcore.triggers.settlement import Succeeded
from tests.support.attempts import begin, end
from tests.support.fakes import VirtualCore
from tests.support.retention_harness import DAY, assert_sound, batches, give_all_back

SHORT = RetentionSettings(triggers=DAY, dead=3 * DAY, keys=9 * DAY, bodies=2 * DAY, history=9 * DAY, audit=9 * DAY)
"""The defaults divided by ten."""


TRIGGERS_PER_DAY = 5


def run_day(core: VirtualCore, number: int) -> None:
    for n in range(TRIGGERS_PER_DAY):
        begun = begin(core, payload={"text": "x" * 4_000}, dedup_key=f"day-{number}-{n}", dedup_scope="ever")
        end(core, begun, Succeeded(result_json=f'"{"y" * 4_000}"'))


def pages(core: VirtualCore) -> int:
    [row] = core.rows("PRAGMA page_count")
    return int(row["page_count"])


def run_days(core: VirtualCore, days: int) -> list[int]:
    """Run days of work with a retention pass after each, and return the pages of the file after each pass."""
    sizes = []
    for day in range(days):
        run_day(core, day)
        core.clock.advance(hours=24)  # type: ignore[attr-defined]
        for _ in batches(core, SHORT):
            pass
        give_all_back(core)
        sizes.append(pages(core))
    return sizes


def test_file_stops_growing_after_the_longest_horizon(core):
    sizes = run_days(core, 30)

    assert_sound(core)
    assert max(sizes[15:]) <= max(sizes[:15])
    [rows] = core.rows("SELECT (SELECT count(*) FROM triggers) AS t, (SELECT count(*) FROM executions) AS e")
    assert rows == {"t": 8 * TRIGGERS_PER_DAY, "e": 8 * TRIGGERS_PER_DAY}, "the rows that are less than nine days old"


def test_rows_stamped_a_year_ahead_do_not_keep_later_rows(core):
    """The oldest rows have a time in the next year. The age of later rows does not depend on them."""
    core.clock.advance(365 * DAY)
    run_day(core, 365)
    core.clock.set_back(365 * DAY)

    run_days(core, 15)

    [left] = core.rows("""
        SELECT (SELECT count(*) FROM triggers) AS triggers,
               (SELECT count(*) FROM executions WHERE stripped_at IS NULL) AS with_bodies
        """)
    assert left == {"triggers": 9 * TRIGGERS_PER_DAY, "with_bodies": 2 * TRIGGERS_PER_DAY}


def test_free_pages_are_returned_except_a_mebibyte(core):
    for day in range(40):
        run_day(core, day)
    pages_before = pages(core)
    core.clock.advance(hours=24 * 10)
    for _ in batches(core, SHORT):
        pass
    assert pages(core) == pages_before, "deleting rows does not shrink the file"

    give_all_back(core)

    with core.reading() as reader:
        left = count_free_pages(reader)
    assert pages(core) < pages_before / 2
    assert KEPT_FREE - 64 <= left <= KEPT_FREE
