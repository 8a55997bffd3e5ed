"""The view of an open question for people: who asks, until when, and the command for each answer."""

from __future__ import annotations

from craftcore.cli.output import Output
from craftcore.cli.session import Session
from craftcore.diagnostics.text.printable import Verbatim
from craftcore.diagnostics.text.question_text import SAID_MAX, answer_deadline_text
from craftcore.serialization.time_text import relative_text
from craftcore.storage.damaged_rows import Damaged
from craftcore.tasks.model import Question, QuestionKind, Task

OPTIONS_SHOWN = 10
"""Up to this many options have a command each, if all of them are short."""


def print_question(session: Session, question: Question, task: Task | Damaged, now: float) -> None:
    """Print a question, and the command for each answer."""
    link = session.settings().web.link_question(question.id) if session.cluster is None else None
    out: Output = session.out
    asks = "task" if question.kind is QuestionKind.ASK else "craftcore, about task"
    asked = f"{asks} {question.task_id} of {question.workflow} asked {relative_text(question.created_at, now)}:"
    out.line(asked, style="bold")
    out.quote(question.question)
    if isinstance(task, Damaged):
        out.line("  its task is damaged; an answer is possible after a daemon has quarantined it")
        return
    if link is not None:
        out.line("  ", Verbatim(link))
    takes = " (happened takes --reference REF, the provider's)" if question.activity_key is not None else ""
    out.line(f"  {answer_deadline_text(question, task, now)}. To answer{takes}:")
    options = question.options or ("TEXT",)
    if len(options) > OPTIONS_SHOWN or max(map(len, options)) > SAID_MAX:
        for option in options:
            out.quote(option)
        options = ("CHOICE",)
    for option in options:
        escape = ("--",) if option.startswith("-") else ()
        session.suggest("inbox", "answer", question.id, *escape, option)
    if question.activity_key is not None:
        out.line("  All that is known of it:")
        session.suggest("activity", "show", question.activity_key)
    elif question.kind is QuestionKind.CONFLICT:
        out.line("  Its irreversible actions so far:")
        session.suggest("activity", "list", "--task", task.id)
