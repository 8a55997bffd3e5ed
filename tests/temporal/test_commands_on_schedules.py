"""The commands on schedules of a cluster, with a worker in this process."""

from __future__ import annotations

import asyncio
import json
import textwrap
from pathlib import Path
from typing import Any

import anyio
import pytest
from temporalio.client import WorkflowExecutionStatus

from craftcore import App, TaskContext
from craftcore.cli import main
from craftcore.daemon.app_loader import import_app
from craftcore.registry.registry import Registry
from craftcore.temporal.ids import workflow_id_of_schedule
from craftcore.temporal.schedules.schedule_client import ScheduleClient
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.schedule_messages import SCHEDULE_WORKFLOW, ScheduleBook
from tests.support.processes import PATIENCE

pytestmark = pytest.mark.anyio
APP = """
    from craftcore import App, TaskContext

    app = App("planned")

    @app.workflow("report")
    async def report(ctx: TaskContext) -> None:
        await ctx.wait_for("go")

    app.schedule("nightly", "every day at 3am", workflow="report", timezone="UTC", overlap="skip")
    app.schedule("hourly", "every 1h", workflow="report")
"""


class ScheduleCommands:
    """A runner of commands in a thread, beside the worker on this loop."""

    def __init__(self, capsys: pytest.CaptureFixture[str], address: str) -> None:
        self.capsys = capsys
        self._address = address

    async def run(self, *words: str) -> tuple[int, str, str]:
        self.capsys.readouterr()  # discard the log of the worker
        code = await asyncio.to_thread(main.main, ["temporal", *words, "--address", self._address])
        captured = self.capsys.readouterr()
        return code, captured.out, captured.err

    async def read(self, *words: str, code: int = 0) -> Any:
        found, out, err = await self.run(*words, "--json")
        assert found == code, (words, out, err)
        return json.loads(out)


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str], cluster: TemporalSettings) -> ScheduleCommands:
    return ScheduleCommands(capsys, cluster.address)


