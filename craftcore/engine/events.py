"""Events of the engine's loops: for the engine, which implements `EngineEvents`, and for an observer that counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import Settled
from craftcore.schedules.tick_service import Ticked
from craftcore.triggers.model import Claim


class EngineEvents(Protocol):
    """Listener of all loops: the engine. Each method is called on the loop's thread, after the commit."""

    def on_claimed(self) -> None:
        """Handle new claims in the window."""

    def on_cancel_requests(self, seqs: list[int]) -> None:
        """Handle triggers that are to be cancelled while they run."""

    def on_due(self, due_at: float) -> None:
        """Handle a trigger that will be due at a moment."""

    def on_ticked(self, ticked: Ticked) -> None:
        """Handle a tick of the scheduler."""

    def on_start_refused(self, claim: Claim) -> None:
        """Handle a claim that lost its trigger before it was started."""

    def on_start_failed(self, claim: Claim) -> None:
        """Handle a claim whose trigger failed because it could not be started."""

    def on_emit_refused(self) -> None:
        """Handle an emit that was to start its trigger, and wrote nothing."""

    def crash(self, why: str, cause: BaseException) -> None:
        """End the engine after an error of craftcore."""

    def on_settled(self, attempt: Attempt, answer: Settled | Exception) -> None:
        """Handle the end of an attempt."""

    def on_changed(self) -> None:
        """Handle a commit of the client that may concern triggers and schedules."""

    @property
    def held_claims(self) -> Sequence[Claim]:
        """Every claim that the engine holds."""

    @property
    def running_claims(self) -> Sequence[Claim]:
        """The claims that have started and are not settled."""


class Observer(Protocol):
    """A counter of events. It learns of each one once it is on disk, on the loop's thread. Nothing waits for it, and it
    raises nothing."""

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
