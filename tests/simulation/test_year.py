"""A simulated year of a hundred schedules with a daily restart: reproducible, with a complete account.

The expected account is computed by brute force (`moments`), and the real one is read with plain SQL.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from craftcore.schedules import tick_service
from craftcore.schedules.model import Schedule
from craftcore.schedules.recurrence.timing import Cron
from craftcore.schedules.tick_plan import Decision, decide
from tests.support.fakes import VirtualCore
from tests.support.simulated_year import Year, digest

MONTH = 30

SHORT = 8
"""The number of days of a short run. The first three days have most of the occurrences."""

DAYS = 100
"""The number of days of the default run, which ends when the first pauses are over."""

REASONS = (
    "missed: ",
    "overlap: ",
    "waits for trigger ",
    "fired before, as trigger ",
    "holidays",
    "skip-next",
    "no longer declared in code",
)
RARE_REASONS = ("waits already", "removed", "its schedule was changed")

LINES = """
SELECT schedule_id, generation, nominal_at, last_at, count, outcome
  FROM schedule_occurrences
 WHERE cause = 'time'
 ORDER BY schedule_id, generation, nominal_at, seq
"""


def run_year(year: Year) -> str:
    """Run a year, check its account at the end of each month, and return its digest."""
    for _ in run_days(year):
        pass
    return digest(year.core.database.path)


def run_days(year: Year) -> Iterator[int]:
    for day in year.run():
        if day % MONTH == 0 or day == year.days:
            check(year)
        yield day


def run_short_year(year: Year) -> str:
    """Run the first days of a year, check its account, and return its digest."""
    for day in run_days(year):
        if day == SHORT:
            break
    check(year)
    year.core.close()
    return digest(year.core.database.path)


def check(year: Year) -> None:
    occurrences_are_accounted_for_once(year)
    fired_occurrences_have_their_triggers(year)
    runs_are_counted(year.core)
    one_time_jobs_fire_once(year)


def occurrences_are_accounted_for_once(year: Year) -> None:
    """Require that the lines of a generation are the expected moments in order, from the first to the mark."""
    schedules = {row["id"]: row for row in year.core.rows("SELECT * FROM schedules")}
    position: dict[tuple[str, int], int] = defaultdict(int)
    with year.core.reading() as reader:
        for id, generation, nominal_at, last_at, count, outcome in reader.fetch_tuples(LINES):
            key = (id, generation)
            moments, at = year.moments[key], position[key]
            found = (nominal_at, last_at, count)
            assert at + count <= len(moments), (key, found)
            assert found == (moments[at], moments[at + count - 1], count), (key, moments[at], found)
            assert outcome == "skipped" or count == 1, (key, found)
            position[key] += count
    for (id, generation), moments in year.moments.items():
        row, at = schedules[id], position[id, generation]
        if row["generation"] != generation:
            continue
        assert at == bisect_right(moments, row["high_water_at"]), (id, row["high_water_at"], moments[at - 1 : at + 1])
        following = moments[at] if at < len(moments) else None
        if row["status"] == "ACTIVE" and row["kind"] != "startup":
            assert following is None or row["next_at"] == following, (id, row["next_at"], following)
            assert row["next_at"] > year.seen_at, (id, row["next_at"], "is past and in no line")
        if row["status"] == "FINISHED" and row["runs"] != row["max_runs"]:
            assert following is None, (id, row["reason"], following)


def fired_occurrences_have_their_triggers(year: Year) -> None:
    core = year.core
    strays = core.rows(
        """
        SELECT o.schedule_id, o.nominal_at, o.trigger_id, t.id
          FROM schedule_occurrences AS o
          FULL JOIN triggers AS t
            ON t.id = o.trigger_id AND t.schedule_id = o.schedule_id AND t.nominal_at = o.nominal_at
         WHERE (o.trigger_id IS NULL AND o.outcome IS NOT 'skipped' AND o.outcome IS NOT 'buffered')
            OR (o.outcome = 'fired' AND t.id IS NULL)
        """
    )
    assert strays == []
    twice = core.rows(
        """
        SELECT schedule_id, nominal_at, count(*), count(DISTINCT trigger_id)
          FROM schedule_occurrences
         WHERE outcome = 'fired' AND cause IN ('time', 'backfill')
         GROUP BY schedule_id, nominal_at
        HAVING count(*) > 1
        """
    )
    assert twice == []
    [counts] = core.rows(
        "SELECT count(*) AS lines, count(DISTINCT trigger_id) AS triggers, (SELECT count(*) FROM triggers) AS rows "
        "FROM schedule_occurrences WHERE outcome = 'fired'"
    )
    assert counts["lines"] == counts["triggers"] == counts["rows"]
    early = core.rows("SELECT id, nominal_at, fire_at, created_at FROM triggers WHERE fire_at < nominal_at")
    assert [row for row in early if not year.was_due(row["nominal_at"], row["fire_at"])] == []


def runs_are_counted(core: VirtualCore) -> None:
    wrong = core.rows(
        """
        SELECT id, runs, count(seq) AS lines
          FROM schedules
          LEFT JOIN schedule_occurrences AS o
            ON o.schedule_id = id
           AND o.generation = schedules.generation
           AND o.outcome <> 'skipped'
           AND o.cause IN ('time', 'startup')
         GROUP BY id
        HAVING runs <> count(seq) OR runs > max_runs
        """
    )
    assert wrong == []


def one_time_jobs_fire_once(year: Year) -> None:
    fired = year.core.rows(
        """
        SELECT id, at, status, skip_to_at, (SELECT count(*)
                                  FROM schedule_occurrences
                                 WHERE schedule_id = id AND generation = schedules.generation
                                   AND cause = 'time' AND outcome = 'fired') AS times
          FROM schedules
         WHERE kind = 'once'
        """
    )
    for row in fired:
        if row["skip_to_at"] is None and row["status"] == "FINISHED":
            assert row["times"] == 1, row
        elif row["status"] == "ACTIVE":
            assert row["times"] == 0, row
            assert row["at"] > year.seen_at, row


@pytest.fixture(scope="module")
def year_and_digest(tmp_path_factory: pytest.TempPathFactory) -> tuple[Year, str]:
    """Return a year, and its digest after the first days."""
    year = Year(tmp_path_factory.mktemp("year"), seed=1, days=DAYS)
    [after_short] = [digest(year.core.database.path) for day in run_days(year) if day == SHORT]
    return year, after_short


@pytest.fixture(scope="module")
def year(year_and_digest: tuple[Year, str]) -> Year:
    return year_and_digest[0]


@pytest.fixture(scope="module")
def short_digest(year_and_digest: tuple[Year, str]) -> str:
    return year_and_digest[1]


def test_simulated_year_of_a_hundred_schedules_is_reproducible(short_digest, tmp_path):
    assert run_short_year(Year(tmp_path, seed=1, days=DAYS)) == short_digest


@pytest.mark.campaign
def test_whole_simulated_year_is_reproducible(tmp_path):
    one, again = (run_year(Year(folder(tmp_path, name), seed=1)) for name in ("one", "again"))

    assert one == again


@pytest.mark.acceptance
def test_simulated_year_of_another_seed_differs(short_digest, tmp_path):
    assert run_short_year(Year(tmp_path, seed=2, days=DAYS)) != short_digest


def test_hundred_simulated_days_have_every_kind_of_event(year):
    require_every_kind_of_event(year)


@pytest.mark.acceptance
def test_whole_simulated_year_has_every_kind_of_event(tmp_path):
    year = Year(tmp_path, seed=1)
    run_year(year)

    require_every_kind_of_event(year)


def require_every_kind_of_event(year: Year) -> None:
    def counted(sql: str) -> Counter[str]:
        return Counter({row["what"]: row["number"] for row in year.core.rows(sql)})

    kinds = counted("SELECT kind AS what, count(*) AS number FROM schedules GROUP BY 1")
    states = counted("SELECT status AS what, count(*) AS number FROM schedules GROUP BY 1")
    ends = counted("SELECT status || ' ' || reason AS what, count(*) AS number FROM triggers GROUP BY 1")
    lines = counted("SELECT coalesce(reason, outcome) AS what, count(*) AS number FROM schedule_occurrences GROUP BY 1")
    reasons = Counter({known: sum(lines[what] for what in lines if what.startswith(known)) for known in REASONS})

    assert set(kinds) == {"once", "every", "cron", "startup"}
    assert kinds.total() == 100
    assert set(states) >= {"ACTIVE", "FINISHED"}
    assert ends["DONE succeeded"] > 13 * year.days
    assert ends["FAILED VALIDATION_ERROR"] > year.days // 18
    assert ends["DONE stale"] > 0
    assert set(lines) == {"fired", *(what for what in lines if what.startswith((*REASONS, *RARE_REASONS)))}
    assert min(reasons.values()) > 0, reasons
    assert year.crashes > year.days // 4
    assert year.core.rows("SELECT * FROM triggers WHERE crash_count > 0") != []


# Planted faults

A_LINE = "seq = (SELECT max(seq) FROM schedule_occurrences WHERE outcome = 'fired' AND cause = 'time')"
SKIPPED = "seq = (SELECT max(seq) FROM schedule_occurrences WHERE outcome = 'skipped' AND cause = 'time')"
COLUMNS = "schedule_id, generation, cause, nominal_at, last_at, count, outcome, reason, trigger_id, decided_at"


@pytest.mark.parametrize(
    "spoil",
    [
        f"DELETE FROM schedule_occurrences WHERE {A_LINE}",
        f"DELETE FROM schedule_occurrences WHERE {SKIPPED}",
        f"INSERT INTO schedule_occurrences ({COLUMNS}) SELECT {COLUMNS} FROM schedule_occurrences WHERE {SKIPPED}",
        f"UPDATE schedule_occurrences SET nominal_at = nominal_at + 60, last_at = last_at + 60 WHERE {A_LINE}",
        f"DELETE FROM triggers WHERE id = (SELECT trigger_id FROM schedule_occurrences WHERE {A_LINE})",
        "UPDATE triggers SET id = 'another' WHERE seq = 1",
        "UPDATE triggers SET nominal_at = nominal_at + 1 WHERE seq = 1",
        "UPDATE schedules SET high_water_at = high_water_at + 86400 * 9 WHERE kind = 'every' AND status = 'ACTIVE'",
        "UPDATE schedules SET high_water_at = high_water_at - 86400 * 9 WHERE kind = 'cron' AND status = 'ACTIVE'",
        "UPDATE schedules SET next_at = next_at + 60 WHERE next_at IS NOT NULL",
        "UPDATE schedules SET runs = runs + 1 WHERE kind = 'cron'",
        "UPDATE schedules SET status = 'FINISHED', reason = 'x', next_at = NULL WHERE kind = 'once'",
    ],
)
def test_faulty_account_is_refused(spoil, year, tmp_path, monkeypatch):
    copy = tmp_path / "agent.db"
    copy.write_bytes(year.core.database.path.read_bytes())
    monkeypatch.setattr(year, "core", VirtualCore(copy, year.clock))
    check(year)
    with year.core.transaction() as tx:
        assert tx.run(spoil) > 0

    with pytest.raises(AssertionError):
        check(year)
    year.core.close()


def test_engine_that_forgets_skipped_occurrences_is_detected(tmp_path, monkeypatch):
    monkeypatch.setattr(tick_service, "decide", lambda schedule, now: replace(decide(schedule, now), skipped=[]))

    with pytest.raises(AssertionError):
        run_year(Year(tmp_path, seed=1, days=SHORT))


@pytest.mark.acceptance
def test_engine_without_the_end_of_winter_time_is_detected(tmp_path, monkeypatch):
    winter = {"Europe/Berlin": "Etc/GMT-1", "America/New_York": "Etc/GMT+5"}

    def always_in_winter(schedule: Schedule, now: float) -> Decision:
        if isinstance(timing := schedule.timing, Cron):
            timing = replace(timing, timezone=winter.get(timing.timezone, timing.timezone))
        return decide(replace(schedule, timing=timing), now)

    monkeypatch.setattr(tick_service, "decide", always_in_winter)

    with pytest.raises(AssertionError):
        run_year(Year(tmp_path, seed=1, days=4 * MONTH))


def folder(tmp_path: Path, name: str) -> Path:
    (tmp_path / name).mkdir()
    return tmp_path / name
