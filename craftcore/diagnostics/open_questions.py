"""Open questions with their tasks, as the inbox lists them."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.storage.damaged_rows import Damaged, map_rows, try_read
from craftcore.storage.transaction import Reader
from craftcore.tasks.model import Question, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore


class OpenQuestion(NamedTuple):
    """A question and the task that it is about."""

    question: Question
    task: Task | Damaged


def list_open_questions(reader: Reader, limit: int) -> list[OpenQuestion | Damaged]:
    """Return the oldest open questions, oldest first."""
    return _with_tasks(reader, QuestionStore().open_ones(reader, limit))


def list_urgent_questions(reader: Reader, limit: int) -> list[OpenQuestion | Damaged]:
    """Return the open questions about actions in doubt, and after them those that end first."""
    return _with_tasks(reader, QuestionStore().list_urgent(reader, limit))


def _with_tasks(reader: Reader, questions: list[Question | Damaged]) -> list[OpenQuestion | Damaged]:
    store = TaskStore()

    def add_task(question: Question) -> OpenQuestion:
        task = try_read(question.task_id, lambda: store.get_by_seq(reader, question.task_seq))
        return OpenQuestion(question, task)

    return map_rows(questions, add_task)
