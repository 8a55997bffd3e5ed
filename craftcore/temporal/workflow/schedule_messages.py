"""The values that pass between a schedule's workflow, its rules and its clients. Moments are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from craftcore.temporal.workflow.messages import TaskStart

SCHEDULE_WORKFLOW = "craftcore.schedule"
SCHEDULE_ACTIVITY = "craftcore.schedule.move"

ACCOUNT_MAX = 200
"""Lines that the account of a schedule keeps, besides those of occurrences that wait."""


@dataclass(frozen=True, kw_only=True)
class ScheduleCall:
    """A call of a schedule.

    kind      tick, declare, undeclare, or the command of a person: pause, resume, run-now, skip-next, backfill
    spec      the fields of the ScheduleSpec that is declared
    origin    the Origin of that declaration
    revision  its revision: a declaration that is older than that of the schedule changes nothing
    reason    why the schedule is paused
    since     where a backfill begins
    until     where it ends
    by        who calls, for the history
    note      why, for the history
    """

    kind: str
    spec: dict[str, Any] | None = None
    origin: str = "code"
    revision: float = 0.0
    reason: str = ""
    since: float = 0.0
    until: float = 0.0
    by: str = ""
    note: str = ""


@dataclass(kw_only=True)
class ScheduleBook:
    """The state of a schedule, which its workflow carries from run to run.

    `row` and `lines` have the columns of the tables of a database: the schedule, and its occurrences.
    """

    row: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The account of the schedule, oldest first: its last occurrences, and all that wait."""
    running: dict[str, str] = field(default_factory=dict)
    """The tasks that have not ended, by the ids of their workflows."""
    revision: float = 0.0
    lines_made: int = 0
    error: str | None = None
    """Why the last tick, or the first declaration, was refused; it is tried again. None: it was not refused."""


@dataclass(frozen=True, kw_only=True)
class OccurrenceStart:
    """A task to be started for an occurrence. `seq`: the line of the account that has the occurrence."""

    workflow_id: str
    seq: int
    start: TaskStart


@dataclass(frozen=True, kw_only=True)
class ScheduleMove:
    """The decision of the rules about a call.

    row         the row of the schedule after the call
    lines       the lines of the account that are new or changed
    lines_made  how many lines the schedule has made so far
    started     the tasks to be started
    over        the workflows of tasks that have ended
    next_at     when the schedule fires next; None: at no known moment
    revision    the revision of the declaration in force
    change      what a declaration did
    moment      the moment that is skipped; None for other calls
    placed      what became of each occurrence of a run-now or a backfill, with the fields of FiringResult
    error_name  the class of the refusal; None: the call was not refused
    error       why it was refused
    """

    row: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    lines_made: int = 0
    started: list[OccurrenceStart] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    next_at: float | None = None
    revision: float = 0.0
    change: str = ""
    moment: float | None = None
    placed: list[dict[str, Any]] = field(default_factory=list)
    error_name: str | None = None
    error: str = ""


@dataclass(frozen=True, kw_only=True)
class ScheduleAnswer:
    """The answer to a call, after its tasks were started.

    `lines`: the lines of the account that it wrote, as they are now. The other fields are those of ScheduleMove.
    """

    book: ScheduleBook
    lines: list[dict[str, Any]]
    change: str = ""
    moment: float | None = None
    placed: list[dict[str, Any]] = field(default_factory=list)
