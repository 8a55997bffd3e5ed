"""Schedules, the clock and safe mode in `craftcore status`, `release` and `check`."""

from __future__ import annotations

import os

import pytest

from craftcore.daemon.lock import DaemonLock
from craftcore.schedules.clock_guard import ClockChange, ClockTrust
from craftcore.schedules.model import Origin, ScheduleSpec
from tests.cli.conftest import NOON
from tests.support.processes import APP, craftcore

HOUR = 3600.0


@pytest.fixture
def daemon(database):
    """Hold the lock as a daemon, in this process."""
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON) as lock:
        yield lock


def declare(core, schedule_id, when="every 1h", **changes):
    spec = ScheduleSpec(**{"id": schedule_id, "when": when, "workflow": "greet", **changes})
    core.do(core.schedules.put, spec, Origin.OPERATOR)


def remember(core, name, value):
    core.do(lambda tx: tx.run("INSERT INTO facts VALUES (:name, :value)", name=name, value=value))


# status


def test_status_counts_schedules_and_names_the_next(cli, core, daemon):
    declare(core, "hourly")
    declare(core, "daily", "@daily")
    declare(core, "away")
    core.do(core.schedules.pause, "away")

    document = cli("--json", "status").json

    assert document["ok"]
    assert document["schedules"] == {
        "active": 2,
        "paused": 1,
        "disabled": 0,
        "finished": 0,
        "next_id": "hourly",
        "next_at": NOON + HOUR,
        "next_at_iso": "2026-11-21T13:00:00.000Z",
        "ahead": [],
    }
    assert (document["safe_mode"], document["clock"]["held_until"], document["clock"]["last_event"]) == (
        None,
        None,
        None,
    )
    lines = cli("status").out.splitlines()
    assert "schedules 2 active, 1 paused; next hourly at 2026-11-21 13:00:00Z, in 60 min" in lines
    assert not any(line.startswith("clock") for line in lines)


def test_status_without_schedules_has_no_schedule_line(cli, core, daemon):
    assert not any(line.startswith("schedules") for line in cli("status").out.splitlines())
    assert cli("--json", "status").json["schedules"]["next_at"] is None


def test_safe_mode_is_reported_until_release(cli, core, daemon):
    remember(core, "safe_mode", "6 unclean starts within 10 minutes")

    document = cli("--json", "status").json

    assert (document["ok"], document["safe_mode"]) == (False, "6 unclean starts within 10 minutes")
    assert cli("status").out.splitlines()[0] == (
        "degraded: safe mode, scheduled and resumed work waits: 6 unclean starts within 10 minutes. It ends after 10 "
        "minutes without a crash. Find out why the daemon dies; to end it now: craftcore release"
    )
    core.do(
        lambda tx: tx.run(
            "INSERT INTO epochs (epoch, boot_id, pid, host, version, started_at) VALUES (1, 'b', 1, 'h', '1', 1)"
        )
    )
    assert cli("release").out == "released; it was held because 6 unclean starts within 10 minutes\n"
    assert cli("--json", "status").json["safe_mode"] is None
    assert cli("release").out == "nothing was held\n"


def test_clock_behind_holds_schedules_and_status_shows_the_command(cli, core, daemon):
    declare(core, "s")
    core.do(ClockTrust().hold_if_behind, 1, NOON + 24 * HOUR)

    document = cli("--json", "status").json
    verdict, *lines = cli("status").out.splitlines()

    assert (document["ok"], document["clock"]["held_until"]) == (False, NOON + 24 * HOUR)
    assert (document["clock"]["last_event"]["kind"], document["clock"]["last_event"]["at"]) == ("held", NOON)
    assert verdict == (
        "degraded: schedules are held: the clock has shown 2026-11-22 12:00:00Z here and now shows "
        "2026-11-21 12:00:00Z. Set it, or if it is right: craftcore schedule trust-clock"
    )
    assert "clock     2026-11-21 12:00:00Z: was behind by 24 h: schedules were held" in lines
    cli("schedule", "trust-clock")
    assert cli("--json", "status").json["ok"]
    assert "clock     2026-11-21 12:00:00Z: was said to be right: schedules go on" in cli("status").out


def test_clock_that_has_caught_up_holds_nothing(cli, core, daemon, clock):
    """The daemon releases schedules at its next poll; until then no person has to act."""
    remember(core, "clock_held", repr(NOON))

    assert cli("--json", "status").json["ok"]


