"""`craftcore run --until-idle` with tasks: waits do not delay the exit, and failures set the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.command_calls import call_command
from tests.support.processes import craftcore

ROOT = Path(__file__).parents[2]
APP = f"""
import sys

sys.path.append({str(ROOT)!r})
from tests.support.idle_database import an_app

app = an_app()
"""


@pytest.fixture
def run(tmp_path):
    """Return a function that emits workflows, runs a daemon until idle, and returns exit code and task states."""
    (tmp_path / "app.py").write_text(APP)

    def run(*workflows):
        ids = [call_command(tmp_path, "--json", "emit", *workflow).json["id"] for workflow in workflows]
        code = craftcore(tmp_path, "run", "app:app", "--until-idle").code
        rows = [call_command(tmp_path, "--json", "task", "show", task_id).json for task_id in ids]
        return code, *[row["status"] for row in rows]

    return run


def test_tasks_that_wait_are_left_for_the_next_run(run):
    assert run(["ask"], ["wait"], ["nap"], ["parent"]) == (0, "WAITING", "WAITING", "WAITING", "WAITING")


def test_until_idle_runs_all_turns(run):
    assert run(["count", "--payload", '{"upto": 20}']) == (0, "DONE")


def test_until_idle_leaves_a_task_in_backoff(run):
    assert run(["shaky"]) == (0, "RUNNING")


def test_until_idle_logs_how_many_triggers_are_in_backoff(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    for workflow in ("shaky", "shaky", "nap"):
        call_command(tmp_path, "emit", workflow)
    ended = craftcore(tmp_path, "run", "app:app", "--until-idle")
    [line] = [line for line in ended.err.splitlines() if "daemon.idle" in line]
    assert json.loads(line)["backoffs"] == 2
    assert json.loads(line)["next_at"] > json.loads(line)["timestamp"]


@pytest.mark.parametrize("payload", ["{}", '{"code": null}'])
def test_until_idle_exits_4_when_a_later_turn_fails(run, payload):
    assert run(["fails", "--payload", payload], ["count"]) == (4, "FAILED", "DONE")


def test_until_idle_completes_a_wait_that_is_over(run):
    """The timer is due when the daemon first polls."""
    assert run(["nap", "--payload", '{"seconds": 0}']) == (0, "DONE")