@pytest.fixture
def app(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Registry:
    """Write the app to a file in the current directory, and return it."""
    (tmp_path / "planned_app.py").write_text(textwrap.dedent(APP))
    monkeypatch.chdir(tmp_path)
    return import_app("planned_app:app")


async def test_schedules_are_synced_paused_resumed_run_skipped_and_backfilled(commands, cluster, app, monkeypatch):
    sync = ("schedules", "sync", "planned_app:app")
    assert await commands.read(*sync, "--revision", "1") == [
        {"id": "nightly", "change": "added"},
        {"id": "hourly", "change": "added"},
    ]
    async with working(app, cluster, revision=2.0) as connection:
        assert {one["change"] for one in await commands.read(*sync, "--revision", "1")} == {"older"}
        with anyio.fail_after(PATIENCE):
            while len(listed := await commands.read("schedule", "list", "--task-queue", "planned")) < 2:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.1)
        assert [(one["id"], one["status"]) for one in listed] == [("hourly", "ACTIVE"), ("nightly", "ACTIVE")]
        assert (await commands.run("schedule", "list", "--task-queue", "planned"))[1].startswith("id  ")

        assert (await commands.run("schedule", "pause", "nope"))[0] == 10
        code, out, _ = await commands.run("schedule", "pause", "night", "--reason", "the holidays")
        assert code == 0
        assert f"temporal schedule resume --address {cluster.address} nightly" in out
        assert (await commands.run("schedule", "pause", "nightly"))[1].endswith("nothing was changed\n")
        assert (await commands.run("schedule", "skip-next", "nightly"))[0] == 1
        assert (await commands.read("schedule", "show", "nightly"))["reason"] == "the holidays"
        assert (await commands.run("schedule", "resume", "nightly"))[1].startswith("nightly is active again\nnext: ")

        skipped = await commands.read("schedule", "skip-next", "nightly")
        assert skipped["then_at"] - skipped["skips_at"] == 86_400
        run = await commands.read("schedule", "run-now", "nightly")
        assert (run["outcome"], run["trigger_id"][:24]) == ("fired", "k:scheduled-now:nightly:")
        assert "@" in run["trigger_id"]
        refused = await commands.read("schedule", "run-now", "nightly", code=1)
        assert (refused["outcome"], refused["trigger_id"]) == ("skipped", None)
        shown = await commands.read("schedule", "show", "nightly")
        assert (shown["live_task"], len(shown["next"])) == (run["trigger_id"], 3)
        assert f"at work: task {run['trigger_id']}" in (await commands.run("schedule", "show", "nightly"))[1]

        span = ("--from", "2026-01-01T00Z", "--to", "2026-01-02T00Z")
        filled = await commands.read("schedule", "backfill", "nightly", *span)
        assert (filled["fired"], filled["skipped"]) == (0, 1)
        await connection.get_workflow_handle(run["trigger_id"].split("@")[0]).terminate()
        code, out, _ = await commands.run("schedule", "backfill", "nightly", *span)
        assert (code, out[:18]) == (0, "nightly: 1 fired. ")
        history = await commands.read("schedule", "history", "nightly")
        assert [(one["cause"], one["outcome"]) for one in history][:1] == [("backfill", "fired")]
        assert (await commands.run("schedule", "history", "nightly"))[0] == 0
        backwards = ("--from", "2026-01-02T00Z", "--to", "2026-01-01T00Z")
        assert (await commands.run("schedule", "backfill", "nightly", *backwards))[0] == 64

        updates = [
            event.workflow_execution_update_accepted_event_attributes.accepted_request.input.args.payloads[0].data
            async for event in connection.get_workflow_handle("s:nightly").fetch_history_events()
            if event.HasField("workflow_execution_update_accepted_event_attributes")
        ]
        assert all(json.loads(one)["by"] and json.loads(one)["note"] for one in updates)

    monkeypatch.setattr("craftcore.temporal.schedules.schedule_client.ANSWER_SECONDS", 0.5)
    code, _, err = await commands.run("schedule", "list", "--task-queue", "planned")
    assert (code, len(err.splitlines())) == (75, 2)
    assert (await commands.run("schedule", "pause", "nightly"))[0] == 75
    assert (await commands.run(*sync, "--revision", "3"))[0] == 75
    monkeypatch.setattr("craftcore.temporal.cluster_connection.CONNECT_SECONDS", 0.5)
    unreachable = ScheduleCommands(commands.capsys, "127.0.0.1:1")
    for words in (("schedule", "list"), ("schedule", "run-now", "nightly"), sync):
        assert (await unreachable.run(*words))[0] == 75


async def test_schedule_that_the_rules_refuse_shows_the_reason_and_does_not_end(commands, cluster):
    app = App("broken")

    @app.workflow("report")
    async def report(ctx: TaskContext) -> None: ...

    app.schedule("odd", "every 1h", workflow="report")
    async with working(app, cluster) as connection:
        client = ScheduleClient(connection)
        with anyio.fail_after(PATIENCE):
            while (row := (await client.view("odd")).row) is None:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.05)
        await connection.get_workflow_handle("s:odd").terminate()
        damaged = ScheduleBook(row={**row, "overlap": "of a newer version"})
        handle = await connection.start_workflow(
            SCHEDULE_WORKFLOW, args=[None, damaged], id=workflow_id_of_schedule("odd"), task_queue="broken"
        )
        with anyio.fail_after(PATIENCE):
            while (await client.view("odd")).error is None:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.05)
        code, _, err = await commands.run("schedule", "list", "--task-queue", "broken")
        assert code == 0
        code, _, err = await commands.run("schedule", "show", "odd")
        assert code == 1
        assert "newer craftcore" in err
        assert (await commands.run("schedule", "pause", "odd"))[0] == 1
        assert (await handle.describe()).status is WorkflowExecutionStatus.RUNNING
