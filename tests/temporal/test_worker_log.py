"""The log of a worker: failed turns with their reasons, in the format of the daemon's log."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial

import anyio
import pytest
from temporalio.bridge.proto.activity_task import Cancel
from temporalio.worker._activity import _ActivityWorker

from craftcore import App, RetryPolicy
from craftcore.config import Config, LogSettings
from craftcore.temporal.entries import turn_activity
from craftcore.temporal.worker import working
from craftcore.temporal.workflow.messages import EntryEnd, EntryStart
from tests.support.log_capture import capture_logs
from tests.support.processes import PATIENCE
from tests.temporal.task_client import TaskClient

pytestmark = pytest.mark.anyio

LINE = ("event", "trigger", "workflow", "attempt", "status", "reason", "error", "exception_type")


@pytest.fixture
def app(request: pytest.FixtureRequest) -> App:
    app, tried = App(request.node.name), set()

    @app.workflow("shaky", retry=RetryPolicy(max_attempts=2, base=0, cap=0))
    async def shaky(name: str) -> str:
        if name in tried:
            return name
        tried.add(name)
        raise RuntimeError("no luck")

    @app.workflow("broken", retry=RetryPolicy(max_attempts=1))
    async def broken() -> None:
        raise ValueError("no way")

    return app


@pytest.mark.cluster
@pytest.mark.parametrize("logs_successes", [False, True])
async def test_failed_turns_are_logged_and_successes_by_a_setting(app, cluster, logs_successes) -> None:
    settings = replace(cluster, task_queue=app.name)
    config = Config(log=LogSettings(successes=logs_successes))
    with capture_logs() as lines, anyio.fail_after(PATIENCE):
        async with working(app, settings, config) as connection:
            client = TaskClient(connection, app, settings)
            shaky = await client.emit("shaky", {"name": "ada"})
            await client.result(shaky)
            broken = await client.emit("broken")
            await client.result(broken)
    expected_fields = [
        tuple(line.get(field) for field in LINE) for line in lines if line["event"].startswith("trigger.")
    ]
    failed = "INTERNAL_AGENT_ERROR"
    expected: list[tuple[object, ...]] = [
        ("trigger.retried", shaky, "shaky", 1, "PENDING", failed, "no luck", "RuntimeError"),
        ("trigger.settled", broken, "broken", 1, "DEAD", "attempts spent", "no way", "ValueError"),
    ]
    if logs_successes:
        expected.insert(1, ("trigger.done", shaky, "shaky", 2, None, "succeeded", None, None))
    assert expected_fields == expected


async def test_unknown_workflow_is_logged(app, cluster, monkeypatch) -> None:
    class GiveUpAfterOne(turn_activity.TurnActivity):
        """An activity that returns an unknown workflow once, regardless of the time, and then gives up."""

        def _refuse(self, given: EntryStart, now: float) -> EntryEnd | None:
            self._unknown_seconds = 0.0 if any(line["event"] == "trigger.released" for line in lines) else math.inf
            return super()._refuse(given, now)

    monkeypatch.setattr("craftcore.temporal.worker.TurnActivity", partial(GiveUpAfterOne, hand_back_seconds=0.0))
    settings = replace(cluster, task_queue=app.name)
    with capture_logs() as lines, anyio.fail_after(PATIENCE):
        async with working(app, settings) as connection:
            client = TaskClient(connection, None, settings)
            task = await client.emit("nowhere")
            await client.result(task)
    *released, settled = [line for line in lines if line["event"].startswith("trigger.")]
    assert {(line["event"], line["reason"]) for line in released} == {
        ("trigger.released", "its worker does not know workflow nowhere")
    }
    assert (settled["event"], settled["trigger"], settled["status"]) == ("trigger.settled", task, "FAILED")


async def test_cancellation_after_the_end_of_its_turn_gives_no_warning(app, cluster) -> None:
    """The test turns warnings into errors, as some programs do; a warning would end the worker."""
    library = object.__new__(_ActivityWorker)
    library._running_activities = {}
    late_cancel = partial(library._handle_cancel_activity_task, b"a token", Cancel())
    with pytest.warns(UserWarning, match="Cannot find activity to cancel"):
        late_cancel()
    async with working(app, replace(cluster, task_queue=app.name)):
        late_cancel()
