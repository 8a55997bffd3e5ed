"""Safe str() and repr() of user objects, truncated for storage.

Types are read from Python, not from the value: even its `__class__` may be a property of user code.
"""

from __future__ import annotations

from collections.abc import Awaitable
from traceback import clear_frames
from types import CoroutineType, TracebackType

MESSAGE_LIMIT = 2_000
"""Characters of an error message that are kept."""

_NAME = type.__dict__["__name__"]
_TRACEBACK = BaseException.__dict__["__traceback__"]


def safe_isinstance(value: object, kinds: type | tuple[type, ...]) -> bool:
    """Return `isinstance(value, type)`, for any value."""
    return issubclass(type(value), kinds)


def is_awaitable(value: object) -> bool:
    """Return whether a coroutine can await the value."""
    return safe_isinstance(value, (Awaitable, CoroutineType))


def release_frames(error: BaseException) -> None:
    """Clear the variables of the frames of an error: a kept error would keep them alive."""
    clear_frames(traceback_of(error))


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback; None when it was never raised."""
    raised: TracebackType | None = _TRACEBACK.__get__(error)
    return raised


def message_of(error: BaseException) -> str:
    """Return the error's own words, or the name of its type."""
    try:
        text = truncate_text(str(error), MESSAGE_LIMIT)
    except BaseException:  # somebody's __str__ is broken, too
        text = ""
    return text or type_name(error)


def type_name(value: object) -> str:
    """Return the name of the value's type, as Python knows it. A metaclass of user code may give another, or raise."""
    name: str = _NAME.__get__(type(value))
    return truncate_text(name, MESSAGE_LIMIT)


def truncate_text(text: str, limit: int) -> str:
    """Return text that can be stored: without half characters, and not too long."""
    kept = text[: limit + 1].encode(errors="replace").decode()
    return kept if len(kept) <= limit else kept[: limit - 1] + "…"


def safe_repr(value: object) -> str:
    """Return the repr of anything, or the name of its type."""
    try:
        return truncate_text(repr(value), MESSAGE_LIMIT)
    except BaseException:  # somebody's __repr__ is broken, or it is too deep for it
        return f"<{type_name(value)}>"


def is_text(text: str) -> bool:
    """Return whether UTF-8 can encode it: it has no lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
