"""Stored texts and sizes, prepared for a reader."""

from __future__ import annotations

import json
from typing import Any


def json_or_text(text: str | None) -> Any:
    """Return what a column of JSON says; a row that was damaged is shown as it is."""
    try:
        return None if text is None else json.loads(text)
    except (ValueError, RecursionError):
        return text


def shorten(text: str, keep: int) -> str:
    """Return both ends of a long text, `keep` characters in all, with a mark between: errors are often at the end."""
    if len(text) <= keep:
        return text
    head, tail = keep - keep // 2, keep // 2
    return f"{text[:head]}[... {len(text) - keep} characters cut ...]{text[len(text) - tail :]}"


def format_bytes(count: int) -> str:
    """Return `512 B`, `4.1 MB`."""
    for unit, many in (("B", 1), ("kB", 1e3), ("MB", 1e6), ("GB", 1e9), ("TB", 1e12)):
        if count < 1000 * many or unit == "TB":
            break
    return f"{count} B" if unit == "B" else f"{count / many:.1f} {unit}"
