"""The part of a turn that runs: a function of a step or an action, or the turn's own code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Part:
    """One run of the function of a step or an action. `identity`: of the step or action, the same at each run.

    begun  the streams that this run has written to
    cut    those of them from which it withdrew what an earlier run had written
    """

    __slots__ = ("begun", "cut", "identity")

    def __init__(self, identity: str) -> None:
        self.identity = identity
        self.begun: set[str] = set()
        self.cut: set[str] = set()


_RUNNING: ContextVar[Part | None] = ContextVar("running_part", default=None)


@contextmanager
def run_part(identity: str) -> Iterator[Part]:
    """Mark the block in which the function of a step or of an action runs, with its tasks and threads."""
    part = Part(identity)
    token = _RUNNING.set(part)
    try:
        yield part
    finally:
        _RUNNING.reset(token)


def get_running_part() -> Part | None:
    """Return the part whose code calls this; None: the turn's own code."""
    return _RUNNING.get()
