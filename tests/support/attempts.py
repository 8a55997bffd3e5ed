"""Single steps of an attempt: emit, start with its record, and settle as the test specifies."""

from __future__ import annotations

from typing import Any, NamedTuple

from craftcore.executions.recorder import AttemptInfo, Record, Recorder, Routed
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Outcome, Settlement
from tests.support.fakes import VirtualCore
from tests.support.trigger_steps import ack, emit, start_one

RECORDER = Recorder()


class StartedAttempt(NamedTuple):
    """A started attempt with its open record."""

    claim: Claim
    record: Record

    @property
    def id(self) -> str:
        return self.record.id


def begin(core: VirtualCore, **spec: Any) -> StartedAttempt:
    """Emit a trigger and start it: no other trigger may be due."""
    emit(core, **spec)
    return start_due(core)


def start_due(core: VirtualCore, *, epoch: int = 1) -> StartedAttempt:
    """Start the only trigger that is due."""
    claim = start_one(core, epoch=epoch)
    routed = Routed(claim.workflow or "greet", "explicit workflow")
    [record] = core.do(RECORDER.open_all, epoch, [AttemptInfo(claim, routed)])
    return StartedAttempt(claim, record)


def end(core: VirtualCore, begun: StartedAttempt, outcome: Outcome, policy: RetryPolicy | None = None) -> Settlement:
    """Settle the attempt, and close its record."""
    core.do(RECORDER.close_all, [(begun.record, outcome)])
    return ack(core, begun.claim, outcome, policy)


def boot(core: VirtualCore, epoch: int = 2) -> None:
    """Start a later daemon: the attempts of earlier ones count as crashed."""
    core.do(core.claims.reclaim, epoch)
