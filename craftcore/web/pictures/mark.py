"""One mark of a picture of a task, and what it may show. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple


class MarkKind(StrEnum):
    """The shape of a mark. A bar has a length: attempts, steps, waits, questions that nothing waits for, crashes."""

    TASK = "task"  # its begin, and its end
    ATTEMPT = "attempt"
    EVENT = "event"  # of the stream, and of no other kind here
    STEP = "step"
    INTENT = "intent"  # an irreversible action is about to be called
    OUTCOME = "outcome"  # of such a call: done, failed, unknown
    WAIT = "wait"
    QUESTION = "question"
    ANSWER = "answer"  # or a decision, by a person
    CRASH = "crash"  # of the daemon, between the last known moment and the next start
    LOST = "lost"  # an attempt has no end, and no start of the daemon died with it


class Sense(StrEnum):
    """The six meanings that have a colour, a sign and a word on every page."""

    WAITING = "waiting"
    WORK = "work"
    DONE = "done"
    PERSON = "person"
    FAILED = "failed"
    UNKNOWN = "unknown"


class Mark(NamedTuple):
    """One mark, from one row.

    row         the row that it comes from: `event exec-….1 3`, `wait ID`, `record ID`, `epoch 7`
    since       its begin as it is drawn
    until       its end as it is drawn; equal to `since` for a mark without length
    at          the moment that the row has: another one where the clock was set back
    turn        of the task; None: of none
    attempt     the record in which it is; None: in none
    lane        what it is drawn beside: a record, a wait, a question, an activity
    label       what it is, without what its payload holds
    facts       the payload of an event, for who may see it
    is_open     it has no end yet, and is drawn up to now
    """

    kind: MarkKind
    meaning: Sense
    row: str
    since: float
    until: float
    at: float
    turn: int | None
    attempt: str | None
    lane: str
    label: str
    facts: Any = None
    is_open: bool = False

    @property
    def moment(self) -> float:
        """The moment that orders it among the others: of a step its end, for only then it was written."""
        return self.until if self.kind is MarkKind.STEP else self.since
