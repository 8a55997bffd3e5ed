"""`craftcore session`: what was said in a session."""

from __future__ import annotations

import click

from craftcore.cli.base import CommandGroup, OperatorCommand
from craftcore.cli.confirm import confirm_by_person
from craftcore.cli.damaged_list import RowList, print_list
from craftcore.cli.exit_codes import NO_SUCH, OF_A_LIST
from craftcore.cli.session import Session
from craftcore.diagnostics.documents import message_document
from craftcore.operations import tasks
from craftcore.serialization.display import shorten
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import relative_text
from craftcore.tasks.session_message import StoredMessage
from craftcore.tasks.session_message_store import SessionMessageStore

COLUMNS = ("number", "task", "when", "message")
SHOWN_MAX = 500
"""Characters of a message in the table; with --json it is whole."""


@click.group("session", cls=CommandGroup)
def session() -> None:
    """Conversations of sessions: history, forget.

    Workflows append to them with ctx.history. The conversation of a task without a session has the id of the task.
    """


@session.command(
    "history",
    exits=OF_A_LIST,
    examples=("craftcore session history lobby", "craftcore session history lobby --limit 5 --json"),
    see=("craftcore task list", "craftcore session forget", "docs/how-to/write-handlers.md#conversations"),
)
@click.argument("session_id", metavar="SESSION")
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.option("--before", type=click.IntRange(1, 1 << 62), metavar="NUMBER", help="Only messages with lower numbers.")
@click.pass_obj
def history(given: Session, /, session_id: str, limit: int, before: int | None) -> int:
    """List the newest messages of a session, oldest of them first.

    A message is stored when its turn ends. Long ones are cut here, and whole with --json.
    """
    core = given.core()
    with core.reading() as reader:
        found = SessionMessageStore().list_newest(reader, session_id, limit, 0, before)
    now = core.clock.now()

    def cells(message: StoredMessage) -> tuple[object, ...]:
        return (
            message.number,
            message.task_id,
            relative_text(message.created_at, now),
            shorten(message.message_json, SHOWN_MAX),
        )

    return print_list(given, RowList(COLUMNS, found, document_of=message_document, cells=cells))


@session.command(
    "forget",
    cls=OperatorCommand,
    exits={NO_SUCH: None},
    examples=("craftcore session forget lobby", "craftcore session forget lobby --yes"),
    see=("craftcore session history", "craftcore db gc", "docs/reference/configuration.md#retention"),
)
@click.argument("session_id", metavar="SESSION")
@click.option("--yes", is_flag=True, help="Do not ask a person at a terminal.")
@click.pass_obj
def forget(given: Session, /, session_id: str, yes: bool) -> None:
    """Remove all messages of a session.

    Records, payloads and states of its tasks stay until retention removes them. A turn that runs appends its own
    messages when it ends.
    """
    confirm_by_person(yes, f"remove all messages of session {session_id}")
    with given.write(given.core()) as (tx, scope):
        removed = tasks.forget_history(tx, scope, session_id)
    if given.json:
        given.out.document({"session_id": session_id, "removed": removed})
    else:
        given.out.line(f"{format_count(removed, 'message')} of session {session_id} removed")
