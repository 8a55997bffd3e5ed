"""The marks of a task, in order: one for each event, wait, attempt, answer and death that its rows tell. Pure.

The order of events is that of their numbers. Where the clock was set back, a later event is placed no earlier than
the one before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from craftcore.diagnostics.tasks.task_history import TaskHistory
from craftcore.tasks.model import Question, QuestionStatus, TaskStatus, Wait, WaitKind
from craftcore.web.pictures.attempt_marks import AttemptMarks
from craftcore.web.pictures.label import LABEL_MAX
from craftcore.web.pictures.mark import Mark, MarkKind, Sense

ENDS = {
    TaskStatus.DONE: Sense.DONE,
    TaskStatus.FAILED: Sense.FAILED,
    TaskStatus.CANCELLED: Sense.FAILED,
}


def list_marks(history: TaskHistory) -> list[Mark]:
    """Return all marks of a task, in the order in which they happened."""
    attempts = AttemptMarks(history)
    marks = [
        *_begin(history),
        *attempts.list_marks(),
        *attempts.list_idle_deaths(),
        *_waits(history),
        *_decisions(history),
        *_end(history),
    ]
    return sorted(marks, key=lambda mark: mark.moment)


def _begin(history: TaskHistory) -> Iterator[Mark]:
    """Yield the begin of the task; not when its first events are left out."""
    if not history.has_more:
        yield _make_task_mark(history, Sense.WORK, history.task.created_at, f"{history.task.workflow} is requested")


def _end(history: TaskHistory) -> Iterator[Mark]:
    task = history.task
    if task.ended_at is not None:
        yield _make_task_mark(history, ENDS.get(task.status, Sense.DONE), task.ended_at, f"the task is {task.status}")


def _make_task_mark(history: TaskHistory, meaning: Sense, at: float, label: str) -> Mark:
    row = f"task {history.task.id}"
    return Mark(
        kind=MarkKind.TASK,
        meaning=meaning,
        row=row,
        since=at,
        until=at,
        at=at,
        turn=None,
        attempt=None,
        lane="task",
        label=label,
    )


def _waits(history: TaskHistory) -> Iterator[Mark]:
    """Yield the waits, what a person was asked without a wait, and the answers."""
    asked: dict[int, list[Question]] = defaultdict(list)
    for question in history.questions:
        if question.wait_seq is not None:
            asked[question.wait_seq].append(question)
    for wait in history.waits:
        yield _wait(wait, asked[wait.seq][-1] if asked[wait.seq] else None, history.now)
    shown = {wait.seq: wait for wait in history.waits}
    for question in history.questions:
        of_wait = shown.get(question.wait_seq or 0)
        if of_wait is None:
            yield _question(question, history.now)
        if question.status is QuestionStatus.ANSWERED and question.closed_at is not None:
            turn, lane = (None, question.id) if of_wait is None else (of_wait.turn, of_wait.id)
            label = f"{question.answered_by}: {question.answer}"
            yield _make_person_mark(f"question {question.id}", question.closed_at, turn, lane, label)


def _wait(wait: Wait, question: Question | None, now: float) -> Mark:
    is_open = wait.resolved_at is None
    label = wait.name if wait.event is None or wait.kind is WaitKind.QUESTION else f"{wait.name} for {wait.event}"
    if question is not None:
        label = f"{wait.name} asks: {question.asked}"
    if wait.resolved_by is not None:
        label = f"{label[:LABEL_MAX]}, ended by {wait.resolved_by}"
    return Mark(
        kind=MarkKind.WAIT,
        meaning=Sense.PERSON if wait.kind is WaitKind.QUESTION else Sense.WAITING,
        row=f"wait {wait.id}",
        since=wait.created_at,
        until=max(wait.created_at, now if wait.resolved_at is None else wait.resolved_at),
        at=wait.created_at,
        turn=wait.turn,
        attempt=None,
        lane=wait.id,
        label=label[: 2 * LABEL_MAX],
        is_open=is_open,
    )


def _question(question: Question, now: float) -> Mark:
    return Mark(
        kind=MarkKind.QUESTION,
        meaning=Sense.PERSON,
        row=f"question {question.id}",
        since=question.created_at,
        until=max(question.created_at, now if question.closed_at is None else question.closed_at),
        at=question.created_at,
        turn=None,
        attempt=None,
        lane=question.id,
        label=f"a person was asked: {question.asked}"[: 2 * LABEL_MAX],
        is_open=question.closed_at is None,
    )


def _decisions(history: TaskHistory) -> Iterator[Mark]:
    """Yield what people decided of doubts. A decision that answered a question is drawn as its answer, and one of a
    policy has its event."""
    answered = {(one.activity_seq, one.closed_at) for one in history.questions if one.activity_seq is not None}
    for number, one in enumerate(history.decisions, 1):
        if one.decided_by.startswith("policy ") or (one.activity_seq, one.decided_at) in answered:
            continue
        reference = f", reference {one.reference}" if one.reference else ""
        label = f"{one.decided_by}: {one.action} {one.decision}{reference}"
        yield _make_person_mark(f"decision {number} of {one.key}", one.decided_at, one.turn, one.key, label)


def _make_person_mark(row: str, at: float, turn: int | None, lane: str, label: str) -> Mark:
    return Mark(
        kind=MarkKind.ANSWER,
        meaning=Sense.PERSON,
        row=row,
        since=at,
        until=at,
        at=at,
        turn=turn,
        attempt=None,
        lane=lane,
        label=label[:LABEL_MAX],
    )
