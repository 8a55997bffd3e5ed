"""The group `craftcore temporal`: the table of its commands, each of which is imported when it is called.

A module of a command imports `craftcore.temporal` inside its functions only, so that its help needs no library.
"""

from __future__ import annotations

from importlib import import_module

import click

from craftcore.cli.base import CommandGroup

COMMANDS = {
    "setup": "cluster_setup:setup",
    "check": "cluster_check:check",
    "worker": "cluster_worker:worker",
    "emit": "cluster_emit:emit",
}
"""The commands as the help shows them: each name with its module in this folder and its function."""


class ClusterGroup(CommandGroup):
    """All commands on a cluster, none of which is imported before it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, function = COMMANDS[cmd_name].partition(":")
        command: click.Command = getattr(import_module(f"craftcore.cli.temporal.{module}"), function)
        return command


@click.group(cls=ClusterGroup)
def temporal() -> None:
    """Run an app on a Temporal cluster: setup, check, worker, …

    The commands use no database. They need the extra: pip install 'craftcore[temporal]'. Each option is also a setting
    of [temporal]. CRAFTCORE_TEMPORAL_ADDRESS and CRAFTCORE_TEMPORAL_NAMESPACE name the cluster, too.
    """
