"""The worker of an app on a cluster: it polls for entries of turns, and runs them."""

from __future__ import annotations

import signal
import warnings
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from functools import partial

import anyio
from temporalio.client import Client
from temporalio.worker import Worker

from craftcore.config import Config
from craftcore.errors import ConfigInvalid, CraftcoreError
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.temporal.attachment import attached
from craftcore.temporal.attribute_setup import require_attributes
from craftcore.temporal.cluster_connection import connect, translating
from craftcore.temporal.entries.entry_runner import opening_runner
from craftcore.temporal.entries.turn_activity import TurnActivity
from craftcore.temporal.entries.user_loop import UserLoop
from craftcore.temporal.lookup_activities import LookupActivities
from craftcore.temporal.schedules.schedule_activity import ScheduleActivity
from craftcore.temporal.schedules.schedule_client import ScheduleClient
from craftcore.temporal.schedules.schedule_rules import ScheduleRules, refuse_beyond_cluster
from craftcore.temporal.schedules.schedule_sync import declare_schedules
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.worker_metrics import open_metrics
from craftcore.temporal.workflow.gate import GateWorkflow
from craftcore.temporal.workflow.schedule import ScheduleWorkflow
from craftcore.temporal.workflow.task import TaskWorkflow
from craftcore.temporal.workflow_runner import ReplayableRunner

log = get_logger(__name__)


def list_unsupported(app: Registry) -> list[str]:
    """Return what the app declares and the cluster cannot keep, a sentence each."""
    found = []
    for spec in app.declared_schedules.values():
        try:
            refuse_beyond_cluster(spec)
        except CraftcoreError as error:
            found.append(f"schedule {spec.id}: {error.message}")
    return found


@asynccontextmanager
async def working(
    app: Registry, settings: TemporalSettings, config: Config | None = None, *, revision: float | None = None
) -> AsyncIterator[Client]:
    """Run a worker of the app while the block lasts, and drain it then. Raises ConfigInvalid for an app that uses what
    a cluster cannot keep, and CannotCreate when the port of the metrics cannot be used.

    It declares the schedules of the app before the block begins. `revision` is theirs, as for `declare_schedules`.

    Its workflows are all ours, and run outside of the sandbox of the library. Histories are replayed in the sandbox by
    the tests.
    From then on the process ignores a warning of the library about late cancellations.
    """
    if unsupported := list_unsupported(app):
        raise ConfigInvalid("; ".join(unsupported))
    app.check_fallbacks()
    app.check_actions()
    config = config or Config()
    client = await connect(settings, open_metrics(settings.metrics))
    with translating(settings):
        await require_attributes(client)
    with attached(app, client, settings):
        async with polling(app, client, settings, config):
            with translating(settings):
                queue = settings.task_queue or app.name
                for one in await declare_schedules(ScheduleClient(client), app, config, queue, revision):
                    if one.change != "unchanged":
                        log.info(f"schedule.{one.change}", schedule=one.id)
            yield client


@asynccontextmanager
async def polling(app: Registry, client: Client, settings: TemporalSettings, config: Config) -> AsyncIterator[None]:
    """Run a worker of the app while the block lasts, without its checks and its schedules."""
    _ignore_late_cancellations()
    async with UserLoop(partial(opening_runner, app, client, config)) as user:
        turns = TurnActivity(client, user, shutdown_grace=settings.shutdown_grace)
        schedules = ScheduleActivity(client, ScheduleRules(config, settings.heartbeat_timeout))
        lookups = LookupActivities(client)
        async with Worker(
            client,
            task_queue=settings.task_queue or app.name,
            workflows=[TaskWorkflow, GateWorkflow, ScheduleWorkflow],
            workflow_runner=ReplayableRunner(),
            activities=[turns.run, lookups.list_ended, lookups.read_id, schedules.move],
            max_concurrent_activities=config.daemon.concurrency,
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=settings.sticky_timeout),
            graceful_shutdown_timeout=timedelta(seconds=settings.shutdown_grace),
        ):
            yield


def _ignore_late_cancellations() -> None:
    """Ignore the warning of the library about a cancellation that meets the end of its activity on the way.

    It needs no action, its text is a binary token, and a process that turns warnings into errors would lose its worker.
    """
    warnings.filterwarnings("ignore", "Cannot find activity to cancel", UserWarning)


async def work_until_stopped(
    app: Registry,
    settings: TemporalSettings,
    config: Config | None = None,
    *,
    revision: float | None = None,
    on_ready: Callable[[], object] = lambda: None,
    on_stop: Callable[[], object] = lambda: None,
) -> None:
    """Run a worker until SIGTERM or SIGINT, then let running turns end within `shutdown_grace` and release the
    others. `on_ready` is called when it works, `on_stop` when the signal comes. `revision` is as for `working`,
    and so are the errors."""
    with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with working(app, settings, config, revision=revision):
            on_ready()
            async for _ in signals:
                on_stop()
                return
