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
from craftcore.storage.damaged_rows import Damaged, list_damaged, map_rows, row_document

Entry = TypeVar("Entry")

NAMED = 20


def print_list(
    session: Session,
    columns: Sequence[str],
    found: Sequence[Entry | Damaged],
    *,
    document_of: Callable[[Entry], dict[str, Any]],
    cells: Callable[[Entry], Sequence[object]],
    beside: Iterable[object] = (),
    digits: int = ID_DIGITS,
) -> int:
    """Print a table, or an array. Return the exit code. `beside`: related rows, some of them perhaps damaged. `digits`:
    of the ids in the table."""
    shown: list[Any]
    if session.json:
        shown = map_rows(found, lambda one: _require_json(document_of(one)))
        session.out.document([row_document(one, dict) for one in shown])
    else:
        shown = map_rows(found, lambda one: shorten_cells(cells(one), digits))
        session.out.table(columns, [_damaged_cells(one, len(columns)) for one in shown])
    return say_damaged(session, list_damaged([*beside, *shown]))


def say_damaged(session: Session, damaged: Sequence[Damaged]) -> int:
    """Name what of a list is damaged, after it; the exit code."""
    for one in damaged[:NAMED]:
        session.out.print_problem(f"{session.path}: a damaged row cannot be shown: {one.id}: {one.wrong}")
    if len(damaged) > NAMED:
        session.out.print_problem(f"{session.path}: and {len(damaged) - NAMED:,} more")
    if damaged:
        session.out.print_problem("A daemon that comes to a damaged row sets it aside; a backup may have it whole")
    return RowInvalid.exit_code if damaged else 0


def _damaged_cells(one: Any, columns: int) -> Sequence[object]:
    """Return the cells of a row; of a damaged one, its id and what is wrong with it."""
    return (one.id, *[None] * (columns - 2), f"damaged: {one.wrong}") if isinstance(one, Damaged) else one


def _require_json(document: dict[str, Any]) -> dict[str, Any]:
    """Return a document that can be printed. Some damage shows only here, such as an infinite number."""
    document_text(document)
    return document
