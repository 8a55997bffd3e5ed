"""Operator actions on schedules, the clock, and what is held."""

from __future__ import annotations

from craftcore.operations import maintenance, schedules
from craftcore.operations.audit_scope import AuditScope
from craftcore.operations.seen import next_occurrence_text
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.triggers.start_holds import HoldTarget
from craftcore.web.actions.model import REASON, Form, OperatorAction, text_of
from craftcore.web.actions.subjects import find_held_clock, find_holds, find_schedule

PAUSED = "paused on the page"


def pause(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    schedules.pause(tx, scope, services, find_schedule(tx, id), text_of(form, "reason") or PAUSED)
    return "the schedule is paused"


def resume(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    _, skipped = schedules.resume(tx, scope, services, find_schedule(tx, id))
    missed = "" if skipped is None else f"; {format_count(skipped, 'occurrence')} skipped meanwhile"
    return f"the schedule fires again{missed}"


def run_now(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    placed, _ = schedules.run_now(tx, scope, services, id)
    return f"{placed.outcome}" if placed.reason is None else f"{placed.outcome}: {placed.reason}"


def skip_next(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    _, skips_at = schedules.skip_next(tx, scope, services, id)
    return f"the occurrence of {clock_time(skips_at)} is skipped"


def remove(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    _, cancelled, _ = schedules.remove(tx, scope, services, id)
    return f"the schedule is removed; {format_count(len(cancelled), 'trigger')} cancelled"


def reanchor(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    """Let a schedule that is ahead of the clock go on from now."""
    schedules.reanchor(tx, scope, services, [id])
    return "the schedule goes on from now"


def trust_clock(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    """Accept the wall clock."""
    schedules.trust_clock(tx, scope)
    return "the clock is trusted; schedules go on"


def release(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    """End every hold and safe mode."""
    reasons = maintenance.release(tx, scope, HoldTarget())
    return "released" if reasons else "nothing was held"


ACTIONS = (
    OperatorAction(
        name="schedule pause", path="/schedules/{id}/pause", back="/schedules/{id}", button="pause",
        says="Stop the schedule from firing until it is resumed.",
        run=pause, find=find_schedule, fields=(REASON,),
    ),
    OperatorAction(
        name="schedule resume", path="/schedules/{id}/resume", back="/schedules/{id}", button="resume",
        says="Let the schedule fire again, from now.",
        run=resume, find=find_schedule,
    ),
    OperatorAction(
        name="schedule run-now", path="/schedules/{id}/run", back="/schedules/{id}", button="run now",
        says="Fire the schedule once more, now.",
        run=run_now, find=find_schedule,
    ),
    OperatorAction(
        name="schedule skip-next", path="/schedules/{id}/skip", back="/schedules/{id}", button="skip next",
        says="Skip the next occurrence.",
        run=skip_next, find=find_schedule, state=next_occurrence_text,
    ),
    OperatorAction(
        name="schedule remove", path="/schedules/{id}/remove", back="/schedules", button="remove",
        says="Remove the schedule, and cancel its triggers that have not started.",
        run=remove, find=find_schedule, is_final=True,
    ),
    OperatorAction(
        name="schedule reanchor", path="/schedules/{id}/reanchor", back="/schedules/{id}", button="go on from now",
        says="Let a schedule that is ahead of the clock go on from now.",
        run=reanchor, find=find_schedule,
    ),
    OperatorAction(
        name="schedule trust-clock", path="/health/trust-clock", back="/health", button="trust the clock",
        says="Accept the clock of the machine, so that held schedules go on.",
        run=trust_clock, find=find_held_clock, is_final=True,
    ),
    OperatorAction(
        name="release", path="/health/release", back="/health", button="release",
        says="End every hold and safe mode: what waits starts.",
        run=release, find=find_holds, is_final=True,
    ),
)  # fmt: skip
