"""`craftcore schedule`: all that is done with schedules, each part in a module of its own."""

from __future__ import annotations

import click

from craftcore.cli.base import CommandGroup
from craftcore.cli.schedule import declare, fire, show, state
from craftcore.cli.schedule.preview import preview


@click.group(
    cls=CommandGroup,
    on_cluster="""Schedules on a cluster: list, show, pause, run-now, …

    They are declared by `craftcore temporal schedules sync` and by each start of a worker. A worker answers for them.
    """,
)
def schedule() -> None:
    """Schedules: add, list, preview, pause, edit, …

    Those of the app and of the settings are declared there: they can be paused and run here, and not edited.
    """


for command in (
    declare.add,
    show.list_,
    show.show,
    show.why,
    preview,
    state.pause,
    state.resume,
    declare.edit,
    fire.run_now,
    fire.skip_next,
    fire.backfill,
    show.history,
    state.remove,
    fire.trust_clock,
    fire.reanchor,
):
    schedule.add_command(command)
