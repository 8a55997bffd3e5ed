"""Live tasks that do not fit the code: reports before and after a deployment."""

from __future__ import annotations

import re
from pathlib import Path

import anyio
import pytest

from tests.engine.test_held_tasks import build_old_app, omit_brief, wait_in_old_app
from tests.support.engine_harness import lab
from tests.support.log_capture import suppressed_logs

APP = """
from craftcore import App, TaskContext

app = App()


@app.workflow("brief")
async def brief(ctx: TaskContext, city: str{more}) -> str:
    return city


@app.action("paper.print", irreversible=True)
async def print_paper(call, *, text: str) -> str:
    return "printed"


@app.workflow("chat")
async def chat(ctx: TaskContext) -> None: ...
"""


@pytest.fixture
def brief(tmp_path: Path) -> str:
    """Start a task `brief` and a task `chat`, stop the daemon, and return the id of `brief`."""
    with suppressed_logs():
        return anyio.run(wait_in_old_app, tmp_path)[0]


@pytest.fixture
def held(brief: str, tmp_path: Path) -> str:
    """Hold the task: run a daemon whose code lacks `brief`, and stop it."""

    async def hold() -> None:
        app = build_old_app()
        omit_brief(app)
        async with lab(app, tmp_path) as harness:
            await app.signal(brief, "go")
            await harness.until(lambda: bool(harness.rows("SELECT 1 FROM task_holds WHERE trigger_id IS NOT NULL")))

    with suppressed_logs():
        anyio.run(hold)
    return brief


def test_check_names_live_tasks_that_an_app_does_not_fit(cli, tmp_path, brief):
    (tmp_path / "fits_them.py").write_text(APP.format(more=""))
    (tmp_path / "fits_no_more.py").write_text(APP.format(more=", country: str"))

    fits = cli("check", "fits_them")
    refused = cli("check", "fits_no_more")

    assert (fits.code, "ok    tasks: fits_them fits 2 live tasks" in fits.out) == (0, True), fits.out
    assert refused.code == 1
    assert "FAIL  tasks: 1 live task that fits_no_more does not fit" in refused.out
    assert f"task {brief}: the payload does not fit brief: Object missing required field `country`" in refused.out
    assert "not looked at" in cli("check").out
    document = cli("--json", "--read-only", "check", "fits_no_more").json
    assert [one["ok"] for one in document["checks"] if one["check"] == "tasks"] == [False]


def test_check_names_triggers_and_schedules_of_a_missing_workflow(cli, tmp_path, brief):
    """A live task of a missing workflow is held, and its own check names it."""
    (tmp_path / "fits_all.py").write_text(APP.format(more=""))
    (tmp_path / "lacks_brief.py").write_text(APP.format(more="").replace('"brief"', '"digest"'))
    first = cli("--json", "emit", "brief", "--payload", '{"city": "Oslo"}').json["id"]
    assert cli("emit", "brief", "--payload", '{"city": "Bern"}', "--at", "2036-01-01T00:00Z").code == 0
    assert cli("emit", "chat").code == cli("emit", "--source", "message", "--session", "bob").code == 0
    for schedule, workflow in (("nightly", "brief"), ("paused", "brief"), ("kept", "chat"), ("removed", "brief")):
        assert cli("schedule", "add", schedule, "@daily", "--workflow", workflow).code == 0
    assert cli("schedule", "pause", "paused").code == 0
    assert cli("schedule", "remove", "removed", "--yes").code == 0

    fits = cli("check", "fits_all")
    refused = cli("check", "lacks_brief")

    assert (fits.code, "ok    workflows: fits_all declares those of all triggers and schedules" in fits.out) == (
        0,
        True,
    )
    assert refused.code == 1
    assert [line for line in refused.out.splitlines() if "workflows: " in line] == [
        "FAIL  workflows: 2 triggers and 2 schedules name a workflow that lacks_brief does not declare",
        f"FAIL  workflows: workflow brief: 2 triggers, the first {first}",
        "FAIL  workflows: workflow brief: schedule nightly",
        "FAIL  workflows: workflow brief: schedule paused",
        "FAIL  workflows: each would fail with CAPABILITY_NOT_FOUND: declare it, or decide: trigger cancel, schedule "
        "edit, schedule remove",
    ]
    assert f"FAIL  tasks: task {brief}: workflow brief is not declared" in refused.out
    assert "ok    workflows: not looked at" in cli("check").out


def test_check_without_a_database_finds_no_task(cli, tmp_path):
    (tmp_path / "fits_nobody.py").write_text(APP.format(more=""))
    answer = cli("check", "fits_nobody")
    assert (answer.code, "tasks: none yet" in answer.out) == (0, True)
    assert "workflows: no trigger and no schedule yet" in answer.out
    assert not (tmp_path / "agent.db").exists()


def test_held_task_is_named_in_every_view(cli, held):
    wrong = "workflow brief is not declared"
    status = cli("--json", "status").json
    assert status["tasks"]["held"] == 1
    assert status["counts"]["held"] == 1
    assert status["counts"]["later"] == status["counts"]["due"] == 0
    assert "held tasks" in [reason["code"] for reason in status["reasons"]]
    assert "held      1 task that the code does not fit" in cli("status").out
    assert "warn  held tasks" in re.sub(" +", " ", cli("doctor").out).replace("warn ", "warn  ")

    [listed] = cli("--json", "task", "list", "--held").json
    assert (listed["id"], listed["held"]) == (held, wrong)
    assert f"held: {wrong}" in cli("task", "list").out
    assert len(cli("--json", "task", "list").json) == 2

    shown = cli("task", "show", held).out
    assert f"is held, the code does not fit it: {wrong}" in shown
    assert f"craftcore task retry {held}" in shown
    trigger = cli("--json", "task", "show", held).json["trigger_id"]
    why = cli("--json", "trigger", "why", trigger).json
    assert [reason["code"] for reason in why["reasons"]] == ["held task", "no daemon"]
    assert "9999" not in cli("trigger", "why", trigger).out
    assert "9999" not in cli("top", "--once").out
    assert f"held: {wrong}" in cli("trigger", "list").out


def test_held_task_can_be_retried(cli, held):
    answer = cli("task", "retry", held)
    assert (answer.code, f"{held} goes on at turn 1" in answer.out) == (0, True)
    assert cli("--json", "task", "list", "--held").json == []
    assert cli("--json", "status").json["counts"]["due"] == 1
    assert cli("task", "retry", held).code == 1


def test_held_waiting_task_keeps_waiting_after_retry(cli, brief, tmp_path):
    async def hold() -> None:
        app = build_old_app()
        omit_brief(app)
        async with lab(app, tmp_path):
            pass

    with suppressed_logs():
        anyio.run(hold)
    assert "is held" in cli("task", "show", brief).out
    assert "is not held any more, and waits as before" in cli("task", "retry", brief).out


def test_held_task_can_be_cancelled(cli, held):
    assert f"{held} is CANCELLED" in cli("task", "cancel", held).out
    assert cli("--json", "status").json["tasks"]["held"] == 0
    assert cli("--json", "task", "list", "--held").json == []
    assert "is held" not in cli("task", "show", held).out
