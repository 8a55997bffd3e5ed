"""The commands of a database file in their form on a cluster: the same code, with the options of the connection."""

from __future__ import annotations

import click

from craftcore.cli.base import Command, CommandGroup, OnCluster, WriteCommand
from craftcore.cli.exit_codes import CANNOT_CREATE, DATABASE
from craftcore.cli.temporal.cluster_options import ClusterCommand, ClusterNoun, ClusterWriteCommand

PAGE = "docs/how-to/run-on-temporal.md"
OF_A_FILE = (DATABASE, CANNOT_CREATE)
"""Exit codes that only a command on a database file has."""


def put_on_cluster(command: click.Command) -> click.Command:
    """Return a command, or a noun with the verbs that a cluster has, in its form on a cluster."""
    if isinstance(command, Command):
        assert command.on_cluster is not None, command.name
        return make_form(command, command.on_cluster)
    assert isinstance(command, CommandGroup), command.name
    verbs = [command.commands[name] for name in command.verbs or command.commands]
    verbs = [verb for verb in verbs if isinstance(verb, Command) and verb.on_cluster is not None]
    return ClusterNoun(command.name, help=command.on_cluster, commands=list(map(put_on_cluster, verbs)))


def make_form(command: Command, form: OnCluster, name: str | None = None) -> ClusterCommand:
    """Return a command in a form on a cluster. `name`: another one there."""
    kind = ClusterWriteCommand if isinstance(command, WriteCommand) else ClusterCommand
    examples = command.examples if form.examples is None else form.examples
    see = (*command.see, PAGE) if form.see is None else (*form.see, PAGE)
    lacked = {*OF_A_FILE, *form.without}
    shared = [one for one in command.params if one not in command.common and one.name not in lacked]
    return kind(
        name or command.name,
        needs_extra=True,
        callback=command.callback,
        params=[*form.params, *shared],
        help=form.help or f"{command.help}\n\n{form.remark}".rstrip(),
        exits={code: text for code, text in command.exits.items() if code not in lacked} | dict(form.exits),
        examples=[_name_on_cluster(line) for line in examples],
        see=[_name_on_cluster(line) for line in see],
    )


def _name_on_cluster(line: str) -> str:
    return line if line.startswith("docs/") else line.replace("craftcore ", "craftcore temporal ", 1)
