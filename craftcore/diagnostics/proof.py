"""A reason, and the query that proves it.

A query runs as it is printed: anyone can paste it into an SQLite shell and check the reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why something is as it is. `code` is for programs, `text` for people, `query` proves it."""

    code: str
    text: str
    query: str


def show_query(sql: str, **given: Any) -> str:
    """Return the query with its values in it, for a person to paste. What is run is given its values as parameters."""
    return " ".join(re.sub(r":([a-z]+)", lambda match: _literal(given[match[1]]), sql).split())


def _literal(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else "NULL" if value is None else repr(value)
