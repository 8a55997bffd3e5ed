"""The trigger of an attempt as a workflow sees it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from craftcore.executions.model import execution_id
from craftcore.triggers.model import Claim
from craftcore.triggers.overdue import moment_due, overdue_note, overdue_seconds


class Creator(NamedTuple):
    """The trigger that created a task, as all its turns see it."""

    payload_json: str
    description: str | None
    schedule_id: str | None
    nominal_at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerView:
    """The trigger that is being run: of a later turn, or after a wait, it is another one than that of the task.

    `description` is what the producer of the task wrote, never changed; a late trigger has `overdue_seconds` and a
    `note` beside it, else both are None. `schedule_id` and `nominal_at` tell for which occurrence of a schedule the
    task is; None when it is for none. `attempt` counts from 1, and `execution_id` is the record of this attempt.
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
    attempt: int
    execution_id: str

    @staticmethod
    def of(claim: Claim, creator: Creator | None, started_at: float, overdue_after: float) -> TriggerView:
        """Return the view of a started trigger, `creator` being that of its task when it is another.

        Raises OverflowError, ValueError or OSError when `due_at` is not a moment.
        """
        of_task: Claim | Creator = claim if creator is None else creator
        due_at, nominal_at = moment_due(claim), of_task.nominal_at
        late = overdue_seconds(due_at, started_at, overdue_after)
        return TriggerView(
            id=claim.id,
            source=claim.source,
            session_id=claim.session_id,
            description=of_task.description,
            due_at=datetime.fromtimestamp(due_at, UTC),
            schedule_id=of_task.schedule_id,
            nominal_at=None if nominal_at is None else datetime.fromtimestamp(nominal_at, UTC),
            overdue_seconds=late,
            note=None if late is None else overdue_note(due_at, late),
            attempt=claim.attempts,
            execution_id=execution_id(claim.id, claim.starts),
        )
