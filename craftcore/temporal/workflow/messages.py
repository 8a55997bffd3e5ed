"""The values that pass between a task's workflow, its turns and its clients. Moments are epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from craftcore.activities.model import Activity
from craftcore.tasks.model import NewWait, Task, Wait
from craftcore.temporal.workflow.gate_messages import Announcement, GateLimit

WORKFLOW = "craftcore.task"
ROLLOVER = "rollover:"
"""The name of a wait by which a turn goes on in the next run, before the number of its entry."""

ACTIVITY = "craftcore.turn"
TASK_LOOK = "craftcore.task_look"

BEGUN = "begun"
"""The detail in the heartbeats of an entry once its code may have begun."""

HANDED_BACK = "handed back"
"""The move of an entry in which nothing was run: its worker leaves it to others."""

LIMITED = "limited"
"""The move of an entry that has to pass other gates first."""


@dataclass(frozen=True, kw_only=True)
class TaskStart:
    """The trigger of a workflow. `parent` and the schedule receive its end. `workflow` empty: the app chooses later."""

    workflow: str
    payload_json: str
    source: str
    due_at: float
    description: str | None = None
    max_attempts: int | None = None
    parent: str | None = None
    schedule_id: str | None = None
    ends_with_parent: bool = False
    heartbeat_timeout: float = 10.0
    run_updates_max: int = 1_500
    """Updates of one run, after which the task goes on in the next."""
    run_children_max: int = 1_000
    """Children that live at once and were started by one run. The server takes 2,000."""
    session_id: str | None = None
    priority: int = 10
    supersedes: bool = False
    is_later: bool = False
    is_message: bool = False
    """It was due later than it was emitted; it goes to the live task of its session."""
    expires_at: float | None = None
    limits: list[GateLimit] = field(default_factory=list)
    """The limits of its workflow, as far as the emitter knows the app."""
    gate_check: float = 60.0
    gate_idle: float = 3600.0
    gate_signals_max: int = 1_500
    """The limits of a gate that the task starts, as in GateStart."""

    def make_announcement(self, *, holder: str, mark: str, is_first: bool = False) -> Announcement:
        """Return its announcement to the gate of its session, before it is emitted."""
        return Announcement(
            holder=holder,
            mark=mark,
            priority=self.priority,
            source=self.source,
            supersedes=self.supersedes,
            is_later=self.is_later,
            is_first=is_first,
        )


@dataclass(frozen=True, kw_only=True)
class EntryStart:
    """The entry of a turn, as its activity receives it. `token` is its number, which fences its journal."""

    token: int
    task: Task
    start: TaskStart
    resume: str
    attempts: int
    starts: int
    crashes: int
    now: float
    first_at: float
    """When its first entry began: its deadline counts from there."""
    memo: dict[str, str]
    waits: list[Wait]
    attempt_entry: int = 0
    """The entry in which its attempt began. Those since then went on after a crash or a shutdown."""
    handed_back_since: float | None = None
    """When the first of the entries in a row that were handed back was; None: the last one was not."""
    limits: list[GateLimit] = field(default_factory=list)
    """Those that the entry is within."""
    gates: dict[str, int] = field(default_factory=dict)
    """The gates that it has passed, and its number at each."""
    touched_at: float | None = None
    """The last sign of life of the entry before it, which was interrupted. None: it was not."""
    is_paged: bool = False
    """The memo and the waits are too much for this value: the entry asks for pages of them."""


@dataclass(frozen=True, kw_only=True)
class MemoPage:
    """A part of what a turn has on record. `following`: the first item of the next page; None: it is the last."""

    memo: dict[str, str]
    waits: list[Wait]
    following: int | None


@dataclass(frozen=True, kw_only=True)
class EntryEnd:
    """The end of an entry. `status`, `reason` and what follows are of the settlement; `move` is what the turn did:
    returned, continues, suspends, handed back, limited; None when it did none."""

    status: str
    reason: str
    gives_back: bool = False
    not_before: float | None = None
    error_code: str | None = None
    error_message: str | None = None
    move: str | None = None
    result_json: str = "null"
    state_json: str = "null"
    wait: NewWait | None = None
    steps: int = 0
    deadline_at: float | None = None
    handed_back_since: float | None = None
    ended_at: float | None = None
    is_task: bool = False
    """It has a context: messages go to it."""
    limits: list[GateLimit] | None = None
    """With the move `limited`: those that the app declares, and that the entry did not pass."""

    @property
    def goes_on(self) -> bool:
        """Return whether the task is entered again: later, in its next turn, or after a wait."""
        return self.status == "PENDING" or self.move in ("continues", "suspends")


@dataclass(frozen=True, kw_only=True)
class Mail:
    """A signal that no wait has taken yet."""

    event: str
    payload_json: str
    sent_by: str | None
    start: TaskStart | None = None
    """The trigger of a message, which is emitted again when the task ends without reading it."""


@dataclass(frozen=True, kw_only=True)
class OpenQuestion:
    """A question to a person."""

    id: str
    kind: str
    question: str
    options: list[str] | None
    activity_key: str | None = None
    workflow: str = ""
    default_json: str = "null"
    by_message: bool = False
    created_at: float = 0.0
    expires_at: float | None = None
    form_json: str | None = None
    addressee: str | None = None


@dataclass(frozen=True, kw_only=True)
class LateDone:
    """An action that a lost entry reported as done after a decision or the next call: it may have happened twice."""

    key: str
    call: int
    noted: str
    """The state of the action on record at that time."""
    provider_ref: str | None
    at: float


@dataclass(frozen=True, kw_only=True)
class TaskView:
    """A task as clients see it."""

    id: str
    workflow: str
    status: str
    reason: str
    turn: int
    entries: int
    crashes: int
    progress_json: str | None
    questions: list[OpenQuestion]
    activities: list[Activity]
    late: list[LateDone] = field(default_factory=list)


@dataclass(frozen=True, kw_only=True)
class TaskEnd:
    """The end of a task."""

    status: str
    reason: str
    result_json: str | None = None
    error_code: str | None = None
    error_message: str | None = None


@dataclass(kw_only=True)
class TaskState:
    """All that a task carries from run to run. `memo` is of the turn; `kept_waits`: those of it that are over."""

    task: Task
    resume: str
    entries: int = 0
    attempts: int = 0
    starts: int = 0
    crashes: int = 0
    idle_entries: list[int] = field(default_factory=list)
    """The last entries in a row that ended with their worker and recorded nothing."""
    attempt_entry: int = 0
    """As in EntryStart."""
    handed_back_since: float | None = None
    first_at: float | None = None
    """When its first entry began; None: there is none yet."""
    touched_at: float = 0.0
    """The last sign of life of its entry: its start, a record or its end."""
    is_interrupted: bool = False
    """Its last entry ended with its worker, or was given back."""
    memo: dict[str, str] = field(default_factory=dict)
    open_waits: list[Wait] = field(default_factory=list)
    kept_waits: list[Wait] = field(default_factory=list)
    asked: dict[str, NewWait] = field(default_factory=dict)
    """The open waits that are questions, by name."""
    waits_made: int = 0
    mails: list[Mail] = field(default_factory=list)
    mail_bytes: int = 0
    """Bytes of the payloads of its unread signals, also of one that was too much for its mailbox: the task fails."""
    acts: dict[str, Activity] = field(default_factory=dict)
    acts_made: int = 0
    ends_at: dict[str, float] = field(default_factory=dict)
    """Until when the last call of an activity may be on its way, by key."""
    late: list[LateDone] = field(default_factory=list)
    child_ends: dict[str, str] = field(default_factory=dict)
    children_to_cancel: list[str] = field(default_factory=list)
    children_to_leave: list[str] = field(default_factory=list)
    """The children of the turn that go on when this task ends: a retry looks whether they ended meanwhile."""
    limits: list[GateLimit] = field(default_factory=list)
    gates: dict[str, int] = field(default_factory=dict)
    """The gates in which it is, or waits, and its number at each."""
    gate_calls: int = 0


def first_arguments(start: TaskStart) -> list[Any]:
    """Return the arguments of the first run of a task: nothing is carried to it."""
    return [start, None, None]
