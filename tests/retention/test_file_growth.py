"""File size over a year of daily work: bounded by the rows that retention keeps."""

from __future__ import annotations

from craftcore.config import RetentionSettings
from craftcore.storage.files.file_size import KEPT_FREE, count_free_pages
from craftcore.triggers.settlement import Succeeded
from tests.support.attempts import begin, end
from tests.support.fakes import VirtualCore
from tests.support.retention_harness import DAY, assert_sound, batches, give_all_back

SHORT = RetentionSettings(triggers=DAY, dead=3 * DAY, keys=9 * DAY, bodies=2 * DAY, history=9 * DAY, audit=9 * DAY)
"""The proportions of the defaults, with a tenth of the days."""


EACH_DAY = 5


def a_day(core: VirtualCore, number: int) -> None:
    for n in range(EACH_DAY):
        begun = begin(core, payload={"text": "x" * 4_000}, dedup_key=f"day-{number}-{n}", dedup_scope="ever")
        end(core, begun, Succeeded(result_json=f'"{"y" * 4_000}"'))


def pages(core: VirtualCore) -> int:
    [row] = core.rows("PRAGMA page_count")
    return int(row["page_count"])


def a_year(core: VirtualCore, days: int) -> list[int]:
    """The size of the file each evening."""
    sizes = []
    for day in range(days):
        a_day(core, day)
        core.clock.advance(hours=24)  # type: ignore[attr-defined]
        for _ in batches(core, SHORT):
            pass
        give_all_back(core)
        sizes.append(pages(core))
    return sizes


def test_file_stops_growing_after_the_longest_horizon(core):
    sizes = a_year(core, 30)

    assert_sound(core)
    assert max(sizes[15:]) <= max(sizes[:15])
    [rows] = core.rows("SELECT (SELECT count(*) FROM triggers) AS t, (SELECT count(*) FROM executions) AS e")
    assert rows == {"t": 8 * EACH_DAY, "e": 8 * EACH_DAY}, "what is not nine days old"


def test_rows_stamped_a_year_ahead_do_not_keep_later_rows(core):
    """The oldest rows say that they are of next year. What came after them is as old as ever."""
    core.clock.advance(365 * DAY)
    a_day(core, 365)
    core.clock.set_back(365 * DAY)

    a_year(core, 15)

    [left] = core.rows("""
        SELECT (SELECT count(*) FROM triggers) AS triggers,
               (SELECT count(*) FROM executions WHERE stripped_at IS NULL) AS with_bodies
        """)
    assert left == {"triggers": 9 * EACH_DAY, "with_bodies": 2 * EACH_DAY}


def test_free_pages_are_returned_except_a_mebibyte(core):
    for day in range(40):
        a_day(core, day)
    full = pages(core)
    core.clock.advance(hours=24 * 10)
    for _ in batches(core, SHORT):
        pass
    assert pages(core) == full, "deleting alone shrinks nothing"

    give_all_back(core)

    with core.reading() as reader:
        left = count_free_pages(reader)
    assert pages(core) < full / 2
    assert KEPT_FREE - 64 <= left <= KEPT_FREE
