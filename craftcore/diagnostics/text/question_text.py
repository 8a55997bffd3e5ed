"""A question in words: its text, its deadline, its choices, and the command that answers it."""

from __future__ import annotations

from shlex import quote

from craftcore.serialization.display import json_or_text, shorten
from craftcore.serialization.time_text import clock_time, relative_text
from craftcore.tasks.model import Question, QuestionKind, QuestionStatus, Task, TaskStatus

SAID_MAX = 200


def question_text(question: Question) -> str:
    """Return `question 0192… "Send it?"`, cut to what fits into a sentence."""
    return f'question {question.id} "{shorten(question.asked, SAID_MAX)}"'


def answer_deadline_text(question: Question, task: Task, now: float) -> str:
    """Return `until 2026-01-02 03:04:05Z, in 2 h; without an answer it goes on with "hold"`"""
    if question.kind is QuestionKind.STALLED:
        return "its turn runs on meanwhile"
    if not task.status.is_live:
        return f"for as long as it takes; its task is {task.status}{_answer_result(question, task)}"
    end, deadline = question.expires_at, task.deadline_at
    if deadline is not None and (end is None or deadline < end):
        return (
            f"until the task's deadline at {clock_time(deadline)}, {relative_text(deadline, now)}; then the task fails"
        )
    if end is not None:
        default = json_or_text(question.default_json)
        instead = "without one" if default is None else f'with "{shorten(str(default), SAID_MAX)}"'
        return f"until {clock_time(end)}, {relative_text(end, now)}; not answered by then, it goes on {instead}"
    return "for as long as it takes"


def _answer_result(question: Question, task: Task) -> str:
    if question.kind is not QuestionKind.ACTIVITY:
        return " meanwhile"
    return ", and comes to it when it is retried" if task.status is TaskStatus.FAILED else ", and comes to it no more"


def answer_text(question: Question) -> str:
    """Return what may be answered, as the text before the command that answers; how it was closed when it is not
    open."""
    if question.status is not QuestionStatus.OPEN:
        return f"It is {question.status}."
    choices = "any text" if question.options is None else shorten(", ".join(map(quote, question.options)), SAID_MAX)
    return f"To answer with CHOICE ({choices})"


def answer_commands(question: Question) -> tuple[tuple[str, ...], ...]:
    """Return the command that answers an open question; empty for one that is closed."""
    is_open = question.status is QuestionStatus.OPEN
    return (("craftcore", "inbox", "answer", question.id, "CHOICE"),) if is_open else ()
