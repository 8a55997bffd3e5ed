"""A command of ours that a sentence names: pasted, it goes to the database that this one went to."""

from __future__ import annotations

import click

from craftcore.cli.output import pasted
from craftcore.cli.session import Session


def hint(*words: str) -> str:
    """`craftcore --db PATH task show ID`; without `--db` where the database is the one that is taken without it."""
    context = click.get_current_context(silent=True)
    session = None if context is None else context.find_object(Session)
    return pasted(*(("craftcore", *words) if session is None else session.words(*words)))
