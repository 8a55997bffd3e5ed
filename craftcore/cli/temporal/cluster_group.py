"""The group `craftcore temporal`: the table of its commands, each of which is imported when it is called.

A module of a command imports `craftcore.temporal` inside its functions only, so that its help needs no library.
"""

from __future__ import annotations

from importlib import import_module

import click

from craftcore.cli import root
from craftcore.cli.temporal.cluster_options import ClusterNoun

COMMANDS: dict[str, str | None] = {
    "setup": "cluster_setup:setup",
    "check": "cluster_check:check",
    "worker": "cluster_worker:worker",
    "emit": None,
    "trigger": "cluster_trigger:trigger",
    "task": None,
    "inbox": None,
    "activity": None,
    "schedule": None,
    "schedules": "cluster_declarations:schedules",
    "inspect": None,
    "replay": None,
    "audit": None,
}
"""The commands as the help shows them: each name with its module in this folder and its function. None: it is the
command of that name on a database file, in its form on a cluster."""


class ClusterGroup(ClusterNoun):
    """All commands on a cluster, none of which is imported before it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        if (place := COMMANDS[cmd_name]) is None:
            from craftcore.cli.temporal.shared_command import put_on_cluster

            return put_on_cluster(root.import_command(cmd_name))
        module, _, function = place.partition(":")
        command: click.Command = getattr(import_module(f"craftcore.cli.temporal.{module}"), function)
        return command


@click.group(cls=ClusterGroup)
def temporal() -> None:
    """Run an app on a Temporal cluster: setup, check, worker, …

    The commands use no database. They need the extra: pip install 'craftcore[temporal]'. Each option is also a setting
    of [temporal]. CRAFTCORE_TEMPORAL_ADDRESS and CRAFTCORE_TEMPORAL_NAMESPACE name the cluster, too.
    """
