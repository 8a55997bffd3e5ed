"""Lists of which a row is damaged: all that is whole is shown, and the damaged one is named.

in its place   its id and what is wrong with it; with --json {"id", "damaged"}
at the end     a line on stderr for each, and exit code 65
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from craftcore.cli.output import document_text
from craftcore.cli.session import Session
from craftcore.cli.short_ids import ID_DIGITS, shorten_cells
from craftcore.errors import RowInvalid
from craftcore.storage.damaged_rows import Damaged, damaged_document, try_read

Entry = TypeVar("Entry")
Words = TypeVar("Words")

NAMED = 20


def print_list(
    session: Session,
    columns: Sequence[str],
    found: Sequence[Entry | Damaged],
    *,
    document_of: Callable[[Entry], dict[str, Any]],
    cells: Callable[[Entry], Sequence[object]],
    key: str = "id",
    beside: Iterable[object] = (),
    digits: int = ID_DIGITS,
) -> int:
    """Print a table, or an array. Return the exit code. `key`: the attribute that names an entry. `beside`: related
    rows, some of them perhaps damaged. `digits`: of the ids in the table."""
    damaged = [one for one in beside if isinstance(one, Damaged)]
    entries: list[Any] = []
    for one in found:
        entry = (
            one
            if isinstance(one, Damaged)
            else _read_words(one, document_of if session.json else cells, key, session.json)
        )
        if isinstance(entry, Damaged):
            damaged.append(entry)
            entry = damaged_document(entry) if session.json else _damaged_row(entry, len(columns))
        elif not session.json:
            entry = shorten_cells(list(entry), digits)
        entries.append(entry)
    if session.json:
        session.out.document(entries)
    else:
        session.out.table(columns, entries)
    return say_damaged(session, damaged)


def say_damaged(session: Session, damaged: Sequence[Damaged]) -> int:
    """Name what of a list is damaged, after it; the exit code."""
    for one in damaged[:NAMED]:
        session.out.print_problem(f"{session.path}: a damaged row cannot be shown: {one.id}: {one.wrong}")
    if len(damaged) > NAMED:
        session.out.print_problem(f"{session.path}: and {len(damaged) - NAMED:,} more")
    if damaged:
        session.out.print_problem("A daemon that comes to a damaged row sets it aside; a backup may have it whole")
    return RowInvalid.exit_code if damaged else 0


def _damaged_row(one: Damaged, columns: int) -> Sequence[object]:
    return one.id, *[None] * (columns - 2), f"damaged: {one.wrong}"


def _read_words(entry: Entry, tell: Callable[[Entry], Words], key: str, as_json: bool) -> Words | Damaged:
    """Return the words of an entry. Some damage shows only here: a word where a moment should be, an infinite number in
    JSON."""

    def words() -> Words:
        found = tell(entry)
        if as_json:
            document_text(found)
        return found

    return try_read(getattr(entry, key), words)
