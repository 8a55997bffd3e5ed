"""Schedules from the command line through real daemons: restarts neither delay nor repeat an occurrence."""

from __future__ import annotations

import json
import time
from functools import partial

import pytest

from tests.support.processes import APP, a_daemon, craftcore, read_trace, until


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def settled_lines(folder, schedule_id):
    """Return the history lines of a schedule whose triggers are settled."""
    lines = craftcore(folder, "--json", "schedule", "history", schedule_id, "--limit", "1000").json
    return [line for line in lines if line["trigger_status"] in ("DONE", None)]


def measure_restart(folder):
    """Return the seconds that the start of a daemon, its kill and a command take on this machine."""
    began = time.monotonic()
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        daemon.kill()
    craftcore(folder, "status")
    return time.monotonic() - began


@pytest.mark.acceptance
def test_one_time_job_fires_once_on_time_despite_earlier_kills(folder):
    delay = 4 + 4 * measure_restart(folder)
    add = ("schedule", "add", "reminder", f"in {delay:.0f}s", "--workflow", "greet", "--payload", '{"name": "Ada"}')
    added = craftcore(folder, "--json", *add)
    assert added.code == 0, added.err
    due_at = added.json["next_at"]
    for _ in range(2):
        with a_daemon(folder, "app:app") as daemon:
            daemon.ready()
            daemon.kill()
        assert craftcore(folder, "--json", *add).json["next_at"] == due_at, "a repeated add moved the occurrence"
    assert read_trace(folder) == []

    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        until(lambda: read_trace(folder))
        until(lambda: settled_lines(folder, "reminder"))
        daemon.kill()
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        craftcore(folder, "emit", "greet", "--wait", "60")

    assert read_trace(folder) == ["greet Ada", "greet you"]
    [line] = settled_lines(folder, "reminder")
    assert (line["outcome"], line["nominal_at"]) == ("fired", due_at)
    again = craftcore(folder, *add)
    assert (again.code, "remove it to use its id again" in again.err) == (1, True)


def count_runs(folder):
    path = folder / "ran"
    return path.read_text().count("x") if path.exists() else 0


def has_run_more_than(folder, times):
    return count_runs(folder) > times


@pytest.mark.acceptance
def test_scheduled_command_needs_no_python_and_the_history_has_every_second(folder):
    command = ("--", "sh", "-c", "echo x >> ran")
    added = craftcore(folder, "schedule", "add", "often", "every 1s", "--overlap", "allow", *command)
    assert added.code == 0, added.err
    for _ in range(2):
        ran = count_runs(folder)
        with a_daemon(folder) as daemon:
            daemon.ready()
            until(partial(has_run_more_than, folder, ran + 1))
            daemon.kill()
    assert craftcore(folder, "schedule", "pause", "often").code == 0
    assert craftcore(folder, "run", "--until-idle").code == 0

    lines = craftcore(folder, "--json", "schedule", "history", "often", "--limit", "1000").json[::-1]
    first = craftcore(folder, "--json", "schedule", "show", "often").json["created_at"]
    expected = int(first) + 1
    for line in lines:
        assert line["nominal_at"] == expected, json.dumps(lines)
        assert line["last_at"] == expected + line["count"] - 1
        expected += line["count"]
    assert {line["trigger_status"] for line in lines if line["outcome"] == "fired"} == {"DONE"}


def test_crashing_daemon_holds_scheduled_work_until_a_person_looks(folder):
    assert craftcore(folder, "schedule", "add", "s", "on startup", "--workflow", "greet").code == 0
    for _ in range(6):
        with a_daemon(folder, "app:app") as daemon:
            daemon.ready()
            daemon.kill()
    before = len(read_trace(folder))

    with a_daemon(folder, "app:app") as daemon:
        assert "safe mode" in daemon.wait_for_notification("READY=1")
        assert craftcore(folder, "emit", "greet", "--payload", '{"name": "Ada"}', "--wait", "60").code == 0
        status = craftcore(folder, "status")
        assert "6 unclean starts within 10 minutes" in status.out
        assert "craftcore --db agent.db release" in status.out
        assert read_trace(folder)[before:] == ["greet Ada"]

        assert "safe mode" in craftcore(folder, "--json", "status").json["verdict"]
        assert craftcore(folder, "release").code == 0
        assert craftcore(folder, "schedule", "run-now", "s").code == 0
        until(lambda: "greet you" in read_trace(folder)[before:])
