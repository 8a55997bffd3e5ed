"""Signal, cancel and retry tasks, and answer their questions."""

from __future__ import annotations

from typing import Any

from craftcore.activities.model import Activity
from craftcore.activities.store import ActivityStore
from craftcore.errors import NotFound
from craftcore.operations.audit_scope import AuditScope
from craftcore.operations.triggers import make_reason
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import Question, Task
from craftcore.tasks.session_message_store import SessionMessageStore


def signal(
    tx: Transaction, scope: AuditScope, services: Services, task_id: str, event: str, payload: Any
) -> tuple[Task | None, bool]:
    """Tell a task that an event has happened. Return the task, None before its first turn, and whether it waited.

    Raises InvalidInput, PayloadTooLarge, NotFound or StateRefused.
    """
    waited = services.tasks.signal(tx, task_id, event, payload, sent_by=scope.operator)
    scope.record(task_id, event=event, waited=waited)
    return services.tasks.find(tx, task_id), waited


def cancel(tx: Transaction, scope: AuditScope, services: Services, task_id: str, reason: str | None) -> Task:
    """Cancel a live task. Raises NotFound or StateRefused."""
    after = services.tasks.cancel(tx, task_id, make_reason(reason))
    scope.record(after.id, reason=reason)
    return after


def stop_turn(tx: Transaction, scope: AuditScope, services: Services, task_id: str, reason: str | None) -> Task:
    """Stop the turn of a live task, and keep the task. Raises NotFound or StateRefused."""
    before = services.tasks.get(tx, task_id)
    after = services.tasks.stop_turn(tx, task_id, reason or "stopped")
    scope.record(after.id, reason=reason, turn=before.turn)
    return after


def retry(tx: Transaction, scope: AuditScope, services: Services, task_id: str, reason: str | None = None) -> Task:
    """Let a FAILED task try again, or a held one go on. Raises NotFound or StateRefused."""
    after = services.tasks.retry(tx, task_id)
    scope.record(after.id, reason=reason, turn=after.turn, trigger=after.trigger_id)
    return after


def answer(
    tx: Transaction,
    scope: AuditScope,
    services: Services,
    question_id: str,
    choice: str,
    *,
    note: str | None = None,
    reference: str | None = None,
) -> tuple[Question, Task, Activity | None]:
    """Answer an open question, once; return it, its task, and the activity that it is about.

    Raises InvalidInput, NotFound or StateRefused.
    """
    question = services.tasks.answer(
        tx, question_id, choice, note=note, reference=reference, answered_by=scope.operator
    )
    scope.record(question_id, reason=note, choice=choice, reference=reference, task=question.task_id)
    key = question.activity_key
    about = None if key is None else ActivityStore().get(tx, key)
    return question, services.tasks.get(tx, question.task_id), about


def forget_history(tx: Transaction, scope: AuditScope, session_id: str) -> int:
    """Remove all messages of a session; their number. Raises NotFound when there are none."""
    removed = SessionMessageStore().remove_all(tx, session_id)
    if not removed:
        raise NotFound(f"no turn of session {session_id} has appended a message, or all were removed")
    scope.record(session_id, messages=removed)
    return removed
