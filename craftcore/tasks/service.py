"""Operations on tasks: signal, answer, cancel, retry. Each method is a rule over a transaction it is given; ring the
daemon's bell after the commit."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote
from typing import Any

from craftcore.activities.model import Decision
from craftcore.clock import Clock
from craftcore.errors import ErrorCode, InvalidInput, NotFound, PayloadTooLarge, StateRefused
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.texts import check_texts, text_of
from craftcore.storage.damaged_rows import readable_text, require_readable
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.activity_decisions import ActivityDecisions
from craftcore.tasks.answer_form import read_answer
from craftcore.tasks.holds import Holds
from craftcore.tasks.lineage_store import find_first_due, list_ended_with
from craftcore.tasks.mailbox_store import EarlyMailStore, MailStore
from craftcore.tasks.message_store import Message, MessageStore
from craftcore.tasks.model import (
    CANCEL,
    TRY_AGAIN,
    Question,
    QuestionKind,
    QuestionStatus,
    ResolvedBy,
    Task,
    TaskStatus,
)
from craftcore.tasks.quarantine_store import LIVE_TASKS, MESSAGES, fail_task, find_corrupt
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.tasks.task_end import TaskCloser
from craftcore.tasks.turn_stop import TurnStopper
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import MAILBOX_MAX, WaitService
from craftcore.triggers.model import TriggerSource, TriggerSpec, TriggerStatus
from craftcore.triggers.operator_store import OperatorStore
from craftcore.triggers.service import TriggerService
from craftcore.triggers.sources import resume_key
from craftcore.triggers.validation import require_name, show_value


class TaskService:
    """Signal, answer, cancel, retry; and what follows when a task's trigger ends without being run."""

    def __init__(
        self,
        clock: Clock,
        triggers: TriggerService,
        waiting: WaitService,
        ending: TaskCloser,
        stopping: TurnStopper,
        deciding: ActivityDecisions,
        holds: Holds,
        *,
        payload_max_bytes: int = 262_144,
    ) -> None:
        self._clock = clock
        self._triggers = triggers
        self._waiting = waiting
        self._ending = ending
        self._stopping = stopping
        self._deciding = deciding
        self._holds = holds
        self._payload_max_bytes = payload_max_bytes
        self._tasks = TaskStore()
        self._waits = WaitStore()
        self._questions = QuestionStore()
        self._mails = MailStore()
        self._messages = MessageStore()
        self._early = EarlyMailStore()

    def find(self, tx: Reader, task_id: str) -> Task | None:
        """Return the task with this id; None when there is none."""
        return self._tasks.get(tx, task_id)

    def questions(self, tx: Reader, limit: int) -> list[Question]:
        """Return what waits for an answer, asked longest ago first."""
        return require_readable(self._questions.open_ones(tx, limit))

    def get(self, tx: Reader, task_id: str) -> Task:
        """Return the task with this id. Raises NotFound."""
        if (task := self._tasks.get(tx, task_id)) is None:
            raise NotFound(f"no task {task_id}")
        return task

    def signal(
        self, tx: Transaction, task_id: str, event: str, payload: Any = None, *, sent_by: str | None = None
    ) -> bool:
        """Tell a live task that something happened; whether it waited for just that. If not, it is kept until it does,
        also before the first turn of the task.

        Raises InvalidInput or PayloadTooLarge; NotFound; StateRefused when the task has ended or its mailbox is full.
        """
        require_name("event", event)
        check_texts(sent_by=sent_by)
        text = text_of(payload, "payload")
        if len(text) > self._payload_max_bytes:
            raise PayloadTooLarge(
                f"payload has {len(text):,} bytes; the limit is {self._payload_max_bytes:,} "
                "(triggers.payload_max_bytes). Store the body elsewhere and pass a reference"
            )
        if self._tasks.get(tx, task_id) is None and self._triggers.is_live(tx, task_id):
            return self._keep_for_first_turn(tx, task_id, event, text, sent_by)
        task = self._live_task(tx, task_id)
        if self._waiting.is_full(tx, task):
            raise StateRefused(f"task {task_id} has {MAILBOX_MAX:,} unread mails; nothing was written")
        return self._waiting.deliver(tx, task, event, text, trigger_id=None, sent_by=sent_by)

    def can_signal(self, tx: Transaction, task_id: str) -> bool:
        """Return whether a task of this id lives, or is to be created by a live trigger."""
        task = self._tasks.get(tx, task_id)
        return self._triggers.is_live(tx, task_id) if task is None else task.status.is_live

    def _keep_for_first_turn(
        self, tx: Transaction, trigger_id: str, event: str, payload_json: str, sent_by: str | None
    ) -> bool:
        """Keep a signal for the task that this live trigger will create; False: no wait takes it yet."""
        if (advances := self._triggers.get(tx, trigger_id).task_id) is not None and advances != trigger_id:
            raise StateRefused(
                f"trigger {trigger_id} goes on with task {advances}: signal that one; nothing was written"
            )
        if self._early.count(tx, trigger_id) >= MAILBOX_MAX:
            raise StateRefused(f"task {trigger_id} has {MAILBOX_MAX:,} unread mails; nothing was written")
        self._early.put(tx, trigger_id, event, payload_json, sent_by)
        return False

    def answer(
        self,
        tx: Transaction,
        question_id: str,
        choice: str,
        *,
        note: str | None = None,
        reference: str | None = None,
        answered_by: str,
    ) -> Question:
        """Answer a question, once. Return the question as it is then. `reference`: the provider's, of an irreversible
        action that happened.

        Raises NotFound; InvalidInput for what is not one of its options, or does not fit its form; StateRefused when it
        was too late.
        """
        question = self._questions.get(tx, question_id)
        if question is None:
            raise NotFound(f"no question {question_id}")
        if question.status is not QuestionStatus.OPEN:
            raise StateRefused(f"too late: question {question_id} {question.closing_text}; nothing was written")
        if question.options is not None and choice not in question.options:
            raise InvalidInput(
                f"{show_value(choice)} is not an option; choose one of: {', '.join(map(quote, question.options))}"
            )
        if not choice:
            raise InvalidInput("the answer is empty")
        check_texts(answer=choice if question.form_json is None else None, note=note, answered_by=answered_by)
        if question.form_json is not None:
            choice = read_answer(question.form_json, choice)
        if question.activity_key is not None:
            self._deciding.decide(
                tx, question.activity_key, Decision(choice), decided_by=answered_by, reference=reference, note=note
            )
        elif reference is not None:
            raise InvalidInput("a reference is for an irreversible action that happened")
        else:
            answered = self._questions.answer(tx, question.seq, choice, note=note, answered_by=answered_by)
            assert answered, question
            self._go_by(tx, question, choice)
        found = self._questions.get(tx, question_id)
        assert found is not None, question_id
        return found

    def _go_by(self, tx: Transaction, question: Question, choice: str) -> None:
        """Apply an answer."""
        task = self._tasks.get_by_seq(tx, question.task_seq)
        if question.kind is QuestionKind.CONFLICT and question.wait_seq is None:
            if choice == TRY_AGAIN:
                self.retry(tx, task.id)
        elif question.kind is not QuestionKind.ASK and choice == CANCEL:
            self.cancel(tx, task.id, f"cancelled: {question.kind}")
        elif question.wait_seq is not None:
            wait = self._waits.find_open(tx, task.seq, question.wait_seq)
            assert wait is not None, question
            value = canonicalize(choice) if question.form_json is None else choice
            self._waiting.resolve(tx, task, wait, ResolvedBy.ANSWER, value)

    def cancel(self, tx: Transaction, task_id: str, reason: str = "cancelled") -> Task:
        """Cancel a live task: at once when its code does not run, else at its next await.

        Raises NotFound, or StateRefused when it has ended.
        """
        self._ending.cancel(tx, self._live_task(tx, task_id), reason)
        return self.get(tx, task_id)

    def stop_turn(self, tx: Transaction, task_id: str, reason: str = "stopped") -> Task:
        """Stop the turn of a live task, and keep the task: it waits for what begins its next turn, with the state that
        this one found.

        Raises NotFound, or StateRefused: it has ended, no turn has begun, or nothing could begin another.
        """
        self._stopping.stop(tx, self._live_task(tx, task_id), reason)
        return self.get(tx, task_id)

    def cancel_message(self, tx: Transaction, trigger_id: str, message: Message, reason: str) -> None:
        """Stop the turn that has received a message, and keep its task. Take back a message that none has received.

        Raises StateRefused: it has its reply, its turn is over, or nothing could begin another turn.
        """
        if message.status == "UNREAD":
            withdrawn = self._messages.withdraw(tx, message.seq, reason)
            assert withdrawn, message
            return
        task = self._tasks.get_by_seq(tx, message.task_seq)
        if message.reply_json is not None:
            raise StateRefused(f"message {trigger_id} has its reply; nothing was written")
        if not task.status.is_live or task.turn != message.turn:
            raise StateRefused(
                f"the turn of task {task.id} that received message {trigger_id} is over; nothing was written"
            )
        self._stopping.stop(tx, task, reason)

    def retry(self, tx: Transaction, task_id: str) -> Task:
        """Let a FAILED task try its last turn again, with all its attempts. Completed steps are kept, and unread
        signals are in the mailbox again. The children that were cancelled with it go on, too.

        Let one that is held go on with the code that runs, which it may not fit: it may fail then.

        Raises NotFound, or StateRefused: it is neither, retention took what it was started with, other live work holds
        its dedup key, or a child is still being cancelled.
        """
        task = self.get(tx, task_id)
        if task.status.is_live and self._holds.release(tx, task_id):
            return task
        if task.status is not TaskStatus.FAILED:
            raise StateRefused(f"task {task_id} is {task.status}; only one that is FAILED or held can be retried")
        if not self._tasks.has_creator(tx, task_id):
            raise StateRefused(
                f"retention took what task {task_id} was started with: emit it again; nothing was written"
            )
        try:
            self._triggers.requeue(tx, task.trigger_id or "nothing: it waited without a trigger")
        except NotFound:  # else `requeued` was told
            self._revive(tx, task, self.resume(tx, task))
        return self.get(tx, task_id)

    def resume(self, tx: Transaction, task: Task, at: float | None = None) -> str:
        """Emit the one trigger that goes on with a task whose own is gone; its id. `at` None: now."""
        spec = TriggerSpec(
            at=at,
            workflow=task.workflow,
            source=TriggerSource.RESUME,
            task_id=task.id,
            session_id=task.session_id,
            max_attempts=task.max_attempts,
            dedup_key=resume_key(task.id),
        )
        return self._triggers.emit(tx, spec).id

    # Following triggers

    def on_settled_unrun(self, tx: Transaction, trigger_ids: Sequence[str]) -> None:
        """End the tasks of triggers that were settled without being run."""
        for trigger_id in trigger_ids:
            trigger = self._triggers.get(tx, trigger_id)
            task = self._tasks.get(tx, trigger.task_id or trigger.id)
            if not trigger.status.is_settled or task is None or not task.status.is_live:
                continue
            if task.trigger_id != trigger_id:
                continue  # it goes on with another
            if trigger.status is TriggerStatus.DONE:
                if self._stopping.advance_stopped(tx, task.seq) is not None:
                    continue
                reason = trigger.reason or "cancelled"
                self._ending.end(tx, task, TaskStatus.CANCELLED, reason, code=trigger.error_code)
            else:
                code = trigger.error_code or ErrorCode.VALIDATION_ERROR
                message = trigger.error_message or trigger.reason
                self._ending.end(tx, task, TaskStatus.FAILED, trigger.reason or "", code=code, message=message)

    def on_requeued(self, tx: Transaction, trigger_id: str) -> None:
        """Revive the task that failed with a requeued trigger."""
        trigger = self._triggers.get(tx, trigger_id)
        task = self._tasks.get(tx, trigger.task_id or trigger.id)
        if task is not None and task.trigger_id == trigger_id:
            self._revive(tx, task, trigger_id)

    def has_task(self, tx: Transaction, trigger_id: str) -> bool:
        """Return whether the trigger has created a task, and so keeps its payload."""
        return self._tasks.get(tx, trigger_id) is not None

    def set_aside_corrupt(self, tx: Transaction) -> list[str]:
        """Repair each corrupt row and fail the tasks that cannot go on without it, so that all others go on. Return
        what was wrong.

        The trigger of such a task is DEAD. The trigger of a corrupt message is a dead letter, which can be sent again.
        A corrupt activity is asked about.
        """
        found = find_corrupt(tx)
        for table, corrupt in found:
            if table is not LIVE_TASKS:
                table.repair(tx, corrupt)
            if table is MESSAGES and (trigger_id := readable_text(corrupt.row["trigger_id"])) is not None:
                OperatorStore().mark_undelivered(tx, trigger_id, corrupt.message)
        for task_seq, wrong in {one.owner: one.message for _, one in reversed(found) if one.owner is not None}.items():
            task = fail_task(tx, task_seq, wrong)
            if task is None:
                self._ending.ask_about_acts(tx, task_seq)
                continue
            if task.trigger_id is not None:
                OperatorStore().bury(tx, task.trigger_id, wrong)
            self._ending.close(tx, [task])
        return [one.message for _, one in found]

    def _revive(self, tx: Transaction, task: Task, trigger_id: str) -> None:
        self._triggers.refuse_held_key(tx, task.dedup_key, task.id)
        self._tasks.revive(tx, task.seq, trigger_id)
        self._mails.give_back(tx, task.seq)
        self._questions.withdraw_all(tx, [task.seq], QuestionKind.CONFLICT)
        if running := self._tasks.list_ending_with(tx, [task.id]):
            raise StateRefused(
                f"task {running[0].id}, which task {task.id} started, is still being cancelled with it: retry once "
                "that has ended; nothing was written"
            )
        for child in list_ended_with(tx, task):
            if self._tasks.has_creator(tx, child.id):
                self._revive(tx, child, self.resume(tx, child, find_first_due(tx, child, tx.now)))

    def _live_task(self, tx: Transaction, task_id: str) -> Task:
        task = self._tasks.get(tx, task_id)
        if task is None and self._triggers.is_live(tx, task_id):
            raise StateRefused(
                f"{task_id} is a trigger that has no task: it has not begun, or its workflow takes no ctx. Nothing was "
                f"written. To cancel it: craftcore trigger cancel {task_id}"
            )
        if task is None:
            is_trigger = self._triggers.has_trigger(tx, task_id)
            raise NotFound(f"no task {task_id}{': it is a settled trigger that has no task' if is_trigger else ''}")
        if not task.status.is_live:
            raise StateRefused(f"task {task_id} is {task.status} ({task.reason}); nothing was written")
        return task
