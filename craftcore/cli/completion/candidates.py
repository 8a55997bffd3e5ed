"""Candidates for shell completion: commands, options, choices, and ids from the database.

The database is read without creating files or waiting for locks. Completion prints candidates only, and never fails.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from collections.abc import Iterable
from zoneinfo import available_timezones

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from craftcore.activities.model import ActivityStatus
from craftcore.cli.completion.id_store import MOST, QUERIES
from craftcore.error_codes import ErrorCode
from craftcore.executions.model import Status
from craftcore.log_format import escape_control
from craftcore.storage.connection import read_passively
from craftcore.tasks.model import TaskStatus
from craftcore.triggers.model import TriggerSource, TriggerStatus

VARIABLE = "_CRAFTCORE_COMPLETE"
"""Set by the script of the shell to `bash_complete`, `zsh_complete` or `fish_complete`."""

SAFE = re.compile(r"[A-Za-z0-9._:@+][A-Za-z0-9._:@+-]{0,449}")
"""The ids and keys that a shell leaves as they are. Any other value comes from a damaged row, and is left out."""

HELP_MAX = 60
FILES = {"FILE": "file", "PATH": "file", "DIR": "dir", "[DIR]": "dir"}
"""Metavars that the shell itself completes."""

RECORDS = {"those", "left", "right"}
"""Parameters that take an execution, or a file with an exported one."""

KINDS = {
    **dict.fromkeys((*RECORDS, "execution_id", "invalidate ids"), "execution"),
    **{f"{name}_id": name for name in ("trigger", "task", "question", "schedule")},
    **{f"{name} ids": name for name in ("dead", "trigger", "schedule")},
    **{name: name for name in ("key", "subject", "workflow", "choice", "event")},
}
"""The query for a parameter, by its name, or by the command and its name."""

OWNERS = {"choice": "question_id", "event": "task_id"}

CHOICES: dict[str, Iterable[str]] = {
    "trigger status": TriggerStatus,
    "task status": TaskStatus,
    "activity status": ActivityStatus,
    "inspect status": Status,
    "source": TriggerSource,
    "error_code": ErrorCode,
}
ONE_OF = re.compile(r"[a-z_]+(?:\|[a-z_]+)*")
"""A metavar that lists the choices of an option: `keep|replace|error`."""


def complete(root: click.Command, session: object, instruction: str) -> int:
    """Answer the script of the shell in click's protocol, on standard output. Always return 0."""
    shell, _, what = instruction.partition("_")
    lines: list[str] = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        with contextlib.suppress(Exception, SystemExit):
            completion = get_completion_class(shell)
            if completion is not None and what == "complete":
                lines = _answer(completion(root, {"obj": session}, "craftcore", VARIABLE))
    sys.stdout.writelines(f"{line}\n" for line in lines)
    return 0


def _answer(shell: ShellComplete) -> list[str]:
    """Return the lines for the shell. `--status=pe` is one word for zsh and fish, and three words for bash."""
    args, incomplete = shell.get_completion_args()
    option, equals, _ = incomplete.partition("=")
    prefix = f"{option}=" if equals and option.startswith("--") else ""
    if args and "=" in (args[-1], incomplete):
        args, incomplete = [arg for arg in args if arg != "="], incomplete.removeprefix("=")
    found = shell.get_completions(args, incomplete)
    for item in found:
        item.value = prefix + item.value
    return [shell.format_completion(item) for item in found]


def find_candidates(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """Return the values that a parameter may have and that begin with `incomplete`."""
    name, metavar = param.name or "", param.metavar or ""
    command = [*ctx.command_path.split(), ""][1]
    is_path = "/" in incomplete or incomplete.startswith(".")
    if metavar in FILES or (name in RECORDS and is_path):
        return [CompletionItem(incomplete, type=FILES.get(metavar, "file"))]
    if isinstance(param, click.Option) and ONE_OF.fullmatch(metavar):
        return _match(metavar.split("|"), incomplete)
    if name == "timezone":
        return _match(available_timezones(), incomplete)
    if (command, name) == ("audit", "action"):
        root = ctx.find_root().command
        return _match(root.list_commands(ctx) if isinstance(root, click.Group) else (), incomplete)
    if choices := CHOICES.get(name) or CHOICES.get(f"{command} {name}"):
        return _match(choices, incomplete)
    if kind := KINDS.get(name) or KINDS.get(f"{command} {name}"):
        return _rows(ctx, kind, incomplete)
    return param.type.shell_complete(ctx, param, incomplete)


def _rows(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem[str]]:
    typed = incomplete.removeprefix("activity:") if kind == "key" else incomplete
    prefix = incomplete.removesuffix(typed) if typed else incomplete
    low = str(ctx.params.get(OWNERS[kind]) or "") if kind in OWNERS else typed
    with read_passively(ctx.find_root().obj.path) as reader:
        rows = reader.fetch_all(QUERIES[kind], low=low, high=low + "\x7f", most=MOST)
    if kind in OWNERS:
        return _match((value for row in rows if SAFE.fullmatch(value := row["value"])), incomplete)
    return [
        CompletionItem(prefix + row["value"], help=escape_control(row["about"])[:HELP_MAX] if row["about"] else None)
        for row in rows
        if SAFE.fullmatch(prefix + row["value"])
    ]


def _match(words: Iterable[str], typed: str) -> list[CompletionItem[str]]:
    """Return the words that begin with `typed`, in small letters if it is: commands read a status in either case."""
    is_small = typed != "" and typed == typed.lower()
    found = sorted({word for word in words if word.lower().startswith(typed.lower())})
    return [CompletionItem(word.lower() if is_small and word == word.upper() else word) for word in found]
