"""One attempt on its way from start to settle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import anyio

from craftcore.executions.recorder import Record, Routed
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Outcome

Why = Literal["cancelled", "shutdown"]


class Run:
    """A started trigger, its open record, and the handle to stop it."""

    __slots__ = ("_scope", "claim", "lane", "on_shutdown", "outcome", "record", "routed", "stopped_by")

    def __init__(self, claim: Claim, record: Record, routed: Routed | None) -> None:
        self.claim = claim
        self.record = record
        self.routed = routed
        self.lane = claim.lane
        self.outcome: Outcome | None = None
        self.stopped_by: Why | None = None
        self.on_shutdown: Callable[[], None] | None = None
        """Called at a shutdown, also when the run was stopped for another reason before."""
        self._scope: anyio.CancelScope | None = None

    def enter(self, scope: anyio.CancelScope) -> None:
        """User code runs in this scope from now on."""
        self._scope = scope
        if self.stopped_by is not None:
            scope.cancel()

    def stop(self, why: Why) -> None:
        """Cancel the user code at its next await. The first reason given is the one that counts."""
        if self.stopped_by is None:
            self.stopped_by = why
            if self._scope is not None:
                self._scope.cancel()
        if why == "shutdown" and self.on_shutdown is not None:
            self.on_shutdown()
