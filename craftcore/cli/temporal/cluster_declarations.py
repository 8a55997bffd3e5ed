"""`craftcore temporal schedules sync`: bring the schedules on a cluster up to date with an app, without a worker."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import click

from craftcore.audit.caller import actor
from craftcore.cli.base import CommandGroup
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import ClusterWriteCommand, read_cluster_settings

if TYPE_CHECKING:
    from craftcore.temporal.cluster_connection import Client
    from craftcore.temporal.schedules.schedule_sync import SyncedSchedule


@click.group(cls=CommandGroup)
def schedules() -> None:
    """Declarations of an app, as schedules of a cluster: sync."""


@schedules.command(
    "sync",
    cls=ClusterWriteCommand,
    examples=("craftcore temporal schedules sync app:app", "craftcore temporal schedules sync app:app --revision 7"),
    see=("craftcore temporal schedule list", "craftcore temporal worker", "docs/how-to/run-on-temporal.md"),
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--revision", metavar="N", type=float, help="Revision of its schedules; else the newest time of the app's files."
)
@click.pass_obj
def sync(session: Session, /, app: str, revision: float | None) -> None:
    """Declare the schedules of an app and of the settings, as each start of a worker does.

    Those that are declared no longer are disabled. A declaration counts only when its revision is not lower than the
    one on the cluster. A new schedule needs no worker; another one does. `on startup` fires.
    """
    settings, config = read_cluster_settings(session), session.load_config()

    async def declare(client: Client) -> list[SyncedSchedule]:
        from craftcore.daemon.app_loader import import_app
        from craftcore.daemon.builtin_actions import declare_ready_made
        from craftcore.temporal.schedules.schedule_client import ScheduleClient
        from craftcore.temporal.schedules.schedule_sync import declare_schedules

        found = import_app(app)
        declare_ready_made(found, config, os.environ)
        queue = settings.task_queue or found.name
        return await declare_schedules(
            ScheduleClient(client), found, config, queue, revision, by=actor().text, note="schedules sync"
        )

    synced = call_cluster(session, declare)
    if session.json:
        session.out.document([{"id": one.id, "change": one.change} for one in synced])
        return
    for one in synced:
        session.out.line(f"{one.id}: {one.change}")
    if not synced:
        session.out.line("no schedule is declared; nothing was changed")
