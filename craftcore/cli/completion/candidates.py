"""What a shell offers when somebody presses TAB: commands, options, and what is in the database.

It reads in passing, prints what it knows and nothing else, and never fails: a shell that waits or complains in the
middle of a line is worse than one that offers nothing.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys

import click
from click.shell_completion import CompletionItem, ShellComplete, get_completion_class

from craftcore.cli.completion.queries import MOST, QUERIES, WITHIN
from craftcore.cli.completion.word_candidates import beginning, words
from craftcore.cli.root import root
from craftcore.cli.session import Session
from craftcore.daemon.log_format import escaped
from craftcore.storage.passive_read import glancing

VARIABLE = "_CRAFTCORE_COMPLETE"
"""Set by the shell's script to `bash_complete` and the like."""

SAFE = re.compile(r"[A-Za-z0-9._:@+][A-Za-z0-9._:@+-]{0,449}")
"""Every id and key there is, but for what would be read as an option. What else a damaged or hostile row holds is not
put on anybody's command line."""

HELP_MAX = 60

KINDS = {
    "trigger_id": "trigger",
    "task_id": "task",
    "question_id": "question",
    "key": "key",
    "execution_id": "execution",
    "those": "execution",
    "a": "execution",
    "b": "execution",
    "schedule_id": "schedule",
    "subject": "subject",
    "workflow": "workflow",
}
"""By the name of the parameter; `ids` by the command."""
IDS = {"dead": "dead", "trigger": "trigger", "schedule": "schedule", "invalidate": "execution"}
RECORDS = {"those", "a", "b"}
"""Each an execution, or a file that one was exported to."""
FILES = {"FILE": "file", "PATH": "file", "DIR": "dir", "[DIR]": "dir"}
"""By how the help calls it: the shell itself knows what files there are."""


def complete(session: Session, instruction: str) -> int:
    """Answer the shell's script in click's protocol, on standard output. Always 0."""
    shell, _, what = instruction.partition("_")
    said: list[str] = []
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            offering = get_completion_class(shell)
            if offering is not None and what == "complete":
                said = _answer(offering(root, {"obj": session}, "craftcore", VARIABLE))
        except (Exception, SystemExit):
            pass  # nothing to offer
    for line in said:
        sys.stdout.write(f"{line}\n")
    return 0


def _answer(shell: ShellComplete) -> list[str]:
    """The lines for the shell. `--status=pe` is one word to zsh and fish, and three to bash."""
    args, incomplete = shell.get_completion_args()
    option, equals, _ = incomplete.partition("=")
    kept = f"{option}=" if equals and option.startswith("--") else ""
    if args and "=" in (args[-1], incomplete):
        args, incomplete = [arg for arg in args if arg != "="], incomplete.removeprefix("=")
    found = shell.get_completions(args, incomplete)
    for item in found:
        item.value = kept + item.value
    return [shell.format_completion(item) for item in found]


def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """What a parameter may be; of a kind that the database knows, what is there."""
    name = param.name or ""
    if (metavar := param.metavar) in FILES:
        return [CompletionItem(incomplete, type=FILES[metavar or ""])]
    if name in RECORDS and ("/" in incomplete or incomplete.startswith(".")):
        return [CompletionItem(incomplete, type="file")]
    command = [*ctx.command_path.split(), ""][1]
    if one_of := words(command, param):
        return [CompletionItem(word) for word in beginning(one_of, incomplete)]
    if name in WITHIN:
        return _within(ctx, name, incomplete)
    kind = IDS.get(command) if name == "ids" else KINDS.get(name)
    if kind is None:
        return param.type.shell_complete(ctx, param, incomplete)
    typed = incomplete.removeprefix("activity:") if kind == "key" else incomplete
    with glancing(ctx.find_root().obj.path) as reader:
        rows = reader.all(QUERIES[kind], low=typed, high=typed + "\x7f", most=MOST)
    head = incomplete[: len(incomplete) - len(typed)]
    return [
        CompletionItem(head + row["value"], help=escaped(row["about"])[:HELP_MAX] if row["about"] else None)
        for row in rows
        if SAFE.fullmatch(head + row["value"])
    ]


def _within(ctx: click.Context, name: str, incomplete: str) -> list[CompletionItem[str]]:
    whose, query = WITHIN[name]
    id = str(ctx.params.get(whose) or "")
    with glancing(ctx.find_root().obj.path) as reader:
        found = {row["value"] for row in reader.all(query, low=id, high=id + "\x7f", most=MOST)}
    return [CompletionItem(word) for word in beginning(found, incomplete) if SAFE.fullmatch(word)]
