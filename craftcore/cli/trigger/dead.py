"""`craftcore dead`: the dead letters, what could not be done, until a person decides."""

from __future__ import annotations

import click

from craftcore.cli.base import CommandGroup, OperatorCommand
from craftcore.cli.confirm import ids_or_all
from craftcore.cli.exit_codes import NO_SUCH, OF_A_LIST, PROBLEM
from craftcore.cli.lookup import resolve_id
from craftcore.cli.session import Session
from craftcore.cli.trigger.view import print_triggers, requeued_text, say_done, tasks_of
from craftcore.operations import triggers
from craftcore.storage.damaged_rows import Damaged
from craftcore.storage.transaction import Reader
from craftcore.triggers.damaged_store import DamagedTriggerStore
from craftcore.triggers.listing_store import TriggerLists
from craftcore.triggers.model import Trigger


@click.group(cls=CommandGroup)
def dead() -> None:
    """Dead letters: list, requeue, discard."""


@dead.command(
    "list",
    exits=OF_A_LIST,
    examples=("craftcore dead list", "craftcore dead list --limit 5 --json"),
    see=("craftcore trigger show", "craftcore dead requeue", "docs/reference/error-codes.md"),
)
@click.option("--limit", type=click.IntRange(1, 100_000), default=50, show_default=True, help="How many at most.")
@click.pass_obj
def list_(session: Session, /, limit: int) -> int:
    """List the dead letters, newest first.

    Triggers whose attempts are spent. They wait here for a person, until retention takes them after 30 days.
    """
    with session.core().reading() as reader:
        found = TriggerLists().list_dead(reader, limit)
        return print_triggers(session, reader, found)


@dead.command(
    "requeue",
    cls=OperatorCommand,
    exits={PROBLEM: "one cannot have another life, as when its dedup key is taken by now; none was", NO_SUCH: None},
    examples=("craftcore dead requeue 01a1fdfa", "craftcore dead requeue --all --yes"),
    see=("craftcore dead list", "craftcore trigger requeue", "docs/reference/error-codes.md"),
)
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every dead letter, instead of IDs.")
@click.option("--yes", is_flag=True, help="Do not ask about --all; needed without a terminal.")
@click.pass_obj
def requeue(session: Session, /, ids: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Give dead letters another life, due now, with all attempts.

    A task that failed with one goes on; what its turn completed is not done again.
    """
    ids_or_all(ids, everything, yes, "run every dead letter again")
    core = session.core()
    with session.write(core) as (tx, scope):
        done = triggers.requeue(tx, scope, core, _choose_ids(tx, ids, everything))
        tasks = tasks_of(tx, done)
    say_done(session, done, lambda row: requeued_text(row, tasks))


@dead.command(
    "discard",
    cls=OperatorCommand,
    exits={PROBLEM: "one of them is neither DEAD nor FAILED, or was discarded before; none was", NO_SUCH: None},
    examples=("craftcore dead discard 01a1fdfa", "craftcore dead discard --all --yes"),
    see=("craftcore dead list", "craftcore execution skip", "docs/reference/error-codes.md"),
)
@click.argument("ids", metavar="[ID...]", nargs=-1)
@click.option("--all", "everything", is_flag=True, help="Every dead letter, instead of IDs.")
@click.option("--yes", is_flag=True, help="Do not ask about --all; needed without a terminal.")
@click.pass_obj
def discard(session: Session, /, ids: tuple[str, ...], everything: bool, yes: bool) -> None:
    """Take dead letters off the list; they stay readable as FAILED.

    A FAILED trigger can be discarded by its id, too: then `craftcore status` does not name it any more. `craftcore
    trigger requeue` can still give them another life, until retention removes their payload. A dead letter whose row
    is damaged can be discarded, and not requeued.
    """
    ids_or_all(ids, everything, yes, "discard every dead letter")
    core = session.core()
    with session.write(core) as (tx, scope):
        chosen = triggers.dead_letters(tx, with_damaged=True) if everything else [_find_letter(tx, id) for id in ids]
        done = triggers.discard(tx, scope, core, dict.fromkeys(chosen))
    say_done(session, done, format_discarded)


def format_discarded(row: Trigger | Damaged) -> str:
    if isinstance(row, Damaged):
        return f"is discarded, and stays damaged: {row.wrong}"
    return f"is discarded, and stays readable as {row.status}"


def _find_letter(reader: Reader, given: str) -> str:
    """Return the id that is meant; of a damaged dead letter, the id as lists show it."""
    return given if DamagedTriggerStore().find(reader, given) else resolve_id(reader, given)


def _choose_ids(reader: Reader, ids: tuple[str, ...], everything: bool) -> list[str]:
    if everything:
        return triggers.dead_letters(reader)
    return [resolve_id(reader, given) for given in dict.fromkeys(ids)]
