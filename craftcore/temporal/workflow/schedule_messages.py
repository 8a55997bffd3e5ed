"""The values that pass between a schedule's workflow, its rules and its clients. Moments are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from craftcore.temporal.workflow.messages import TaskStart

SCHEDULE_WORKFLOW = "craftcore.schedule"
SCHEDULE_ACTIVITY = "craftcore.schedule.move"

ACCOUNT_MAX = 200
"""Lines that an account keeps, beside those that wait."""


@dataclass(frozen=True, kw_only=True)
class ScheduleCall:
    """A call of a schedule: `tick`, `declare`, `undeclare`, or what a person does, by its name.

    `revision` is of the declaration. One that is older than what the schedule has changes nothing. `by` and `note` are
    for the history: who, and why.
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
    """All that a schedule carries from run to run. `row` and `lines` have the columns of the tables of a database."""

    row: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    """The account, oldest first: its last lines, and all that waits."""
    running: dict[str, str] = field(default_factory=dict)
    """The tasks that have not ended, by the ids of their workflows."""
    revision: float = 0.0
    lines_made: int = 0
    error: str | None = None
    """Why its last tick, or its first declaration, did nothing; it is tried again. None: nothing is wrong."""


@dataclass(frozen=True, kw_only=True)
class Started:
    """A task to be started for an occurrence. `seq`: its line of the account."""

    workflow_id: str
    seq: int
    start: TaskStart


@dataclass(frozen=True, kw_only=True)
class ScheduleMove:
    """The decision of the rules. `lines`: those that are new or changed. `placed`: what became of each occurrence that
    a person asked for. `over`: workflows that run no more.
    `error`: why nothing was done; its class is `error_name`. `next_at` None: nothing is awaited."""

    row: dict[str, Any] | None = None
    lines: list[dict[str, Any]] = field(default_factory=list)
    lines_made: int = 0
    started: list[Started] = field(default_factory=list)
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
    """The answer to a call. `lines`: the lines of the account that it wrote, as they are after it. `change`: what a
    declaration did. `moment`: the moment that is skipped; None for other calls. `placed`: what became of each
    occurrence of a run-now or a backfill, with the fields of FiringResult."""

    book: ScheduleBook
    lines: list[dict[str, Any]]
    change: str = ""
    moment: float | None = None
    placed: list[dict[str, Any]] = field(default_factory=list)
