"""`craftcore schedule`: all that is done with schedules, each part in a module of its own."""

from __future__ import annotations

import click

from craftcore.cli.base import CommandGroup
from craftcore.cli.schedule import declare, fire, show, state
from craftcore.cli.schedule.preview import preview

VERBS = (
    *("add", "list", "show", "why", "preview", "pause", "resume", "edit", "run-now", "skip-next", "backfill"),
    *("history", "remove", "trust-clock", "reanchor"),
)


@click.group(cls=CommandGroup, verbs=VERBS)
def schedule() -> None:
    """Schedules: add, list, preview, pause, edit, …

    Those of the app and of the settings are declared there: they can be paused and run here, and not edited.
    """


for command in (
    *declare.COMMANDS,
    *state.COMMANDS,
    *show.COMMANDS,
    preview,
    *fire.COMMANDS,
):
    schedule.add_command(command)
