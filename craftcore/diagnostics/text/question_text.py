"""A question in words: its text, its deadline, its choices, and the command that answers it."""

from __future__ import annotations

import json
from shlex import quote
from typing import NamedTuple

from craftcore.serialization.display import json_or_text, shorten
from craftcore.serialization.time_text import clock_time, relative_text
from craftcore.tasks.answer_form import describe_form
from craftcore.tasks.model import Question, QuestionKind, QuestionStatus, Task, TaskStatus

SAID_MAX = 200


def question_text(question: Question) -> str:
    """Return `question 0192… "Send it?"`, cut to what fits into a sentence."""
    return f'question {question.id} "{shorten(question.asked, SAID_MAX)}"'


class AnswerEnd(NamedTuple):
    """The moment until which an answer counts. `then`: the default answer, which holds after it; None: there is none.
    `by_deadline`: the task fails then."""

    at: float
    then: str | None = None
    by_deadline: bool = False


def find_answer_end(question: Question, task: Task) -> AnswerEnd | None:
    """Return until when a question can be answered: its expiry, or the deadline of its task. None: no time ends it."""
    if question.kind is QuestionKind.STALLED or not task.status.is_live:
        return None
    end, deadline = question.expires_at, task.deadline_at
    if deadline is not None and (end is None or deadline < end):
        return AnswerEnd(deadline, by_deadline=True)
    if end is None:
        return None
    default = json_or_text(question.default_json)
    return AnswerEnd(end, None if default is None else shorten(str(default), SAID_MAX))


def answer_deadline_text(question: Question, task: Task, now: float) -> str:
    """Return `until 2026-01-02 03:04:05Z, in 2 h; without an answer it goes on with "hold"`"""
    if question.kind is QuestionKind.STALLED:
        return "its turn runs on meanwhile"
    if not task.status.is_live:
        return f"for as long as it takes; its task is {task.status}{_answer_result(question, task)}"
    end = find_answer_end(question, task)
    if end is None:
        return "for as long as it takes"
    moment = f"{clock_time(end.at)}, {relative_text(end.at, now)}"
    if end.by_deadline:
        return f"until the task's deadline at {moment}; then the task fails"
    instead = "without one" if end.then is None else f'with "{end.then}"'
    return f"until {moment}; not answered by then, it goes on {instead}"


def _answer_result(question: Question, task: Task) -> str:
    if question.kind is not QuestionKind.ACTIVITY:
        return " meanwhile"
    return ", and comes to it when it is retried" if task.status is TaskStatus.FAILED else ", and comes to it no more"


def answer_text(question: Question) -> str:
    """Return what may be answered, as the text before the command that answers; how it was closed when it is not
    open."""
    if question.status is not QuestionStatus.OPEN:
        return f"It is {question.status}."
    if question.form_json is not None:
        return f"To answer with its fields, {shorten(describe_form(json.loads(question.form_json)), SAID_MAX)}"
    choices = "any text" if question.options is None else shorten(", ".join(map(quote, question.options)), SAID_MAX)
    return f"To answer with CHOICE ({choices})"


def answer_commands(question: Question) -> tuple[tuple[str, ...], ...]:
    """Return the command that answers an open question; empty for one that is closed."""
    if question.status is not QuestionStatus.OPEN:
        return ()
    choice = ("CHOICE",) if question.form_json is None else ("--field", "NAME=VALUE")
    return (("craftcore", "inbox", "answer", question.id, *choice),)
