"""The rules of a wait, on one file and on a cluster: what ends it, and with which value. They write nothing."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.tasks.model import MESSAGE, NewQuestion, Question, QuestionKind, ResolvedBy, Resume, Wait, WaitKind

REST_SECONDS = 60.0
"""A wait of this length renews a task's work budget, as does whatever comes from outside: it does not run away."""

RESUMED_BY = {
    ResolvedBy.TIMER: Resume.TIMER,
    ResolvedBy.SIGNAL: Resume.SIGNAL,
    ResolvedBy.MESSAGE: Resume.MESSAGE,
    ResolvedBy.ANSWER: Resume.ANSWER,
    ResolvedBy.CHILD: Resume.CHILD,
}


class WaitEnd(NamedTuple):
    """The end of a wait. `answer`: the text with which a message has answered its question."""

    cause: ResolvedBy
    value_json: str
    answer: str | None = None


def may_answer(wait: Wait, event: str) -> bool:
    """Return whether a mail of this event may answer the question of a wait, if a person has sent it."""
    return wait.kind is WaitKind.QUESTION and event == MESSAGE


def end_by_mail(wait: Wait, event: str, payload_json: str, question: Question | NewQuestion | None) -> WaitEnd | None:
    """Return how a signal or a message ends a wait. None: it does not. `question`: that of the wait, if the mail may
    answer it."""
    if wait.kind is WaitKind.EVENT and wait.event == event:
        return WaitEnd(ResolvedBy.MESSAGE if event == MESSAGE else ResolvedBy.SIGNAL, payload_json)
    answer = None if question is None else answer_in(question, payload_json)
    return None if answer is None else WaitEnd(ResolvedBy.ANSWER, canonicalize(answer), answer)


def answer_in(question: Question | NewQuestion, payload_json: str) -> str | None:
    """Return the `text` by which a message answers a question that one may answer. None when it is not an answer."""
    if not question.by_message:
        return None
    payload: Any = json.loads(payload_json)
    text = payload.get("text") if isinstance(payload, dict) else None
    if not isinstance(text, str):
        return None
    if question.options is None:
        return text
    answer = text.strip().casefold()
    return next((option for option in question.options if option.casefold() == answer), None)


def find_first_due(waits: Iterable[Wait]) -> Wait | None:
    """Return the open wait whose time comes first, the first of equal ones. None: there is no wait."""
    return min(waits, key=lambda wait: math.inf if wait.due_at is None else wait.due_at, default=None)


def end_by_time(question: Question | NewQuestion | None) -> WaitEnd:
    """Return how a wait ends when its time is over. `question`: its own; None: it has none."""
    return WaitEnd(ResolvedBy.TIMER, "null" if question is None else question.default_json)


def is_rest(wait: Wait, ended_at: float) -> bool:
    """Return whether a wait that ended then was long enough to renew the work budget of its task."""
    return ended_at - wait.created_at >= REST_SECONDS


def has_renewed_budget(wait: Wait) -> bool:
    """Return whether a wait that is over has renewed the work budget of its task."""
    return is_rest(wait, wait.resolved_at or 0.0) or wait.resolved_by is not ResolvedBy.TIMER


def resume_after(wait: Wait) -> Resume:
    """Return why a turn is entered after its last wait is over. Work that craftcore has asked about goes on as it
    was."""
    if wait.name.startswith((QuestionKind.STALE, QuestionKind.BUDGET)) or wait.resolved_by is None:
        return Resume.RESUME
    return RESUMED_BY.get(wait.resolved_by, Resume.RESUME)


def write_task_end(status: str, result_json: str | None, code: str | None, message: str | None) -> str:
    """Return how a task ended, as its parent or its schedule receives it: canonical JSON."""
    error = None if code is None else {"code": code, "message": message}
    return f'{{"error":{canonicalize(error)},"result":{result_json or "null"},"status":"{status}"}}'
