"""Open questions with their tasks, as the inbox lists them."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.storage.damaged_rows import Damaged, try_read
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore


class OpenQuestion(NamedTuple):
    """A question and the task that it is about; each may be damaged. `task` None: the question is damaged."""

    question: Question | Damaged
    task: Task | Damaged | None


def list_open_questions(reader: Reader, limit: int) -> list[OpenQuestion]:
    """Return the oldest open questions, oldest first."""
    return _with_tasks(reader, QuestionStore().open_ones(reader, limit))


def list_urgent_questions(reader: Reader, limit: int) -> list[OpenQuestion]:
    """Return the open questions about actions in doubt, and after them those that end first."""
    return _with_tasks(reader, QuestionStore().list_urgent(reader, limit))


def _with_tasks(reader: Reader, questions: list[Question | Damaged]) -> list[OpenQuestion]:
    return [OpenQuestion(one, _task_of(reader, one)) for one in questions]


def _task_of(reader: Reader, question: Question | Damaged) -> Task | Damaged | None:
    if isinstance(question, Damaged):
        return None
    return try_read(question.task_id, lambda: TaskStore().get_by_seq(reader, question.task_seq))
