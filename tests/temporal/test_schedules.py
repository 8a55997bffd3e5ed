"""Schedules on a real server: firing, overlap, pauses, and the account of occurrences without a worker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest

from craftcore import App, TaskContext
from craftcore.config import Config
from craftcore.errors import ConfigInvalid, StateRefused
from craftcore.schedules.model import Occurrence, Outcome, ScheduleStatus
from craftcore.schedules.tick_plan import next_upcoming
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.schedules.schedule_client import ScheduleClient, account_in, schedule_in
from craftcore.temporal.schedules.schedule_sync import declare_schedules
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.schedule_messages import ScheduleBook, ScheduleCall
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio


def make_app(name: str, *, declared: bool = True, **options: Any) -> App:
    """Return an app with the schedule `tick-{name}`. Its task waits for the event `go` unless it is `quick`."""
    app = App(name)

    @app.workflow("tick")
    async def tick(ctx: TaskContext, quick: bool = False) -> None:
        if not quick:
            await ctx.wait_for("go")

    if declared:
        app.schedule(f"tick-{name}", options.pop("when", "every 1s"), workflow="tick", **options)
    return app


async def see(
    client: ScheduleClient, schedule_id: str, until: Callable[[ScheduleBook, list[Occurrence]], Any]
) -> tuple[ScheduleBook, list[Occurrence]]:
    """Return the schedule and its account, oldest line first, once both are as expected."""
    with anyio.fail_after(PATIENCE):
        while True:
            book = await client.view(schedule_id)
            lines = account_in(book)[::-1]
            if book.row is not None and until(book, lines):
                return book, lines
            await anyio.sleep(0.05)


def fired(lines: list[Occurrence]) -> list[Occurrence]:
    return [line for line in lines if line.outcome is Outcome.FIRED]


@pytest.mark.cluster
async def test_schedule_fires_every_second_each_moment_once(cluster: TemporalSettings) -> None:
    app = make_app("fires", payload={"quick": True})
    async with working(app, cluster) as connection:
        client = ScheduleClient(connection)
        book, lines = await see(client, "tick-fires", lambda _, lines: len(fired(lines)) >= 2)
        first = fired(lines)[0]
        assert first.trigger_id is not None
        assert first.trigger_id.startswith(f"k:scheduled:tick-fires:{int(first.nominal_at)}@")
        assert (await TaskClient(connection, app, cluster).result(first.trigger_id)).status == "DONE"
        await client.apply_call("tick-fires", ScheduleCall(kind="pause", reason="tea"))
    moments = [line.nominal_at for line in fired(lines)]
    assert moments == sorted(set(moments))
    assert schedule_in(book, "tick-fires").runs >= 2


@pytest.mark.cluster
async def test_occurrence_waits_until_the_task_before_has_ended(cluster: TemporalSettings) -> None:
    app = make_app("waits")
    async with working(app, cluster) as connection:
        client, tasks = ScheduleClient(connection), TaskClient(connection, app, cluster)
        refused = "overlap: an earlier occurrence waits already"
        _, lines = await see(client, "tick-waits", lambda _, lines: any(line.reason == refused for line in lines))
        [first] = fired(lines)
        [waiting] = [line for line in lines if line.outcome is Outcome.BUFFERED]
        assert waiting.reason == f"waits for task {first.trigger_id}"
        await tasks.signal(first.trigger_id or "", "go")
        _, lines = await see(client, "tick-waits", lambda _, lines: len(fired(lines)) == 2)
        await client.apply_call("tick-waits", ScheduleCall(kind="pause", reason="tea"))
    assert fired(lines)[1].nominal_at == waiting.nominal_at


@pytest.mark.campaign
async def test_terminated_task_blocks_no_occurrence(cluster: TemporalSettings) -> None:
    app = make_app("forced", overlap="skip")
    async with working(app, cluster) as connection:
        client = ScheduleClient(connection)
        _, lines = await see(client, "tick-forced", lambda _, lines: lines and lines[-1].outcome is Outcome.SKIPPED)
        assert (lines[-1].reason or "").startswith("overlap: task k:scheduled:tick-forced:")
        await connection.get_workflow_handle(f"k:scheduled:tick-forced:{int(lines[0].nominal_at)}").terminate()
        await see(client, "tick-forced", lambda _, lines: len(fired(lines)) == 2)
        await client.apply_call("tick-forced", ScheduleCall(kind="pause", reason="tea"))


@pytest.mark.cluster
async def test_paused_schedule_fires_again_after_resume_and_skips_the_pause(cluster: TemporalSettings) -> None:
    app = make_app("paused", payload={"quick": True})
    async with working(app, cluster) as connection:
        client = ScheduleClient(connection)
        await see(client, "tick-paused", lambda _, lines: fired(lines))
        paused = await client.apply_call("tick-paused", ScheduleCall(kind="pause", reason="tea"))
        assert schedule_in(paused.book, "tick-paused").status is ScheduleStatus.PAUSED
        with pytest.raises(StateRefused, match="PAUSED"):
            await client.apply_call("tick-paused", ScheduleCall(kind="skip-next"))
        await anyio.sleep(1.1)
        resumed = await client.apply_call("tick-paused", ScheduleCall(kind="resume"))
        assert [(line["outcome"], line["reason"]) for line in resumed.lines] == [("skipped", "tea")]
        run = len(fired(account_in(resumed.book)))
        await see(client, "tick-paused", lambda _, lines: len(fired(lines)) > run)
        await client.apply_call("tick-paused", ScheduleCall(kind="pause", reason="tea"))


@pytest.mark.campaign
async def test_schedule_without_workers_fires_the_latest_and_accounts_for_the_others(cluster: TemporalSettings) -> None:
    app = make_app("away", payload={"quick": True})
    async with working(app, cluster) as connection:
        await see(ScheduleClient(connection), "tick-away", lambda _, lines: fired(lines))
    await anyio.sleep(4)
    async with working(app, cluster) as connection:
        client = ScheduleClient(connection)
        _, lines = await see(client, "tick-away", lambda _, lines: any(one.outcome == "skipped" for one in lines))
        await client.apply_call("tick-away", ScheduleCall(kind="pause", reason="tea"))
    [missed] = [line for line in lines if line.outcome is Outcome.SKIPPED]
    assert missed.reason == "missed: only the latest is caught up"
    assert missed.count >= 2
    moments = sorted(m for one in lines for m in range(int(one.nominal_at), int(one.last_at) + 1))
    assert moments == list(range(moments[0], moments[-1] + 1))


@pytest.mark.cluster
async def test_occurrence_that_was_started_before_is_refused_by_the_server(cluster: TemporalSettings) -> None:
    app = make_app("twice", when="every day at 3am", payload={"quick": True}, start=1_700_000_000.0)
    async with working(app, cluster) as connection:
        client, tasks = ScheduleClient(connection), TaskClient(connection, app, cluster)
        midnight = 1_758_758_400.0
        await see(client, "tick-twice", lambda book, lines: True)
        call = ScheduleCall(kind="backfill", since=midnight, until=midnight + 86_399)
        moment = next_upcoming(schedule_in(await client.view("tick-twice"), "tick-twice"), after=midnight)
        assert moment is not None
        key = f"scheduled:tick-twice:{int(moment)}"
        await tasks.emit("tick", {"quick": True}, dedup_key=key)
        [line] = (await client.apply_call("tick-twice", call)).lines
    assert (line["outcome"], line["reason"]) == ("skipped", f"fired before, as task k:{key}")


async def test_older_declaration_reverts_nothing(cluster: TemporalSettings) -> None:
    new = make_app("rolling", when="every 2h", payload={"quick": True})
    old = make_app("rolling", when="every 5h", payload={"quick": True})
    async with working(new, cluster, revision=2.0) as connection:
        client = ScheduleClient(connection)
        await see(client, "tick-rolling", lambda book, _: book.revision == 2.0)
        assert [one.change for one in await declare_schedules(client, old, Config(), "rolling", 1.0)] == ["older"]
        assert await declare_schedules(client, make_app("rolling", declared=False), Config(), "rolling", 1.0) == []
        assert schedule_in(await client.view("tick-rolling"), "tick-rolling").expression == "every 2h"
        assert [one.change for one in await declare_schedules(client, old, Config(), "rolling", 3.0)] == ["changed"]
        gone = await declare_schedules(client, make_app("rolling", declared=False), Config(), "rolling", 4.0)
        assert [(one.id, one.change) for one in gone] == [("tick-rolling", "disabled")]
        assert [one.change for one in await declare_schedules(client, old, Config(), "rolling", 5.0)] == ["enabled"]


async def test_schedule_of_another_app_of_the_namespace_is_refused(cluster: TemporalSettings) -> None:
    shop, bank = make_app("shop", when="every 2h"), make_app("bank", declared=False)
    bank.schedule("tick-shop", "every 3h", workflow="tick")
    async with working(shop, cluster) as connection:
        client = ScheduleClient(connection)
        with pytest.raises(ConfigInvalid, match="of task queue shop"):
            async with working(bank, cluster):
                pytest.fail("the worker of the other app has started")
        book, _ = await see(client, "tick-shop", lambda book, _: True)
        assert schedule_in(book, "tick-shop").expression == "every 2h"


@pytest.mark.cluster
async def test_task_of_a_schedule_has_its_priority(cluster: TemporalSettings) -> None:
    app = make_app("urgent", when="every 2h", payload={"quick": True}, priority=90)
    async with working(app, cluster) as connection:
        client = ScheduleClient(connection)
        await see(client, "tick-urgent", lambda book, _: True)
        [line] = (await client.apply_call("tick-urgent", ScheduleCall(kind="run-now"))).lines
        workflow_id = workflow_id_of_task(line["trigger_id"])
        seen = await connection.get_workflow_handle(workflow_id).describe()
    assert seen.raw_description.workflow_execution_info.priority.priority_key == 5


@pytest.mark.cluster
async def test_schedule_at_startup_fires_once_for_each_sync(cluster: TemporalSettings) -> None:
    app = make_app("starts", when="on startup", payload={"quick": True})
    async with working(app, cluster) as connection:
        client = ScheduleClient(connection)
        await see(client, "tick-starts", lambda _, lines: len(fired(lines)) == 1)
        with anyio.fail_after(PATIENCE):
            while (await client.view("tick-starts")).running:  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.05)
        await declare_schedules(client, app, Config(), "starts")
        assert len(fired(account_in(await client.view("tick-starts")))) == 2
