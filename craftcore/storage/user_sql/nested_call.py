"""The transaction whose function runs now, so that a call in it is refused that would wait for it for ever."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from craftcore.errors import InvalidInput

_RUNNING: ContextVar[Path | None] = ContextVar("craftcore_user_transaction", default=None)
"""The file of that transaction. The calls that its function makes see it, also those that it sends to an event loop."""


@contextmanager
def function_running(path: Path) -> Iterator[None]:
    """Note in this block that a user function holds the write lock of the file."""
    token = _RUNNING.set(path)
    try:
        yield
    finally:
        _RUNNING.reset(token)


def refuse_nested(path: Path) -> None:
    """Raise InvalidInput for a transaction on the file whose write lock the caller holds already."""
    if _RUNNING.get() == path:
        raise InvalidInput(
            "the function of a transaction writes by its tx only: another call on the same file would wait for the "
            "end of this one. Make it before or afterwards. Nothing was written"
        )
