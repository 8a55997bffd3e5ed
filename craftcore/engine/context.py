"""What a workflow that asks for `ctx` is given."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from craftcore.triggers.model import Claim
from craftcore.triggers.overdue import due_moment, overdue_note, overdue_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerView:
    """The trigger that is being run.

    `id` is the same in every attempt: use it as the request id towards others. `description` is what the producer
    wrote, never changed; a late trigger has `overdue_seconds` and a `note` beside it, else both are None.
    `schedule_id` and `nominal_at` tell which occurrence of a schedule it is for; None when it is for none.
    """

    id: str
    source: str
    session_id: str | None
    description: str | None
    due_at: datetime
    schedule_id: str | None
    nominal_at: datetime | None
    overdue_seconds: float | None
    note: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """First argument of a workflow declared as `async def f(ctx, ...)`. `attempt` counts from 1."""

    trigger: TriggerView
    attempt: int
    execution_id: str

    @staticmethod
    def of(claim: Claim, execution_id: str, started_at: float, overdue_after: float) -> TaskContext:
        """The context of one attempt."""
        due_at, nominal_at = due_moment(claim), claim.nominal_at
        late = overdue_seconds(due_at, started_at, overdue_after)
        return TaskContext(
            trigger=TriggerView(
                id=claim.id,
                source=claim.source,
                session_id=claim.session_id,
                description=claim.description,
                due_at=datetime.fromtimestamp(due_at, UTC),
                schedule_id=claim.schedule_id,
                nominal_at=None if nominal_at is None else datetime.fromtimestamp(nominal_at, UTC),
                overdue_seconds=late,
                note=None if late is None else overdue_note(due_at, late),
            ),
            attempt=claim.attempts,
            execution_id=execution_id,
        )
