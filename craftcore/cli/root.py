"""The command `craftcore`: the table of all commands, each of which is imported when it is called."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from craftcore.cli import help_format
from craftcore.cli.base import CommandGroup
from craftcore.cli.exit_codes import MEANINGS

SECTIONS = {
    "Run it, and see whether it is well": {
        "run": "service.run:run",
        "init": "init:init",
        "check": "service.check:check",
        "status": "status.status:status",
        "top": "top.command:top",
        "web": "service.web:web",
        "doctor": "status.doctor:doctor",
        "hold": "status.hold:hold",
        "release": "status.hold:release",
        "reload": "service.reload:reload",
        "demo": "demo.command:demo",
        "crashtest": "crashtest.command:crashtest",
    },
    "Triggers and schedules": {
        "emit": "trigger.emit:emit",
        "trigger": "trigger.commands:trigger",
        "dead": "trigger.dead:dead",
        "schedule": "schedule.group:schedule",
    },
    "Tasks, their questions, irreversible actions": {
        "task": "task.commands:task",
        "inbox": "task.inbox:inbox",
        "session": "task.conversation:session",
        "activity": "activity.commands:activity",
    },
    "Executions: what was seen of each attempt": {
        "inspect": "execution.inspect:inspect",
        "replay": "execution.replay:replay",
        "verify": "execution.verify:verify",
        "invalidate": "execution.operate:invalidate",
        "export": "execution.export:export",
        "diff": "execution.diff:diff",
        "execution": "execution.operate:execution",
    },
    "The file, the people, the machine": {
        "db": "database.commands:db",
        "audit": "audit:audit",
        "systemd": "service.systemd:systemd",
        "completion": "completion.command:completion",
    },
    "More than one machine": {
        "temporal": "temporal.cluster_group:temporal",
    },
}
"""The commands as the help shows them: each name with its module and function."""

COMMANDS = {name: place for section in SECTIONS.values() for name, place in section.items()}

ENVIRONMENT = [
    ("CRAFTCORE_DB", "the database, unless --db says which"),
    ("CRAFTCORE_CONFIG", "the settings, unless --config says which"),
    ("CRAFTCORE_READ_ONLY", "anything but 0: as --read-only"),
    ("CRAFTCORE_TRACEBACK", "anything: show where a bug is"),
    ("NO_COLOR", "anything: no colours on a terminal"),
]


def import_command(name: str) -> click.Command:
    """Return a command of the table."""
    module, _, function = COMMANDS[name].partition(":")
    command: click.Command = getattr(import_module(f"craftcore.cli.{module}"), function)
    return command


class Root(CommandGroup):
    """All commands, none of which is imported before it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def sections(self) -> Mapping[str, Sequence[str]]:
        return {title: list(commands) for title, commands in SECTIONS.items()}

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        help_format.write_rows(formatter, "Environment", ENVIRONMENT)
        help_format.write_rows(formatter, "Exit codes", [(str(code), means) for code, means in MEANINGS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem[str]]:
        """Complete names of commands without their help, which would cost the import of all of them."""
        names = [CompletionItem(name) for name in COMMANDS if name.startswith(incomplete)]
        return [*names, *click.Command.shell_complete(self, ctx, incomplete)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return import_command(cmd_name) if cmd_name in COMMANDS else None


@click.group(cls=Root, context_settings={"help_option_names": ["-h", "--help"]})
def root() -> None:
    """Durable triggers and tasks on one SQLite file.

    For what a command does, asks and writes, with examples: craftcore COMMAND --help.

    The database is --db, else $CRAFTCORE_DB, else craftcore.db in $STATE_DIRECTORY, else in
    ~/.local/state/craftcore. Global options may stand before the command and after it.
    """
