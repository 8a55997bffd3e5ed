"""The observer of the engine: it learns of each event once it is on disk. It only counts: nothing waits for it, and it
raises nothing.

All of it is called on the loop's thread.
"""

from __future__ import annotations

from typing import Protocol

from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import Settled
from craftcore.schedules.tick_service import Ticked


class Observer(Protocol):
    """The events that a counter receives."""

    def on_booted(self) -> None:
        """Count a boot: the claims of earlier daemons were taken back."""

    def on_settled(self, attempt: Attempt, answer: Settled | Exception) -> None:
        """Count a settled attempt, or one whose settle was refused."""

    def on_ticked(self, ticked: Ticked) -> None:
        """Count a tick of the schedules."""

    def on_flushed(self, items: int, seconds: float) -> None:
        """Count a commit: the number of its items, and the seconds of its flush."""


class Unobserved:
    """An observer that counts nothing."""

    def on_booted(self) -> None:
        return

    def on_settled(self, attempt: Attempt, answer: Settled | Exception) -> None:
        return

    def on_ticked(self, ticked: Ticked) -> None:
        return

    def on_flushed(self, items: int, seconds: float) -> None:
        return
