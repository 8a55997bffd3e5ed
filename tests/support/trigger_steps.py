"""Single steps of a claim, each in its own transaction, in the order of an engine of one epoch."""

from __future__ import annotations

from typing import Any

from craftcore.storage.transaction import get_single_result
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_service import Started
from craftcore.triggers.model import Claim, Emitted, Trigger
from craftcore.triggers.settlement import Failed, Outcome, Settlement, Succeeded
from tests.support.fakes import VirtualCore, a_trigger

BROKEN = Failed(code="AGENT_ERROR", message="it broke", retryable=True)
HOPELESS = Failed(code="VALIDATION_ERROR", message="it never will", retryable=False)


def emit(core: VirtualCore, **changes: Any) -> Emitted:
    return core.do(core.triggers.emit, a_trigger(**changes))


def look(core: VirtualCore, trigger_id: str) -> Trigger:
    return core.do(core.triggers.get, trigger_id)


def claim_all(core: VirtualCore, *, epoch: int = 1, limit: int = 100, **how: Any) -> list[Claim]:
    """Claim all due triggers, and return the claims by their rank."""
    claims = core.do(core.claims.claim, epoch=epoch, limit=limit, **how).claims
    return sorted(claims, key=core.claims.rank)


def claim_one(core: VirtualCore, *, epoch: int = 1) -> Claim:
    [claim] = claim_all(core, epoch=epoch)
    return claim


def start(core: VirtualCore, claim: Claim, *, alone: bool = False) -> Claim:
    """Start the attempt of a claim. Raises the refusal, whose changes stay in the database."""
    answers: list[Started | Exception] = core.do(core.claims.start_all, [claim], alone=alone)
    return get_single_result(answers).claim


def start_one(core: VirtualCore, *, epoch: int = 1, alone: bool = False) -> Claim:
    return start(core, claim_one(core, epoch=epoch), alone=alone)


def ack(core: VirtualCore, claim: Claim, outcome: Outcome, policy: RetryPolicy | None = None) -> Settlement:
    return core.do(core.claims.settle, claim, outcome, policy or RetryPolicy())


def run_one(core: VirtualCore, outcome: Outcome | None = None, policy: RetryPolicy | None = None) -> Settlement:
    """Claim, start and settle the only due trigger."""
    return ack(core, start_one(core), outcome or Succeeded(), policy)
