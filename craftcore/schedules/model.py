"""Schedules: the declaration, the row, and the occurrences."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, TypedDict

from craftcore.schedules.recurrence.timing import Cron, Every, Once, Startup, Timing
from craftcore.serialization.arguments import Duration
from craftcore.triggers.model import TriggerSource

DAY = 86_400.0

Deliver = Literal["session"]


class CatchUp(StrEnum):
    """Which occurrences that were missed still fire: the latest, all (up to a limit), or none."""

    LATEST = "latest"
    ALL = "all"
    NONE = "none"


class Overlap(StrEnum):
    """The rule for an occurrence while the task of an earlier one has not ended: one waits, none waits, or they
    overlap."""

    BUFFER_ONE = "buffer_one"
    SKIP = "skip"
    ALLOW = "allow"


class Origin(StrEnum):
    """The origin of a schedule: `operator` for one of the command line, `api` for one that a program made."""

    CODE = "code"
    FILE = "file"
    OPERATOR = "operator"
    API = "api"

    @property
    def is_declared(self) -> bool:
        """True for those that each start of the daemon declares again."""
        return self in (Origin.CODE, Origin.FILE)


class ScheduleStatus(StrEnum):
    """ACTIVE -> PAUSED | DISABLED, and back; -> FINISHED; -> REMOVED."""

    ACTIVE = "ACTIVE"
    PAUSED = "PAUSED"
    DISABLED = "DISABLED"
    FINISHED = "FINISHED"
    REMOVED = "REMOVED"


class FireCause(StrEnum):
    """Why there was an occurrence."""

    TIME = "time"
    STARTUP = "startup"
    RUN_NOW = "run-now"
    BACKFILL = "backfill"


class Outcome(StrEnum):
    """The outcome of an occurrence. A buffered one fires, or is skipped, when the one before it is settled."""

    FIRED = "fired"
    BUFFERED = "buffered"
    SKIPPED = "skipped"


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSpec:
    """A declaration of a schedule. Checked as a whole by `accept`, before anything is written.

    when              an expression: `at 3pm`, `in 10m`, `every 2h`, `every monday at 9am`, `0 7 * * *`, `on startup`, …
    timezone          an IANA name; None: the machine's, as it is when the schedule is declared
    catch_up          which missed occurrences still fire, if not older than `catch_up_window`: the latest, all of them
                      (at most `catch_up_max`, `catch_up_spacing` apart), or none. A one-time schedule always fires
    overlap           what an occurrence does while the task of an earlier one has not ended
    jitter            each fires up to so much later, always the same for the same occurrence
    expires_after     a trigger not started within this time settles as stale; None: never
    start, until      no occurrence before, none after; None: no such bound
    max_runs          it is finished after this many; None: no limit
    source            the source of its triggers; with PROACTIVE and MEMORY the slot is part of their dedup key, too
    deliver           "session": each is a message to the live task of `session_id`, and there is no `workflow`. When
                      none is live, the workflow that takes the source begins one. None: each starts `workflow`
    The others are those of TriggerSpec. Durations are seconds or timedelta; moments aware datetimes or epoch seconds.
    """

    id: str
    when: str
    workflow: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    timezone: str | None = None
    catch_up: CatchUp | str = CatchUp.LATEST
    catch_up_window: Duration = DAY
    catch_up_max: int = 20
    catch_up_spacing: Duration = 5.0
    overlap: Overlap | str = Overlap.BUFFER_ONE
    jitter: Duration = 0.0
    expires_after: Duration | None = None
    start: datetime | float | None = None
    until: datetime | float | None = None
    max_runs: int | None = None
    session_id: str | None = None
    source: TriggerSource | str = TriggerSource.SCHEDULED
    deliver: Deliver | None = None
    priority: int | None = None
    description: str | None = None
    max_attempts: int | None = None


class ScheduleOptions(TypedDict, total=False):
    """The options of a schedule beside its id, time, workflow and payload: those of ScheduleSpec."""

    timezone: str | None
    catch_up: CatchUp | str
    catch_up_window: Duration
    catch_up_max: int
    catch_up_spacing: Duration
    overlap: Overlap | str
    jitter: Duration
    expires_after: Duration | None
    start: datetime | float | None
    until: datetime | float | None
    max_runs: int | None
    session_id: str | None
    source: TriggerSource | str
    deliver: Deliver | None
    priority: int | None
    description: str | None
    max_attempts: int | None


class ScheduleChanges(ScheduleOptions, total=False):
    """Everything of a schedule that can be changed."""

    when: str
    workflow: str | None
    payload: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Declared:
    """A spec that was accepted: checked, in the units of the table. `declared_hash` tells it from any other."""

    id: str
    declared_hash: str
    expression: str
    timezone: str
    timezone_given: bool
    workflow: str | None
    payload_json: str
    session_id: str | None
    priority: int | None
    description: str | None
    max_attempts: int | None
    catch_up: CatchUp
    catch_up_window: float
    catch_up_max: int
    catch_up_spacing: float
    overlap: Overlap
    jitter: float
    expires_after: float | None
    start_at: float | None
    until_at: float | None
    max_runs: int | None
    source: TriggerSource = TriggerSource.SCHEDULED
    deliver: Deliver | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(Declared):
    """The whole row, its timing as one value."""

    origin: Origin
    generation: int
    status: ScheduleStatus
    reason: str | None
    timing: Timing
    high_water_at: float
    skip_to_at: float | None
    next_at: float | None
    runs: int
    last_nominal_at: float | None
    created_at: float
    updated_at: float

    @property
    def kind(self) -> str:
        match self.timing:
            case Once():
                return "once"
            case Every():
                return "every"
            case Cron():
                return "cron"
            case Startup():
                return "startup"

    @property
    def is_one_time(self) -> bool:
        return isinstance(self.timing, Once)


@dataclass(frozen=True, slots=True, kw_only=True)
class Occurrence:
    """A line of the account: one occurrence, or `count` skipped ones from `nominal_at` to `last_at`."""

    seq: int
    schedule_id: str
    generation: int
    cause: FireCause
    nominal_at: float
    last_at: float
    count: int
    outcome: Outcome
    reason: str | None
    trigger_id: str | None
    decided_at: float
