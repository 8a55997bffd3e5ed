"""Tasks: the row, the entry of a turn, and the ends of a turn."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from craftcore.executions.trigger_view import Creator


class TaskStatus(StrEnum):
    """RUNNING -> WAITING, and back; -> DONE | FAILED | CANCELLED. A FAILED one can be retried."""

    RUNNING = "RUNNING"
    WAITING = "WAITING"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_live(self) -> bool:
        return self in (TaskStatus.RUNNING, TaskStatus.WAITING)


class Resume(StrEnum):
    """Why a turn is entered."""

    FIRST = "FIRST"  # of the task, for the first time
    NEXT = "NEXT"  # the turn before it returned Continue
    RETRY = "RETRY"  # again, after an attempt that failed or was snoozed
    CRASH = "CRASH"  # again: the process died in it
    RESUME = "RESUME"  # again, after a restart or by a person's decision
    TIMER = "TIMER"  # a sleep is over, or nobody came in time
    ANSWER = "ANSWER"  # a person answered
    SIGNAL = "SIGNAL"  # an event it waited for was signalled
    MESSAGE = "MESSAGE"  # a message came
    CHILD = "CHILD"  # a child it waited for has ended


class WaitKind(StrEnum):
    """The kinds of waits. Each may also end at a moment of its own."""

    TIMER = "timer"
    EVENT = "event"
    QUESTION = "question"
    CHILD = "child"


class ResolvedBy(StrEnum):
    """The cause that ended a wait: the first that came."""

    TIMER = "timer"
    SIGNAL = "signal"
    MESSAGE = "message"
    ANSWER = "answer"
    CHILD = "child"
    END = "end"  # of the task itself, or of an alternative


MESSAGE = "message"
"""The event that a message to a task is."""

BESIDE = "beside"
"""The `any_of` of a wait that stays open beside others: each that ends lets the turn go on, and ends none of them."""

CONTINUED = "continued"
"""The identity of the wait by which a turn was begun."""


class QuestionKind(StrEnum):
    """The origin of a question: the task itself, or craftcore about the task."""

    ASK = "ask"
    STALE = "stale"  # it was interrupted too long ago to go on unasked
    BUDGET = "budget"  # it works on and on, and nothing comes from outside
    STALLED = "stalled"  # its turn runs, and completes nothing
    ACTIVITY = "activity"  # an irreversible action is in doubt
    CONFLICT = "conflict"  # the key of an irreversible action: used for something else, or perhaps changed


GO_ON = "continue"
CANCEL = "cancel"
WAIT_ON = "wait"
TRY_AGAIN = "retry"
LEAVE = "leave"
SAME_ACT = "same"
ANOTHER_ACT = "another"
"""The answers to a question that the engine asks."""


class QuestionStatus(StrEnum):
    """OPEN -> ANSWERED by a person, EXPIRED without an answer in time, WITHDRAWN when it is not needed any more."""

    OPEN = "OPEN"
    ANSWERED = "ANSWERED"
    EXPIRED = "EXPIRED"
    WITHDRAWN = "WITHDRAWN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """The whole row. `turn` counts from 1; `state_json` is what the turn before left. `agents`: the workflows that its
    turn is tried with, in this order, None: as its own workflow declares. `agent`: the one of them that a FALLBACK has
    reached, None: the first."""

    seq: int
    id: str
    workflow: str
    agents: tuple[str, ...] | None
    agent: str | None
    session_id: str | None
    schedule_id: str | None
    parent_id: str | None
    status: TaskStatus
    reason: str | None
    turn: int
    state_json: str
    result_json: str | None
    error_code: str | None
    error_message: str | None
    trigger_id: str | None
    max_attempts: int | None
    turns_alone: int
    steps_alone: int
    deadline_at: float | None
    created_at: float
    updated_at: float
    ended_at: float | None
    dedup_key: str | None
    """The dedup key of the trigger that created it, when no other trigger may use this key while the task lives."""
    progress_json: str | None = None
    """The newest value that its code gave to ctx.progress, as JSON; None: none, or it is not kept any more."""
    progress_count: int = 0
    ends_with_parent: int = 0
    """1: it is cancelled when the task that started it ends."""
    stopped_turn: int | None = None
    """The turn that a person has stopped; when it ends, the task waits on. None: none was stopped, or the last one that
    was is tried again."""
    reply_json: str | None = None
    """The value that its first turn gave to ctx.reply, as JSON; None: none, or it is not kept any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wait:
    """The whole row of a wait. `value_json` is what it brought, canonical JSON; None while it lasts."""

    seq: int
    id: str
    task_seq: int
    turn: int
    name: str
    kind: WaitKind
    event: str | None
    due_at: float | None
    status: str
    resolved_by: ResolvedBy | None
    value_json: str | None
    created_at: float
    resolved_at: float | None
    at_given: int
    any_of: str | None
    """The identity of the `ctx.wait_any` of which this is an alternative; BESIDE: tasks of the turn wait for others
    beside it; None: it is waited for alone."""

    @property
    def is_open(self) -> bool:
        return self.resolved_by is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """The whole row of a question, with the id and workflow of its task, and the key of its activity if it has one.

    `question`: the whole text, with the arguments of that activity. `asked`: its first line without them, as they may
    hold secrets; the whole text where there is no activity.
    """

    seq: int
    id: str
    task_seq: int
    task_id: str
    workflow: str
    wait_seq: int | None
    activity_seq: int | None
    activity_key: str | None
    kind: QuestionKind
    question: str
    asked: str
    options: tuple[str, ...] | None
    default_json: str
    by_message: bool
    status: QuestionStatus
    answer: str | None
    note: str | None
    answered_by: str | None
    created_at: float
    expires_at: float | None
    closed_at: float | None
    form_json: str | None = None
    """The JSON Schema of the fields that an answer has; it is their JSON text then. None: an option, or any text."""
    addressee: str | None = None
    """The person or group that is asked; None: everybody."""

    @property
    def closing_text(self) -> str:
        """How a question was closed: `was answered by ada with "send"`."""
        match self.status:
            case QuestionStatus.ANSWERED:
                return f"was answered by {self.answered_by} with {json.dumps(self.answer)}"
            case QuestionStatus.EXPIRED:
                return "has expired"
            case _:
                return "is withdrawn: its task does not need an answer any more"


