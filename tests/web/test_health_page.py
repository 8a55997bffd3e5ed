"""`/health` and `/up`: the verdict, starts with crashes marked, and readings that fail independently."""

from __future__ import annotations

import pytest

from craftcore.diagnostics.starts import End, list_starts
from craftcore.schedules.clock_store import record
from tests.executions.test_listing_plans import plans_of
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.processes import APP, a_daemon, until
from tests.support.schedule_steps import start_daemon, stop_daemon
from tests.support.web_site import in_process


@pytest.fixture
def core(tmp_path):
    core = VirtualCore(tmp_path / "agent.db", VirtualClock())
    yield core
    core.close()


def starts_of(core, *, runs=False):
    with core.reading() as reader:
        return list_starts(reader, 20, runs=runs)


def test_start_without_an_end_is_a_crash_and_the_newest_start_runs(core):
    first = start_daemon(core).epoch
    stop_daemon(core, first)
    start_daemon(core)
    start_daemon(core)

    assert [one.end for one in starts_of(core, runs=True)] == [End.RUNS, End.DIED, End.IN_ORDER]
    assert [one.has_crashed for one in starts_of(core)] == [True, True, False]


def test_start_before_a_restart_of_the_machine_ended_by_that(core):
    for boot in ("one", "two"):
        with core.transaction() as tx:
            tx.run(
                """
                INSERT INTO epochs (boot_id, machine_boot_id, pid, host, version, started_at)
                VALUES (:boot, :boot, 7, 'here', '1.0', :now)
                """,
                boot=boot,
            )

    assert [one.end for one in starts_of(core, runs=True)] == [End.RUNS, End.MACHINE]


def test_last_sign_of_a_dead_daemon_is_known(core):
    start_daemon(core)
    with core.transaction() as tx:
        tx.run("INSERT OR REPLACE INTO facts (name, value) VALUES ('clock_seen_at', :at)", at=repr(NEW_YEAR + 90))

    assert [one.seen_at for one in starts_of(core)] == [NEW_YEAR + 90]
    assert [one.seen_at for one in starts_of(core, runs=True)] == [None]


def test_starts_are_read_by_the_primary_key(core):
    plan = plans_of(core, lambda tx: list_starts(tx, 20, runs=True))

    assert "SCAN epochs" in plan  # reads the shown rows backwards by the key
    assert not any("TEMP B-TREE" in line for line in plan)


def test_health_page_marks_a_crash_and_follows_the_daemon(tmp_path, core):
    core.close()
    (tmp_path / "app.py").write_text(APP)
    with in_process(tmp_path / "agent.db") as site:
        with a_daemon(tmp_path, "app:app") as daemon:
            daemon.ready()
            until(lambda: site.get("/up", "").status_code == 200, "the daemon")
            assert site.get("/up", "").text == "up\n"
            text = site.get("/health").text
            assert "running" in text
            assert "runs" in text
            daemon.kill()
            until(lambda: site.get("/up", "").status_code == 503, "the end")

        text = site.get("/health").text

        assert "⚡</span> died" in text
        assert "last sign" in text
        assert "none runs" in text


def test_health_page_shows_events_of_the_clock(tmp_path, core):
    core.do(record, None, "backward", 600.0)
    core.close()

    with in_process(tmp_path / "agent.db") as site:
        assert "went back by 10 min" in site.get("/health").text


def test_damaged_rows_of_a_reading_do_not_affect_the_others(tmp_path, core):
    start_daemon(core)
    with core.transaction() as tx:
        tx.run("UPDATE epochs SET host = CAST(x'ff41' AS TEXT)")
    core.close()

    with in_process(tmp_path / "agent.db") as site:
        page = site.get("/health")

        assert page.status_code == 200
        assert "cannot be read: a damaged row" in page.text
        assert "MB free" in page.text
        assert "No jump of the clock was seen" in page.text


def test_older_schema_is_named_by_each_reading(tmp_path, core):
    with core.transaction() as tx:
        tx.run("PRAGMA user_version = 3")
    core.close()

    with in_process(tmp_path / "agent.db") as site:
        for address in ("/now", "/health"):
            assert "schema" in site.get(address).text
        assert site.get("/up", "").status_code == 503
