"""What user code says of itself, as it can be stored: it may be endless, no text at all, or fail to be said."""

from __future__ import annotations

MESSAGE_LIMIT = 2_000
"""Characters of an error message that are kept."""


def message_of(error: BaseException) -> str:
    """The error's own words, or the name of its type."""
    try:
        text = str(error)
    except BaseException:  # somebody's __str__ is broken, too
        text = ""
    return bounded(text or type(error).__name__, MESSAGE_LIMIT)


def bounded(text: str, limit: int) -> str:
    """Text as it can be stored: no half characters, not too long."""
    kept = text[: limit + 1].encode(errors="replace").decode()
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def shown(value: object) -> str:
    """The repr of anything, or the name of its type."""
    try:
        return bounded(repr(value), MESSAGE_LIMIT)
    except BaseException:  # somebody's __repr__ is broken, or it is too deep for it
        return f"<{type(value).__name__}>"
