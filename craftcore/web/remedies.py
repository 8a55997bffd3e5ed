"""The commands that help, as the page prints them: ready to paste, and each a link to the page of what it is about."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import unquote

from markupsafe import Markup, escape

from craftcore.config.database_path import database_option
from craftcore.diagnostics.finding import Finding
from craftcore.diagnostics.text.command_text import PROGRAM, add_database, paste
from craftcore.executions.recovery import Recommendation
from craftcore.web.timeline import page_address

LISTS: Mapping[str, str] = {
    "inbox list": "/",
    "schedule list": "/schedules",
    "schedule reanchor": "/schedules",
    "trigger list --status FAILED": "/triggers?status=FAILED",
    "dead list": "/dead",
    "status": "/health",
    "release": "/health",
    "schedule trust-clock": "/health",
    "db stats": "/health",
}
"""Whole commands, and the page that has the same."""

SUBJECTS: Mapping[str, str] = {
    "task show": "tasks",
    "task events": "tasks",
    "task cancel": "tasks",
    "task retry": "tasks",
    "task signal": "tasks",
    "task stop": "tasks",
    "trigger show": "triggers",
    "trigger why": "triggers",
    "trigger cancel": "triggers",
    "trigger requeue": "triggers",
    "dead requeue": "triggers",
    "dead discard": "triggers",
    "schedule show": "schedules",
    "schedule why": "schedules",
    "schedule history": "schedules",
    "schedule resume": "schedules",
    "schedule edit": "schedules",
    "schedule reanchor": "schedules",
    "activity show": "activities",
    "activity resolve": "activities",
    "inbox answer": "q",
    "inspect": "records",
    "replay": "records",
    "verify": "records",
    "execution retry": "records",
    "execution skip": "records",
}
"""The beginnings of commands before an id, and the folder of its page."""


def format_remedies(advice: Finding | Recommendation, database: Path, address: str = "") -> Markup:
    """Return the commands that help, as the end of the sentence before them; nothing when there are none.

    Each names this database, and leads to the page of what it is about. `address`: of this page, which needs no link.
    """
    commands = _list_commands(advice)
    if not commands:
        return Markup()
    option = database_option(os.path.abspath(database))
    return Markup(": ") + Markup(", ").join(_command_element(one, option, address) for one in commands)


def find_page(command: Sequence[str]) -> str | None:
    """Return the address of the page of what a command is about; None when there is none."""
    program, *words = command
    if program != PROGRAM:
        return None
    for length in (1, 2):
        pages, about = SUBJECTS.get(" ".join(words[:length])), words[length : length + 1]
        if pages is not None and about and not about[0].startswith("-"):
            return page_address(pages, about[0])
    return LISTS.get(" ".join(words))


def _list_commands(advice: Finding | Recommendation) -> list[tuple[str, ...]]:
    if isinstance(advice, Finding):
        return list(advice.remedies)
    return [(PROGRAM, *words) for words in advice.commands]


def _command_element(command: Sequence[str], option: Sequence[str], address: str) -> Markup:
    text, page = escape(paste(*add_database(command, option))), find_page(command)
    if page is None or unquote(page) == address:
        return Markup(f"<code>{text}</code>")
    return Markup(f'<a href="{escape(page)}"><code>{text}</code></a>')
