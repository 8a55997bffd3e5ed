"""Addresses of the page with another part of their query."""

from __future__ import annotations

from urllib.parse import urlencode

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
