"""The pages of schedules: strips, accounts with reasons, next occurrences and offered actions."""

from __future__ import annotations

import html
import re
import shutil
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from craftcore.clock import SystemClock
from craftcore.diagnostics.text.schedule_text import local_time_text
from craftcore.schedules.model import Overlap
from craftcore.schedules.recurrence.occurrences import occurrences
from craftcore.schedules.tick_plan import list_upcoming
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.settlement import Succeeded
from tests.support.attempts import end, start_due
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.schedule_steps import DAY, put, start_daemon, stored, tick, triggers
from tests.support.trigger_steps import BROKEN
from tests.support.web_site import SETTINGS, Site, forms, in_process

HIDDEN = SETTINGS.replace("[web]", '[web]\npayloads = "hidden"')

STRIP = re.compile(r'<span class="strip" role="img" aria-label="([^"]*)">(.*?)</span>', re.DOTALL)


def strips(text: str) -> list[tuple[str, str]]:
    """Return the label and the signs of each strip of a page."""
    return [(html.unescape(label), re.sub("<[^>]*>", "", signs)) for label, signs in STRIP.findall(text)]


def find_zone_by_day() -> str:
    """Return a zone in which the hour before now is of today: the page draws days."""
    berlin = datetime.now(ZoneInfo("Europe/Berlin"))
    return "Europe/Berlin" if 2 <= berlin.hour < 22 else "America/New_York"


ZONE = find_zone_by_day()


def words_of(text: str) -> str:
    """Return the text of a page without its markup."""
    return " ".join(html.unescape(re.sub("<[^>]*>", " ", text)).split())


def a_core(path: Path, *, before: float = 0.0, seed: int = 3) -> tuple[VirtualCore, VirtualClock]:
    """Make a database whose clock is `before` seconds behind the system clock, which the page uses."""
    clock = VirtualClock(now=SystemClock().now() - before, seed=seed)
    return VirtualCore(path, clock), clock


