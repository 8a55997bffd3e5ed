"""What an option may be, where that is one of a few words: no database is asked."""

from __future__ import annotations

import re
from collections.abc import Iterable
from zoneinfo import available_timezones

import click

from craftcore.activities.model import ActivityStatus
from craftcore.cli.root import COMMANDS
from craftcore.error_codes import ErrorCode
from craftcore.executions.model import Status
from craftcore.tasks.model import TaskStatus
from craftcore.triggers.model import TriggerSource, TriggerStatus

STATUSES: dict[str, Iterable[str]] = {
    "trigger": TriggerStatus,
    "task": TaskStatus,
    "activity": ActivityStatus,
    "inspect": Status,
}

ONE_OF = re.compile(r"[a-z_]+(?:\|[a-z_]+)*")
"""How the help says of an option what it may be: `keep|replace|error`."""


def words(command: str, param: click.Parameter) -> Iterable[str]:
    """Those that this parameter of the command, or of the noun, may be; none where it may be anything."""
    if isinstance(param, click.Option) and ONE_OF.fullmatch(param.metavar or ""):
        return (param.metavar or "").split("|")
    match param.name:
        case "status":
            return STATUSES.get(command, ())
        case "source":
            return TriggerSource
        case "error_code":
            return ErrorCode
        case "timezone":
            return available_timezones()
        case "action" if command == "audit":
            return COMMANDS  # a noun stands for its verbs; what has a space in it no shell puts on a line by itself
        case _:
            return ()


def beginning(those: Iterable[str], typed: str) -> list[str]:
    """Those that begin with it, in small letters where it was typed so: commands read a status in either."""
    small = typed != "" and typed == typed.lower()
    found = sorted(word for word in those if word.lower().startswith(typed.lower()))
    return [word.lower() if small and word == word.upper() else word for word in found]
