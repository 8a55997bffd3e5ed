"""The log lines of the engine: holds that begin and end, and attempts that end."""

from __future__ import annotations

from typing import Any

from craftcore.clock import utc_iso
from craftcore.engine.attempt import Attempt
from craftcore.log import get_logger
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import EXPECTED, Failed, Outcome, SettleFacts
from craftcore.triggers.start_holds import StartHolds

log = get_logger(__name__)


def log_hold_changes(before: StartHolds, after: StartHolds) -> None:
    """Log which holds stand that did not before, and which were released."""
    if after.everything is not None and after.everything != before.everything:
        log.warning("engine.held", reason=after.everything)
    elif before.everything is not None and after.everything is None:
        log.warning("engine.released")
    if after.safe_mode != before.safe_mode:
        log.warning("engine.safe_mode", reason=after.safe_mode or "released")
    for target in before.targets.keys() ^ after.targets.keys():
        log.warning("engine.hold", target=str(target), reason=after.targets.get(target, "released"))


def log_settled(attempt: Attempt, move: SettleFacts, logs_successes: bool) -> None:
    """Log a settle. A plain success only when that is asked for: its record says it, and a line each costs more than
    the work."""
    if move.status == TriggerStatus.DONE:
        if logs_successes:
            log.info("trigger.done", **_subject(attempt), attempt=attempt.claim.attempts, reason=move.reason)
        return
    if move.gives_back:
        log.info("trigger.released", trigger=attempt.claim.id, reason=move.reason, not_before=utc_iso(move.not_before))
        return
    facts = {
        **_subject(attempt),
        "attempt": attempt.claim.attempts,
        "status": move.status,
        "reason": move.reason,
        "error": move.error_message,
        "not_before": utc_iso(move.not_before),
        **_exception_fields(attempt.outcome),
    }
    if move.reason == EXPECTED:
        log.info("trigger.settled", **facts)
    else:
        log.warning("trigger.retried" if move.status == TriggerStatus.PENDING else "trigger.settled", **facts)


def _subject(attempt: Attempt) -> dict[str, Any]:
    """Return the trigger, its workflow, and its schedule where it has one."""
    workflow = attempt.claim.workflow if attempt.routed is None else attempt.routed.workflow
    schedule = {} if attempt.claim.schedule_id is None else {"schedule": attempt.claim.schedule_id}
    return {"trigger": attempt.claim.id, "workflow": workflow, **schedule}


def _exception_fields(outcome: Outcome | None) -> dict[str, Any]:
    """Return the type of an exception of user code, and where it was raised."""
    details = outcome.details if isinstance(outcome, Failed) else {}
    return {name: details[name] for name in ("exception_type", "where") if name in details}
