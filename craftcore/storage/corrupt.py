"""Rows that a bad disk or a foreign hand changed: what of them is text, and what they say all the same.

Their texts are read as bytes (`CAST(name AS BLOB)`), which can always be read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from craftcore.storage.transaction import Reader, Row


def no_text(row: Row) -> str | None:
    """Which of its texts is none; None when all are."""
    for name, value in row.items():
        try:
            if isinstance(value, bytes):
                value.decode()
        except UnicodeDecodeError:
            return f"{name} is not UTF-8: {value!r:.200}"
    return None


def no_model(tx: Reader, sql: str, row: Row, model: Callable[[Row], object]) -> str | None:
    """Why a row that is text all over is none of ours; None when it is. `sql` reads the whole of it, by `:seq`."""
    whole = tx.one(sql, seq=row["seq"])
    assert whole is not None, row
    try:
        model(whole)
    except (ValueError, TypeError) as error:
        return f"{error!s:.300}"
    return None


def readable(row: Row) -> dict[str, Any]:
    """Its texts, bad bytes as escapes."""
    return {name: told(value) for name, value in row.items() if isinstance(value, bytes) or value is None}


def told(value: bytes | None) -> str | None:
    """A text, bad bytes as escapes."""
    return None if value is None else value.decode(errors="backslashreplace")


def legible(value: Any) -> Any:
    """The same of a value that is one of those, or of another kind and stays as it is."""
    return told(value) if isinstance(value, bytes) else value
