"""The end of a task, in one commit: every wait for it is resolved, and no message to it is lost."""

from __future__ import annotations

from collections.abc import Container, Sequence

from craftcore.errors import ErrorCode, NotFound, StateRefused
from craftcore.storage.restored_work import RestoredWork
from craftcore.storage.transaction import Transaction
from craftcore.tasks.activity_events import ActivityEvents
from craftcore.tasks.mailbox_store import Mail, MailStore
from craftcore.tasks.model import ResolvedBy, Task, TaskStatus
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import PARENT_ENDED, Advance, TaskStore
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import WaitService, end_text
from craftcore.triggers.derived_ids import is_derived
from craftcore.triggers.service import TriggerService


class TaskCloser:
    """Ends tasks. Each method is a rule over a transaction it is given."""

    def __init__(
        self, triggers: TriggerService, waiting: WaitService, acts: ActivityEvents, restored: RestoredWork
    ) -> None:
        self._triggers = triggers
        self._waiting = waiting
        self._acts = acts
        self._restored = restored
        self._tasks = TaskStore()
        self._waits = WaitStore()
        self._questions = QuestionStore()
        self._mails = MailStore()

    def end(
        self,
        tx: Transaction,
        task: Task,
        status: TaskStatus,
        reason: str,
        *,
        code: str | None = None,
        message: str | None = None,
    ) -> None:
        """End one live task whose turn is not running."""
        move = end_of_task(task, status, reason, tx.now, code=code, message=message)
        self._tasks.advance_all(tx, [move])
        self.close(tx, [task])

    def cancel(self, tx: Transaction, task: Task, reason: str) -> None:
        """Cancel one live task: at once when its code does not run, else at its next await."""
        if task.stopped_turn == task.turn:
            self._tasks.set_stopped_turn(tx, task.seq, None)
        try:
            if task.trigger_id is not None:
                self._triggers.cancel(tx, task.trigger_id, reason)  # if it does not run, its task ends at once
        except (NotFound, StateRefused):
            pass  # nothing of it runs or will
        task = self._tasks.get_by_seq(tx, task.seq)
        if task.status.is_live and not self._is_running(tx, task):
            self.end(tx, task, TaskStatus.CANCELLED, reason)

    def close(self, tx: Transaction, tasks: Sequence[Task], without_waits: Container[int] = ()) -> float | None:
        """Close these tasks, which have just ended: questions are withdrawn, waits end, doubts are asked about, and
        unread messages are emitted again. Parents continue, and children that end with them are cancelled. Return when
        the engine has to look again; None: it need not.

        `without_waits`: those of them that wait for nothing.
        """
        due_at = None
        for task in tasks:
            if task.seq not in without_waits:
                self._waits.end_open(tx, task.seq)
        seqs = [task.seq for task in tasks]
        self._questions.withdraw_all(tx, seqs)
        self._acts.ask_at_end(tx, seqs)
        for mail in self._mails.list_left_by(tx, seqs):
            new_id = self._emit_again(tx, mail)
            self._mails.leave(tx, mail, new_id)
            if new_id is not None:
                due_at = tx.now
        for task in tasks:
            if task.parent_id is not None and self._tell_parents(tx, task):
                due_at = tx.now
        for child in self._tasks.list_ending_with(tx, [task.id for task in tasks]):
            self.cancel(tx, child, PARENT_ENDED)
            due_at = tx.now
        return due_at

    def ask_about_acts(self, tx: Transaction, task_seq: int) -> None:
        """Ask about what is in doubt of a task that had ended before."""
        self._acts.ask_at_end(tx, [task_seq])

    def _emit_again(self, tx: Transaction, mail: Mail) -> str | None:
        """Emit an unread message again, and return its new id. None for a signal, and when its trigger is gone."""
        if mail.trigger_id is None:
            return None
        new_id = self._triggers.emit_again(tx, mail.trigger_id, mail.payload_json)
        if new_id is not None:
            self._restored.mark(tx, mail.trigger_id, new_id, same_id=is_derived(new_id))
        return new_id

    def _is_running(self, tx: Transaction, task: Task) -> bool:
        """Return whether its code runs; it is cancelled at its next await."""
        if task.trigger_id is None:
            return False
        try:
            return self._triggers.get(tx, task.trigger_id).is_started
        except NotFound:
            return False

    def _tell_parents(self, tx: Transaction, child: Task) -> bool:
        has_ended_wait = False
        for wait in self._waits.list_for_child(tx, child.id):
            now_ended = self._tasks.get_by_seq(tx, child.seq)
            parent = self._tasks.get_by_seq(tx, wait.task_seq)
            has_ended_wait |= self._waiting.resolve(tx, parent, wait, ResolvedBy.CHILD, end_text(now_ended))
        return has_ended_wait


def end_of_task(
    task: Task,
    status: TaskStatus,
    reason: str,
    now: float,
    *,
    result_json: str | None = None,
    code: str | None = None,
    message: str | None = None,
) -> Advance:
    """Return the move that ends a task where it is. A cancelled one was aborted, whatever ended its trigger."""
    if status is TaskStatus.CANCELLED:
        code, message = code or ErrorCode.WORKFLOW_ABORTED, message or reason
    return Advance(
        task.seq, task.turn, now, status, reason, task.turn, task.trigger_id, task.turns_alone, task.steps_alone,
        result_json=result_json, error_code=code, error_message=message, ended_at=now,
    )  # fmt: skip