def question_asked(text: str, *, is_about_activity: bool) -> str:
    """Return the first line of a question about an activity, without what its options mean; else the whole text."""
    return text.partition("\n")[0] if is_about_activity else text


class NewTask(NamedTuple):
    """A task to be, in the order of the columns that are inserted."""

    id: str
    workflow: str
    session_id: str | None
    schedule_id: str | None
    parent_id: str | None
    trigger_id: str | None
    max_attempts: int | None
    deadline_at: float | None = None
    dedup_key: str | None = None
    ends_with_parent: int = 0


def make_task(row: NewTask, seq: int, now: float) -> Task:
    """Return a task at its first turn."""
    return Task(
        **row._asdict(),
        seq=seq,
        agents=None,
        agent=None,
        status=TaskStatus.RUNNING,
        reason=None,
        turn=1,
        state_json="null",
        result_json=None,
        error_code=None,
        error_message=None,
        turns_alone=0,
        steps_alone=0,
        created_at=now,
        updated_at=now,
        ended_at=None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NewQuestion:
    """A question, before it is stored. `options` None: any text answers. `default_json` is the answer when none comes
    in time."""

    kind: QuestionKind
    question: str
    options: tuple[str, ...] | None = None
    default_json: str = "null"
    by_message: bool = False
    activity_seq: int | None = None
    form_json: str | None = None
    addressee: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWait:
    """A wait, before it is stored. `due_at` None: for as long as it takes; `at_given`: as a moment, not as a delay.
    `others`: its alternatives, all with the same `any_of`. `beside`: what other tasks of the turn wait for."""

    name: str
    kind: WaitKind
    event: str | None = None
    due_at: float | None = None
    question: NewQuestion | None = None
    at_given: bool = False
    any_of: str | None = None
    others: tuple[NewWait, ...] = ()
    beside: tuple[NewWait, ...] = ()

    @property
    def identity(self) -> str:
        """The name by which the turn knows it, with its alternatives."""
        return self.any_of or self.name


class RecordedStop(NamedTuple):
    """The record of a stopped turn. `received_json`: the value of the event that began it; None: it was begun by none,
    or that is not kept any more. `steps`: the identities of its completed steps, in their order. `streams`: the text
    of each, by name."""

    turn: int
    received_json: str | None
    steps: tuple[str, ...]
    streams: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The entry of a turn.

    creator       payload, description and occurrence of the trigger that created the task; None: it is the claimed
                  one, or its row is gone
    memo          what this turn completed already, by its identity: the texts of the events
    failures      how often each of its steps has failed in this attempt, by its identity
    waits         those of this turn that are over, by name
    still_open    the names of those that are not: something else came before
    streams       the streams that this turn has begun, and the parts of it that wrote each
    received      the wait that began this turn, where one did
    stopped       what is on record of the turn before, if a person stopped that
    """

    task: Task
    resume: Resume
    creator: Creator | None = None
    memo: dict[str, str] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    waits: dict[str, Wait] = field(default_factory=dict)
    stopped: RecordedStop | None = None
    streams: Mapping[str, frozenset[str]] = field(default_factory=dict)
    still_open: frozenset[str] = frozenset()

    @property
    def received(self) -> Wait | None:
        return self.waits.get(CONTINUED)


def resolution_order(wait: Wait) -> tuple[float, int]:
    """Return what sorts waits that are over: by their end."""
    return (wait.resolved_at or 0.0, wait.seq)


def entry_text(entry: Entry) -> str | None:
    """Return what a record says of a turn that is entered: why, and with what; canonical JSON. None for the first
    turn's first entry."""
    if entry.resume is Resume.FIRST:
        return None
    origin = rest = ""
    if entry.waits:
        last = max(entry.waits.values(), key=resolution_order)
        origin = f'"resolved_by":"{last.resolved_by}",'
        rest = f',"value":{last.value_json or "null"},"wait":"{last.name}"'
    return f'{{"completed":{len(entry.memo)},{origin}"resume":"{entry.resume}","turn":{entry.task.turn}{rest}}}'
