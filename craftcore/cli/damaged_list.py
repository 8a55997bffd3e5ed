"""Lists of which a row is damaged: all that is whole is shown, and the damaged one is named.

in its place   its id and what is wrong with it; with --json {"id", "damaged"}
at the end     a line on stderr for each, and exit code 65
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Generic, TypeVar

from craftcore.cli.output import document_text
from craftcore.cli.session import Session
from craftcore.cli.short_ids import ID_DIGITS, shorten_cells
from craftcore.errors import RowInvalid
from craftcore.storage.damaged_rows import Damaged, list_damaged, map_rows, row_document

Entry = TypeVar("Entry")

NAMED = 20


@dataclass(frozen=True, slots=True)
class RowList(Generic[Entry]):
    """A list to print, as a table or as an array. `beside`: related rows, some of them perhaps damaged. `digits`: those
    of ids in the table; None: they are whole."""

    columns: Sequence[str]
    found: Sequence[Entry | Damaged]
    _: KW_ONLY
    document_of: Callable[[Entry], dict[str, Any]]
    cells: Callable[[Entry], Sequence[object]]
    beside: Iterable[object] = ()
    digits: int | None = ID_DIGITS


def print_list(session: Session, rows: RowList[Any]) -> int:
    """Print a list. Return the exit code."""
    if session.json:
        documents = map_rows(rows.found, lambda one: _require_json(rows.document_of(one)))
        session.out.document([row_document(one, dict) for one in documents])
        return say_damaged(session, list_damaged([*rows.beside, *documents]))
    shown = map_rows(rows.found, lambda one: _shorten(rows.cells(one), rows.digits))
    session.out.table(rows.columns, [_damaged_cells(one, len(rows.columns)) for one in shown])
    return say_damaged(session, list_damaged([*rows.beside, *shown]))


def _shorten(cells: Sequence[object], digits: int | None) -> Sequence[object]:
    return cells if digits is None else shorten_cells(cells, digits)


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
