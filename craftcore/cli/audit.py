"""`craftcore audit`: who did what by hand, to what, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import click

from craftcore.audit.listing_store import AuditFilter, AuditListStore
from craftcore.audit.model import AuditRow
from craftcore.cli.base import Command, OnCluster, OperatorCommand
from craftcore.cli.exit_codes import BAD_FILTER, NO_SUCH
from craftcore.cli.lookup import RECORD_BEGINS, SUFFIX_MIN, parse_time_bound, require_text, single_match
from craftcore.cli.session import Session, hint
from craftcore.diagnostics.audit_subjects import KEY_BEGINS, list_parts, parse_user
from craftcore.diagnostics.text.audit_text import AuditLine, actor_text, details_of, details_text, other_details
from craftcore.errors import FilterInvalid
from craftcore.serialization.time_text import add_iso_times, clock_time
from craftcore.storage.transaction import Reader, keys_ending, keys_like
from craftcore.triggers.validation import is_name

COLUMNS = ("when", "who", "action", "subject", "reason", "details")


@click.command(
    cls=Command,
    exits={NO_SUCH: "no operator command has changed that, or no such database", BAD_FILTER: None},
    examples=(
        "craftcore audit --limit 20",
        'craftcore audit --action "task cancel" --since 2026-11-21T00:00Z',
        "craftcore audit nightly",
    ),
    see=("craftcore verify", "craftcore task events", "docs/reference/cli.md#the-audit-log"),
    on_cluster=OnCluster(
        help="""List what was done to a task from outside, newest first: who, what, why.

        They are its answers, decisions, signals, cancellations and retries, out of its history. There is no list over
        all tasks. The names are those that the callers gave; the cluster does not check them.
        """,
        without=("subject", "action", "by", "since", "until", "limit", BAD_FILTER),
        params=(click.Argument(["subject"], metavar="ID"),),
        exits={NO_SUCH: None},
        examples=("craftcore audit 01a1fdfa",),
        see=("craftcore task events",),
    ),
)
@click.argument("subject", metavar="[ID]", required=False)
@click.option("--action", metavar="COMMAND", help='Only this: "task cancel"; or a noun for all its verbs: task.')
@click.option("--by", metavar="NAME|UID", help="Only what this user did, or who had logged in as this one.")
@click.option("--since", metavar="TIME", help="Not before.")
@click.option("--until", metavar="TIME", help="Only before.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_context
def audit(context: click.Context, /, subject: str | None, **filters: Any) -> None:
    """List operator commands, newest first.

    With ID, those on one trigger, task, question, activity, execution or schedule; on a task also those on its
    questions and irreversible actions. Emits are not listed: they are work.
    """
    session: Session = context.obj
    more: list[str] = []
    if session.cluster is None:
        found, more = _list_rows(context, subject, **filters)
    else:
        from craftcore.cli.temporal.cluster_records import list_operations

        found = list_operations(session, str(subject))
    if session.json:
        session.out.document([document for document, _ in found])
    else:
        session.out.table(COLUMNS, [cells for _, cells in found])
    if more:
        session.out.print_note(f"more was done to its executions. See: {hint('audit', more[0])}")


def _list_rows(
    context: click.Context,
    subject: str | None,
    action: str | None,
    by: str | None,
    since: str | None,
    until: str | None,
    limit: int,
) -> tuple[list[AuditLine], list[str]]:
    """Return the rows of the database that match, and the executions of the subject that have others."""
    if by is not None:
        require_text("by", by)
    uid, name = (None, None) if by is None else parse_user(by)
    first, last = parse_time_bound("since", since), parse_time_bound("until", until)
    if first is not None and last is not None and first >= last:
        raise FilterInvalid("--since is not before --until: nothing lies between them")
    commands = list(_audited_names(context.find_root().command))
    with context.obj.core().reading() as reader:
        whole = None if subject is None else _subject(reader, subject)
        those = AuditFilter(
            subject=whole,
            parts=[] if whole is None else list_parts(reader, whole),
            action=None if action is None else _action(reader, action, commands),
            uid=uid,
            name=name,
            since=first,
            until=last,
        )
        found = AuditListStore().list_newest(reader, limit, those)
        more = [] if whole is None else AuditListStore().subjects_like(reader, f"{RECORD_BEGINS}{whole}.")
    return [(_row_document(row), _cells(row)) for row in found], more


def _subject(reader: Reader, given: str) -> str:
    """Return the whole id of what is meant, among those of which there are rows. An activity's key may lack its
    beginning, and a trigger means its execution."""
    typed = given.removesuffix("…")
    require_text("ID", typed)
    like = AuditListStore().subjects_like
    nobody = f"no operator command has changed the id {given!r:.300}, as far as the log goes back"
    if found := like(reader, typed):
        return single_match(found, typed, nobody)
    tasks = keys_like(reader, "tasks", typed) if is_name(typed) else []
    if any(list_parts(reader, task) for task in tasks):
        return single_match(tasks, typed, nobody)
    for prefix in (KEY_BEGINS + typed, RECORD_BEGINS + typed):
        if found := like(reader, prefix):
            return single_match(found, prefix, nobody)
    found = keys_ending(reader, "audit_log", typed, key="subject") if len(typed) >= SUFFIX_MIN else []
    return single_match(found, typed, nobody)


def _action(reader: Reader, given: str, commands: list[str]) -> str:
    """Return a command, or a noun, of this program or of the log."""
    require_text("action", given)
    if any(given == name or name.startswith(f"{given} ") for name in commands):
        return given
    if AuditListStore().list_newest(reader, 1, AuditFilter(action=given)):
        return given  # another version of this program did it
    raise FilterInvalid(f"action {given!r:.80} is unknown; it must be one of {', '.join(commands)}")


def _audited_names(command: click.Command | None, name: str = "") -> Iterator[str]:
    """Yield the whole names of what is written down, in the order of the help."""
    if isinstance(command, click.Group):
        context = click.Context(command)
        for verb in command.list_commands(context):
            yield from _audited_names(command.get_command(context, verb), f"{name} {verb}".lstrip())
    elif isinstance(command, OperatorCommand):
        yield name


def _row_document(row: AuditRow) -> dict[str, Any]:
    names = ("seq", "at", "uid", "name", "action", "subject", "reason")
    document = add_iso_times({name: getattr(row, name) for name in names})
    return {**document, "details": add_iso_times(details_of(row)), "prev_hash": row.prev_hash, "hash": row.hash}


def _cells(row: AuditRow) -> tuple[object, ...]:
    return clock_time(row.at), actor_text(row), row.action, row.subject, row.reason, details_text(other_details(row))
