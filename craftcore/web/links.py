"""The query of an address: its filters, and the links to other rows of a list."""

from __future__ import annotations

from enum import StrEnum
from typing import Any
from urllib.parse import urlencode

from craftcore.errors import FilterInvalid
from craftcore.storage.row_spans import RowSpan
from craftcore.web.visit import Visit

OF_ONE_ANSWER = "done"
"""The part of a query that names a notice, which is shown once."""


def change_query(visit: Visit, **changes: str | int | float | None) -> str:
    """Return the address of this page with these parts of its query changed; None takes a part away."""
    kept = {name: value for name, value in visit.query.items() if name != OF_ONE_ANSWER and value != ""}
    parts = {name: value for name, value in {**kept, **changes}.items() if value is not None}
    return f"{visit.address}?{urlencode(parts)}" if parts else visit.address


def read_filter(visit: Visit, name: str) -> str | None:
    """Return a part of the query without spaces around it; None when it is empty."""
    return visit.query.get(name, "").strip() or None


def read_number(visit: Visit, name: str) -> int | None:
    """Return a part of the query as the number of a row; None for any other text."""
    given = visit.query.get(name, "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 19 else None


def read_choice(visit: Visit, name: str, kind: type[StrEnum]) -> str | None:
    """Return a part of the query that is one of a kind, in any case; None when it is empty. Raises FilterInvalid."""
    given = read_filter(visit, name)
    if given is None:
        return None
    try:
        return kind(given.upper())
    except ValueError:
        raise FilterInvalid(f"{name} {given!r:.80} is unknown; it must be one of {', '.join(kind)}") from None


def list_links(visit: Visit, span: RowSpan | None, before: int | None, last: int | None) -> dict[str, Any]:
    """Return what a list says below its rows.

    span     the rows that a filter looked at; None: there was no filter
    before   the number that the query gives
    last     the number of the last shown row when older ones match; None: no more are known
    """
    further = None if span is None or last is not None else span.next_before
    return {
        "span": span,
        "is_first": before is None,
        "older": None if last is None else change_query(visit, before=last),
        "further": None if further is None else change_query(visit, before=further),
    }
