"""Triggers: the spec, the row, and the claim."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, NamedTuple, TypedDict

from craftcore.serialization.arguments import Duration, Moment


class TriggerSource(StrEnum):
    """Where a trigger comes from. Its defaults (priority, scope) stand in `sources.py`."""

    MESSAGE = "MESSAGE"
    CONTINUATION = "CONTINUATION"
    RESUME = "RESUME"
    IMMEDIATE = "IMMEDIATE"
    SCHEDULED = "SCHEDULED"
    LIVING_UI = "LIVING_UI"
    PROACTIVE = "PROACTIVE"
    MEMORY = "MEMORY"
    SKILL_WORKFLOW = "SKILL_WORKFLOW"
    ONBOARDING = "ONBOARDING"
    SYSTEM = "SYSTEM"


OWN_SOURCES = (TriggerSource.CONTINUATION, TriggerSource.RESUME)
"""Sources of craftcore itself: their triggers go on with the task that they name. Others bring it a message."""


class TriggerStatus(StrEnum):
    """PENDING -> CLAIMED -> DONE | FAILED | DEAD, or back to PENDING."""

    PENDING = "PENDING"
    CLAIMED = "CLAIMED"
    DONE = "DONE"
    FAILED = "FAILED"
    DEAD = "DEAD"

    @property
    def is_settled(self) -> bool:
        return self in (TriggerStatus.DONE, TriggerStatus.FAILED, TriggerStatus.DEAD)


class DedupScope(StrEnum):
    """The time for which a dedup key blocks a second trigger. `active`: until the first is settled and the task that it
    created has ended. `ever`: for `retention.keys` longer, which is 90 days unless the settings say otherwise."""

    EVER = "ever"
    ACTIVE = "active"


HELD_UNTIL = 253_402_300_799.0
"""9999-12-31T23:59:59Z: the trigger of a task that is held is due then, and comes into no claim window before."""

LIMITED_UNTIL = 253_402_214_400.0
"""9999-12-31T00:00:00Z: a trigger whose key is at a limit of its workflow is put off until then, or until a place is
free. Nothing that is due from this moment on waits for its time."""

LANE = "/lane"
"""The `limit_by` of a trigger that waits for an earlier one of its lane, which has no place. Both have the same key. No
parameter has a slash."""

OnDuplicate = Literal["keep", "replace", "error"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TriggerSpec:
    """The request of a producer. Checked as a whole by `accept`, before anything is written.

    workflow      the name of the workflow to run; None lets the router decide by session and source
    payload       a JSON object; its keys are the workflow's keyword arguments
    at, delay     when it is due: an aware datetime, epoch seconds, or text like "tomorrow 9am"; or a duration from
                  now. Neither: now
    expires_at    from this moment on it settles as stale instead of running
    priority      0-99, lower is sooner; None: the default of the source
    dedup_key     makes emit once, within `dedup_scope` (None: the default of the source)
    on_duplicate  keep: the first one stays; replace: an unstarted one takes payload, time and priority; error
    supersedes    "session" settles the session's older unstarted triggers of the same source
    max_attempts  overrides the workflow's
    id            a name that the producer gives, to emit again safely; it blocks like a dedup key of scope `ever`.
                  None: a new UUIDv7
    """

    workflow: str | None = None
    payload: Mapping[str, Any] = field(default_factory=dict)
    source: TriggerSource | str = TriggerSource.IMMEDIATE
    at: Moment | None = None
    delay: Duration | None = None
    expires_at: Moment | None = None
    priority: int | None = None
    session_id: str | None = None
    task_id: str | None = None
    dedup_key: str | None = None
    dedup_scope: DedupScope | str | None = None
    on_duplicate: OnDuplicate = "keep"
    supersedes: Literal["session"] | None = None
    description: str | None = None
    max_attempts: int | None = None
    id: str | None = None


class EmitOptions(TypedDict, total=False):
    """The options of a spec beside workflow and payload."""

    source: TriggerSource | str
    dedup_key: str | None
    dedup_scope: DedupScope | str | None
    session_id: str | None
    task_id: str | None
    at: Moment | None
    delay: Duration | None
    expires_at: Moment | None
    priority: int | None
    description: str | None
    supersedes: Literal["session"] | None
    on_duplicate: OnDuplicate
    max_attempts: int | None
    id: str | None


class NewTrigger(NamedTuple):
    """An accepted spec: the row to insert, in the order of its columns, and what the duplicate rules need."""

    id: str
    source: str
    dedup_key: str | None
    dedup_scope: str | None
    session_id: str | None
    task_id: str | None
    workflow: str | None
    lane: str | None
    fire_at: float
    due_at: float
    expires_at: float | None
    priority: int
    description: str | None
    payload_json: str
    max_attempts: int | None
    created_at: float
    updated_at: float
    id_given: bool
    at_given: bool
    on_duplicate: OnDuplicate
    supersedes: bool

    @property
    def is_plain(self) -> bool:
        """True when no existing row matters to it: no id or key of its own, no lane, nothing to supersede."""
        return self.dedup_key is None and self.lane is None and not self.id_given


@dataclass(frozen=True, slots=True, kw_only=True)
class Emitted:
    """The result of an emit.

    created          a row was made; False: `id` is the trigger that holds the id or key
    status           the present status of that trigger
    payload_differs  that trigger has another payload than the one just given
    dedup_scope      how long that trigger's dedup key blocks another; None: it has no key
    held             what that trigger holds when `created` is False: the id or the key; None: nothing was held
    """

    id: str
    created: bool
    status: TriggerStatus
    due_at: float
    payload_differs: bool = False
    dedup_scope: DedupScope | None = None
    held: Literal["id", "dedup_key"] | None = None


class Claim(NamedTuple):
    """A leased trigger as the engine carries it, in the order the claiming statement returns it."""

    seq: int
    id: str
    lease_token: str
    source: str
    workflow: str | None
    lane: str | None
    session_id: str | None
    task_id: str | None
    priority: int
    fire_at: float
    due_at: float
    expires_at: float | None
    description: str | None
    payload_json: str
    attempts: int
    starts: int
    crash_count: int
    max_attempts: int | None
    schedule_id: str | None = None
    nominal_at: float | None = None
    active_key: str | None = None
    """Its dedup key, when that is free again once the work has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """The whole row, for people: every column of the table."""

    seq: int
    id: str
    source: TriggerSource
    dedup_key: str | None
    dedup_scope: DedupScope | None
    session_id: str | None
    task_id: str | None
    schedule_id: str | None
    nominal_at: float | None
    workflow: str | None
    lane: str | None
    fire_at: float
    not_before: float | None
    due_at: float
    expires_at: float | None
    priority: int
    description: str | None
    payload_json: str
    status: TriggerStatus
    attempts: int
    starts: int
    crash_count: int
    machine_restarts: int
    max_attempts: int | None
    claimed_epoch: int | None
    lease_token: str | None
    lease_until: float | None
    started_at: float | None
    started_alone: int
    cancel_requested_at: float | None
    reason: str | None
    error_code: str | None
    error_message: str | None
    superseded_by: str | None
    created_at: float
    updated_at: float
    settled_at: float | None
    stripped_at: float | None
    """When retention took its payload, description and message away; None: it did not."""
    id_given: int
    """1: its producer gave the id, which is held like a dedup key of scope `ever`."""
    at_given: int
    """1: its fire time was given as a moment; 0: it is a delay from `created_at`."""

    @property
    def is_started(self) -> bool:
        return self.status is TriggerStatus.CLAIMED and self.started_at is not None
