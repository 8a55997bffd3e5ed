"""`craftcore temporal worker`: work for an app on a cluster, in the foreground."""

from __future__ import annotations

import asyncio
import os
import sys

import click

from craftcore.cli.exit_codes import CANNOT_CREATE, NO_SUCH
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_options import ClusterWriteCommand, read_cluster_settings, require_extra


@click.command(
    cls=ClusterWriteCommand,
    for_worker=True,
    exits={NO_SUCH: "no such namespace", CANNOT_CREATE: "the port of the metrics cannot be used"},
    examples=(
        "craftcore temporal worker app:app",
        "craftcore temporal worker app:app --address host:7233 --namespace agents",
    ),
    see=("craftcore temporal check", "craftcore run", "docs/how-to/run-on-temporal.md"),
)
@click.argument("app", metavar="MODULE:APP")
@click.option(
    "--revision", metavar="N", type=float, help="Revision of its schedules; else the newest time of the app's files."
)
@click.pass_obj
def worker(session: Session, app: str, revision: float | None) -> None:
    """Work for an app on a cluster, until SIGTERM or Ctrl-C.

    Any number of workers may run, on any number of machines. MODULE:APP names the App, looked for in the current
    directory first. After the signal, running turns have temporal.shutdown_grace (30 s) to end. Then they are handed
    back, at no cost. There is no --paused: without a worker nothing runs, and everything is kept.
    """
    from craftcore.daemon.process_one import work_below_process_one

    work_below_process_one()
    settings, config = read_cluster_settings(session), session.load_config()
    require_extra()
    from craftcore.daemon import logging
    from craftcore.daemon.app_loader import import_app
    from craftcore.daemon.builtin_actions import declare_ready_made
    from craftcore.daemon.sd_notify import Notifier
    from craftcore.temporal.cluster_connection import translating
    from craftcore.temporal.worker import work_until_stopped

    journal = logging.is_journal_stream(sys.stderr, os.environ)
    logging.configure(config.log.level, config.log.format, stream=sys.stderr, under_systemd=journal)
    notifier = Notifier.from_environment(os.environ)
    found = import_app(app)
    declare_ready_made(found, config, os.environ)

    def notify_ready() -> None:
        place = f"{settings.task_queue or found.name} at {settings.address}, namespace {settings.namespace}"
        session.out.print_note(f"working on {place}")
        notifier.notify_ready(f"working on {place}")

    with translating(settings):
        asyncio.run(
            work_until_stopped(
                found,
                settings,
                config,
                revision=revision,
                on_ready=notify_ready,
                on_stop=notifier.notify_stopping,
            )
        )
    if session.json:
        session.out.document({"ok": True, "exit_code": 0})