@pytest.fixture(scope="module")
def thirty_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a database with 30 days of a daily schedule: one late, three in a pause, one dead."""
    path = tmp_path_factory.mktemp("thirty_days") / "agent.db"
    core, clock = a_core(path, before=30 * DAY)
    now = clock.now() + 30 * DAY
    daily = datetime.fromtimestamp(now - 3600, ZoneInfo(ZONE))
    when = f"every day at {daily:%H:%M}"
    put(core, id="backup", when=when, timezone=ZONE, workflow="backup", payload={"pin": 7})
    moments = list(occurrences(stored(core, "backup").timing, clock.now(), now))[-30:]
    for number, moment in enumerate(moments):
        if number == 14:
            core.do(core.schedules.pause, "backup", "disk swap")
        if number == 17:
            core.do(core.schedules.resume, "backup")
        if 14 <= number < 17:
            clock.advance(moment + 1 - clock.now())
            continue
        clock.advance(moment - clock.now())
        if number == 10:
            clock.advance(2460)
            start_daemon(core)
        tick(core)
        policy = RetryPolicy(max_attempts=1) if number == 20 else None
        end(core, start_due(core, epoch=1), BROKEN if policy else Succeeded(), policy)
    core.close()
    return path


@pytest.fixture
def backup(thirty_days: Path, tmp_path: Path) -> Iterator[tuple[Site, VirtualCore]]:
    """Serve a copy of the database for one test."""
    shutil.copy(thirty_days, tmp_path / "agent.db")
    with in_process(tmp_path / "agent.db") as site:
        core = a_core(tmp_path / "agent.db", seed=5)[0]
        yield site, core
        core.close()


def test_schedule_page_draws_thirty_days_with_their_deviations(backup):
    site, core = backup
    dead = next(row["id"] for row in triggers(core, "backup") if row["status"] == "DEAD")

    text = site.get("/schedules/backup").text

    [(label, signs)] = strips(text)
    assert label.startswith("27 fired (1 late, 1 failed), 3 skipped, 0 unaccounted")
    assert signs.count("–") == 3
    assert signs.index("◐") < signs.index("–") < signs.index("✕")
    words = words_of(text)
    assert "41 min late: the daemon that began it started at" in words
    assert "3 skipped: disk swap" in words
    assert "failed after 1 attempt: AGENT_ERROR: it broke; dead letter" in words
    assert f'href="/triggers/{dead}"' in text
    assert f"/triggers/{dead}/requeue" in {form.action for form in forms(text)}
    assert f"* * * in {ZONE})" in words


def test_schedule_page_lists_the_next_ten_and_why(backup):
    site, core = backup
    schedule = stored(core, "backup")

    text = site.get("/schedules/backup").text

    words = words_of(text)
    moments = list_upcoming(schedule, SystemClock().now(), 11)
    shown = [local_time_text(moment, ZONE) in words for moment in moments]
    assert shown == [True] * 10 + [False]
    assert "SELECT status, reason, kind, next_at" in words
    assert "pin" in words


def test_account_is_paged_without_gaps(backup):
    site, core = backup
    seqs = [row["seq"] for row in core.rows("SELECT seq FROM schedule_occurrences ORDER BY seq DESC")]

    first = site.get(f"/schedules/backup?before={seqs[4]}").text

    rows = re.findall(r'data-label="Occurrence">', first.partition("<h2>All occurrences</h2>")[2])
    assert len(rows) == len(seqs) - 5


def test_list_shows_each_schedule_with_its_strip(backup):
    site, core = backup
    put(core, id="startup", when="on startup")
    put(core, id="hourly", when="every 1h")
    core.close()

    text = site.get("/schedules").text

    labels = [label for label, _ in strips(text)]
    assert len(labels) == 3
    assert labels[0].startswith("27 fired (1 late, 1 failed), 3 skipped, 0 unaccounted")
    assert "at startup" in words_of(text)


def test_list_continues_after_fifteen_schedules(tmp_path):
    core = a_core(tmp_path / "agent.db")[0]
    for number in range(28):
        put(core, id=f"job-{number:02}")
    core.close()
    with in_process(tmp_path / "agent.db") as site:
        first = site.get("/schedules").text
        [more] = re.findall(r'<p class="more"><a href="([^"]*)">', first)
        second = site.get(html.unescape(more)).text

    assert (len(strips(first)), len(strips(second))) == (15, 13)
    assert "job-20" in second


def test_empty_states_name_the_first_occurrence(tmp_path):
    core = a_core(tmp_path / "agent.db")[0]
    with in_process(tmp_path / "agent.db") as site:
        assert "No schedules." in site.get("/schedules").text
        put(core, id="new", when="every day at 3am", timezone="Europe/Berlin")
        core.close()
        text = site.get("/schedules/new").text
    assert "No occurrence yet. First: " in text


def test_disabled_schedule_gives_its_reason_and_a_remedy(tmp_path):
    core = a_core(tmp_path / "agent.db")[0]
    put(core, id="lost")
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET status = 'DISABLED', reason = 'no longer declared in code', next_at = NULL")
    core.close()
    with in_process(tmp_path / "agent.db") as site:
        text = site.get("/schedules/lost").text
        words = words_of(text)
    assert "disabled: no longer declared in code. Put it right, then" in words
    assert "/schedules/lost/resume" in {form.action for form in forms(text)}


def test_unknown_schedule_is_not_found(site: Site):
    answer = site.get("/schedules/none")

    assert answer.status_code == 404
    assert "no schedule has the id" in answer.text


@pytest.mark.parametrize(
    ("id", "actions"),
    [
        ("nightly", {"run", "pause", "skip", "remove"}),
        ("paused", {"run", "resume", "remove"}),
    ],
)
def test_schedule_offers_the_actions_that_fit(site: Site, id, actions):
    text = site.get(f"/schedules/{id}").text

    assert set(re.findall(rf'"/schedules/{id}/(\w+)"', text)) == actions


def test_person_without_permission_sees_no_action(site: Site):
    text = site.get("/schedules/nightly", "bob").text

    assert [form.action for form in forms(text)] == ["/logout"]
    assert "/schedules/nightly/" not in text


def test_schedule_ahead_of_the_clock_can_be_reanchored(tmp_path):
    core, clock = a_core(tmp_path / "agent.db")
    put(core, id="ahead")
    with core.transaction() as tx:
        tx.run("UPDATE schedules SET high_water_at = :day, next_at = :day + 3600", day=clock.now() + DAY)
    core.close()
    with in_process(tmp_path / "agent.db") as site:
        text = site.get("/schedules/ahead").text

    assert "ahead of the clock" in words_of(text)
    assert "/schedules/ahead/reanchor" in {form.action for form in forms(text)}


@pytest.mark.parametrize(("settings", "person", "shown"), [(SETTINGS, "ada", True), (SETTINGS, "bob", False),
                                                           (HIDDEN, "ada", False)])  # fmt: skip
def test_command_of_a_schedule_is_shown_as_payloads_are(tmp_path, settings, person, shown):
    core, _ = a_core(tmp_path / "agent.db")
    payload = {"argv": ["curl", "-H", "Authorization: Bearer hunter2"]}
    put(core, id="curl", when="every 1h", workflow="command.run", payload=payload)
    core.close()

    with in_process(tmp_path / "agent.db", settings=settings) as site:
        pages = [site.get(address, person).text for address in ("/schedules/curl", "/schedules", "/now", "/")]

    assert ["hunter2" in page for page in pages] == [shown, False, False, False]
    assert "command.run" in pages[0]


def test_run_now_from_the_page_is_in_the_account(site: Site):
    sent = site.send("/schedules/nightly", "/schedules/nightly/run")

    assert sent.status_code == 303
    text = words_of(site.get("/schedules/nightly").text)
    assert "(run-now)" in text


def make_frequent(tmp_path: Path, lines: int) -> VirtualCore:
    """Make a schedule of every minute whose account has `lines` lines, most of them copies of the first one."""
    core, clock = a_core(tmp_path / "agent.db", before=(lines + 1) * 60)
    put(core, id="often", when="every 1m", overlap=Overlap.ALLOW)
    clock.advance(60)
    tick(core)
    with core.transaction() as tx:
        tx.run(
            """
            WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :copies)
            INSERT INTO schedule_occurrences (schedule_id, generation, cause, nominal_at, last_at, count, outcome,
                                              reason, trigger_id, decided_at)
            SELECT schedule_id, generation, cause, nominal_at + 60 * n, nominal_at + 60 * n, 1, outcome, reason,
                   trigger_id || n, nominal_at + 60 * n
              FROM schedule_occurrences, numbers
            """,
            copies=lines - 1,
        )
        tx.run("UPDATE schedules SET high_water_at = high_water_at + 60 * :copies", copies=lines - 1)
    core.close()
    return core


def test_frequent_schedule_shows_its_newest_occurrences(tmp_path):
    make_frequent(tmp_path, 2501)
    with in_process(tmp_path / "agent.db") as site:
        one, many = site.get("/schedules/often").text, site.get("/schedules").text

    assert "Newest occurrences" in one
    [(label, signs)] = strips(one)
    assert len(signs) == 30
    assert label.endswith("0 unaccounted")
    assert "by occurrence" in many


def test_account_is_paged_to_its_end_past_damaged_lines(tmp_path):
    core = make_frequent(tmp_path, 130)
    seqs = [row["seq"] for row in core.rows("SELECT seq FROM schedule_occurrences ORDER BY seq DESC")]
    damaged = {seqs[3], seqs[70]}
    with core.transaction() as tx:
        for seq in damaged:
            tx.run("UPDATE schedule_occurrences SET reason = CAST(x'ff' AS TEXT) WHERE seq = :seq", seq=seq)
    core.close()
    found: list[str] = []
    address: str | None = "/schedules/often"

    with in_process(tmp_path / "agent.db") as site:
        while address is not None:
            account = site.get(address).text.partition("<h2>All occurrences</h2>")[2]
            found += re.findall(r'data-label="Occurrence">([^<]*)<', account)
            older = re.search(r'href="([^"]*before=[^"]*)"', account)
            address = older and html.unescape(older[1])

    assert len(found) == 130 - len(damaged)
    assert found == sorted({*found}, reverse=True)
