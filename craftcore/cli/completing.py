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
from click.shell_completion import CompletionItem, get_completion_class

from craftcore.cli.root import root
from craftcore.cli.session import Session
from craftcore.daemon.log_lines import escaped
from craftcore.storage.glance import glancing

VARIABLE = "_CRAFTCORE_COMPLETE"
"""Set by the shell's script to `bash_complete` and the like."""

MOST = 50
"""Of what is in the database, the newest so many are offered."""

SAFE = re.compile(r"[A-Za-z0-9._:@+-]{1,450}")
"""Every id and key there is. What else a damaged or hostile row holds is not put on anybody's command line."""

HELP_MAX = 60

QUERIES = {
    "trigger": """
        SELECT id AS value, coalesce(workflow, source) AS about
        FROM triggers
        WHERE id >= :low
          AND id < :high
        ORDER BY id DESC
        LIMIT :most
    """,
    "dead": """
        SELECT id AS value, coalesce(workflow, source) AS about
        FROM triggers INDEXED BY triggers_dead
        WHERE status = 'DEAD'
          AND id >= :low
          AND id < :high
        ORDER BY settled_at DESC
        LIMIT :most
    """,
    "task": """
        SELECT id AS value, workflow AS about
        FROM tasks
        WHERE id >= :low
          AND id < :high
        ORDER BY id DESC
        LIMIT :most
    """,
    "question": """
        SELECT questions.id AS value, tasks.workflow AS about
        FROM questions INDEXED BY questions_open
        JOIN tasks ON tasks.seq = questions.task_seq
        WHERE questions.status = 'OPEN'
          AND questions.id >= :low
          AND questions.id < :high
        ORDER BY questions.id DESC
        LIMIT :most
    """,
    "key": """
        SELECT substr(idem_key, 10) AS value, action AS about
        FROM activity_log
        WHERE idem_key >= 'activity:' || :low
          AND idem_key < 'activity:' || :high
        ORDER BY idem_key DESC
        LIMIT :most
    """,
    "execution": """
        SELECT id AS value, workflow AS about
        FROM executions
        WHERE id >= :low
          AND id < :high
        ORDER BY id DESC
        LIMIT :most
    """,
    "schedule": """
        SELECT id AS value, workflow AS about
        FROM schedules
        WHERE status <> 'REMOVED'
          AND id >= :low
          AND id < :high
        ORDER BY id
        LIMIT :most
    """,
    "subject": """
        SELECT subject AS value, NULL AS about
        FROM audit_log
        WHERE subject >= :low
          AND subject < :high
        GROUP BY subject
        ORDER BY subject
        LIMIT :most
    """,
    "workflow": """
        SELECT name AS value, NULL AS about
        FROM workflows
        WHERE name >= :low
          AND name < :high
        ORDER BY name
        LIMIT :most
    """,
}
"""What there is of each kind that begins with what was typed, and a word about each. Keys without `activity:`, which
commands take as well: a colon ends a word in bash."""

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
FILES = {"FILE": "file", "PATH": "file", "DIR": "dir", "[DIR]": "dir"}
"""By how the help calls it: the shell itself knows what files there are."""


def complete(session: Session, instruction: str) -> int:
    """Answer the shell's script in click's protocol, on standard output. Always 0."""
    shell, _, what = instruction.partition("_")
    said = ""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        try:
            offering = get_completion_class(shell)
            if offering is not None and what == "complete":
                said = offering(root, {"obj": session}, "craftcore", VARIABLE).complete()
        except (Exception, SystemExit):
            pass  # nothing to offer
    if said:
        sys.stdout.write(said + "\n")
    return 0


def offered(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem[str]]:
    """What a parameter may be; of a kind that the database knows, what is there."""
    name = param.name or ""
    if isinstance(param, click.Option) and (metavar := param.metavar) in FILES:
        return [CompletionItem(incomplete, type=FILES[metavar or ""])]
    if name == "those" and ("/" in incomplete or incomplete.startswith(".")):
        return [CompletionItem(incomplete, type="file")]
    words = ctx.command_path.split()
    kind = IDS.get(words[1]) if name == "ids" and len(words) > 1 else KINDS.get(name)
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
