"""The group `craftcore temporal`: the table of its commands, each of which is imported when it is called.

A module of a command imports `craftcore.temporal` inside its functions only, so that its help needs no library.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import click

from craftcore.cli.base import CommandGroup

COMMANDS = {
    "setup": "cluster_setup:setup",
    "check": "cluster_check:check",
    "worker": "cluster_worker:worker",
    "emit": "cluster_emit:emit",
    "trigger": "cluster_trigger:trigger",
    "task": "cluster_task:task",
    "inbox": "cluster_inbox:inbox",
    "activity": "cluster_activity:activity",
    "schedule": "cluster_schedule:schedule",
    "schedules": "cluster_schedules:schedules",
    "inspect": "cluster_records:inspect",
    "replay": "cluster_records:replay",
    "audit": "cluster_records:audit",
}
"""The commands as the help shows them: each name with its module in this folder and its function."""

NOT_KEPT = {
    "dead": "a cluster has no dead letters: see craftcore temporal trigger list --status dead",
    "hold": "a cluster has no hold: stop the workers of the app",
    "release": "a cluster has no hold: start workers of the app",
    "verify": "a history has no hash chain: the cluster keeps it, and nothing of craftcore can verify it",
    "db": "a cluster has no database file: the cluster itself is backed up by its operator",
}
"""The commands that a cluster cannot keep, each with the reason."""


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

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if args and args[0] in NOT_KEPT:
            ctx.fail(NOT_KEPT[args[0]])
        return super().resolve_command(ctx, args)


@click.group(cls=ClusterGroup)
def temporal() -> None:
    """Run an app on a Temporal cluster: setup, check, worker, …

    The commands use no database. They need the extra: pip install 'craftcore[temporal]'. Each option is also a setting
    of [temporal]. CRAFTCORE_TEMPORAL_ADDRESS and CRAFTCORE_TEMPORAL_NAMESPACE name the cluster, too.
    """