def test_schedules_ahead_of_the_clock_degrade_status(cli, core, daemon, clock):
    for schedule_id in "abcdefg":
        declare(core, schedule_id)
    clock.advance(hours=2)
    core.do(core.ticks.tick)
    clock.set_back(2 * HOUR)

    document = cli("--json", "status").json

    assert (document["ok"], document["schedules"]["ahead"]) == (False, list("abcdefg"))
    assert document["verdict"] == (
        "degraded: 7 schedules wait, ahead of the clock: a, b, c, d, e, …. If it is right: craftcore schedule reanchor"
    )
    cli("schedule", "reanchor")
    assert cli("--json", "status").json["ok"]


def test_schedules_ahead_are_reported_beside_another_verdict(cli, core, clock):
    declare(core, "a")
    clock.advance(hours=2)
    core.do(core.ticks.tick)
    clock.set_back(2 * HOUR)

    verdict, *lines = cli("status").out.splitlines()

    assert verdict.startswith("down: no daemon runs on ")
    assert "also      1 schedule waits, ahead of the clock: a. If it is right: craftcore schedule reanchor" in lines


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (ClockChange(step=7200.0, asleep=0.0), "went forward by 2 h"),
        (ClockChange(step=-60.0, asleep=0.0), "went back by 60 s"),
        (ClockChange(step=0.0, asleep=3e4), "the machine slept for 8 h"),
    ],
)
def test_clock_event_is_shown_for_a_week(cli, core, daemon, clock, change, line):
    core.do(ClockTrust().note, 1, change)

    assert f"clock     2026-11-21 12:00:00Z: {line}" in cli("status").out.splitlines()
    clock.advance(hours=8 * 24)
    assert line not in cli("status").out
    assert cli("--json", "status").json["clock"]["last_event"]["at"] == NOON


# check

SCHEDULED = """
app.schedule("brief", "every day at 7am", workflow="greet", payload={"name": "Ada"})
"""
IN_THE_FILE = """
[[schedule]]
id = "backup"
when = "0 3 * * *"
timezone = "Europe/Berlin"
command = ["restic", "backup", "/srv"]
"""


def test_check_reads_schedules_of_app_and_settings(tmp_path):
    (tmp_path / "app.py").write_text(APP + SCHEDULED)
    (tmp_path / "good.toml").write_text(IN_THE_FILE)

    found = craftcore(tmp_path, "--config", "good.toml", "check", "app:app")
    only_file = craftcore(tmp_path, "--config", "good.toml", "check")
    none = craftcore(tmp_path, "check")

    assert (found.code, found.err) == (0, "")
    assert "ok    schedules: declared are brief, backup" in found.out.splitlines()
    assert "ok    schedules: declared are backup" in only_file.out.splitlines()
    assert "ok    schedules: none are declared" in none.out.splitlines()
    assert "command.run" not in found.out.split("app:app declares")[1].splitlines()[0]
    assert not (tmp_path / "agent.db").exists()


def test_check_lists_every_invalid_schedule(tmp_path):
    bad = [
        'app.schedule("a", "every weekday", workflow="greet")',
        'app.schedule("b", "@daily", workflow="gret")',
        'app.schedule("c", "@daily", workflow="greet", payload={"nome": 1})',
        'app.schedule("backup", "@daily", workflow="greet")',
    ]
    (tmp_path / "app.py").write_text(APP + "\n".join(bad))
    (tmp_path / "both.toml").write_text(IN_THE_FILE)

    found = craftcore(tmp_path, "--config", "both.toml", "check", "app:app")

    assert found.code == 78
    failed = [line for line in found.out.splitlines() if line.startswith("FAIL")]
    assert [line.split()[3].rstrip(":") for line in failed] == ["a", "b", "c", "backup"]
    assert "every weekday at 9am" in failed[0]
    assert "no workflow is named gret" in failed[1]
    assert "does not fit greet" in failed[2]
    assert "declared twice" in failed[3]
    document = craftcore(tmp_path, "--config", "both.toml", "--json", "check", "app:app").json
    assert [one["check"] for one in document["checks"] if not one["ok"]] == ["schedules"]


def test_check_skips_schedules_when_the_settings_are_unreadable(tmp_path):
    (tmp_path / "bad.toml").write_text("[[schedule]]\nid = 1\n")

    found = craftcore(tmp_path, "--config", "bad.toml", "check")

    assert found.code == 78
    assert "schedules:" not in found.out
