"""The rules of a wait: begun once, resolved once, and one wake-up trigger that is pulled forward when it is.

begin    a row, and a trigger for its end if it has one; resolved at once when its event or answer has come before;
         what tasks of the turn wait for beside it stays open, under its rows
resolve  the row, and the trigger that continues the turn: one commit; its alternatives end without a value; only the
         row while the turn runs for something that came before
deliver  into the mailbox; and out of it again, when a wait for that event exists
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Sequence
from typing import NamedTuple

from craftcore.activities.store import ActivityStore
from craftcore.clock import Clock
from craftcore.storage.transaction import Transaction, get_single_result
from craftcore.tasks.mailbox_store import Mail, MailStore
from craftcore.tasks.model import (
    BESIDE,
    MESSAGE,
    NewWait,
    QuestionStatus,
    ResolvedBy,
    Task,
    TaskStatus,
    Wait,
    WaitKind,
)
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.tasks.wait_rules import (
    WaitEnd,
    end_by_mail,
    end_by_time,
    find_first_due,
    is_rest,
    may_answer,
    write_task_end,
)
from craftcore.tasks.wait_store import WaitStore
from craftcore.triggers.model import TriggerSource, TriggerSpec
from craftcore.triggers.operator_store import OperatorStore
from craftcore.triggers.service import TriggerService
from craftcore.triggers.sources import wake_key

MAILBOX_MAX = 10_000
"""Unread messages of one task; more are refused."""


class StartedWait(NamedTuple):
    """The result of beginning a wait. `due_at`: when its trigger is due, None when it has none."""

    status: TaskStatus
    reason: str
    trigger_id: str | None
    due_at: float | None
    renews: bool


class WaitService:
    """Begin and resolve waits. Each method is a rule over a transaction it is given."""

    def __init__(self, clock: Clock, triggers: TriggerService) -> None:
        self._clock = clock
        self._triggers = triggers
        self._tasks = TaskStore()
        self._waits = WaitStore()
        self._questions = QuestionStore()
        self._mails = MailStore()
        self._activities = ActivityStore()
        self._operators = OperatorStore()

    def begin(
        self, tx: Transaction, task: Task, turn: int, new: NewWait, still_open: Collection[str] = ()
    ) -> StartedWait:
        """Write the wait of a task that will enter this turn when it is over. The task's own row is the caller's.

        `still_open`: the waits of this turn that were open when its code was entered. They stay open beside this one.
        """
        if still_open and (come := self._waits.find_come(tx, task.seq, turn, still_open)) is not None:
            return self._go_on_at_once(tx, task, come, is_beside=True)  # while the turn was on its way here
        is_beside = bool(new.beside or still_open)
        begun = [one for group in (new, *new.beside) for one in (group, *group.others)]
        waits = [self._open(tx, task, turn, one, is_beside) for one in begun]
        over: Wait | None = None
        for wait, one in zip(waits, begun, strict=True):
            if over is not None and (not is_beside or wait.any_of == over.any_of != BESIDE):
                continue
            if self._resolve_from_mailbox(tx, task, wait, one.question.activity_seq if one.question else None):
                self._end_alternatives(tx, wait)
                over = wait
        if over is not None:
            return self._go_on_at_once(tx, task, waits[0], is_beside=is_beside)
        if is_beside:
            waits = self._waits.list_open(tx, task.seq)
        ends = [moment for moment in (*(wait.due_at for wait in waits), task.deadline_at) if moment is not None]
        due_at = min(ends, default=None)
        timer = None if due_at is None else self._emit(tx, task, waits[0], due_at, is_beside=is_beside)
        return StartedWait(TaskStatus.WAITING, waits_text(waits), timer, due_at, False)

    def _go_on_at_once(self, tx: Transaction, task: Task, wait: Wait, *, is_beside: bool) -> StartedWait:
        trigger_id = self._emit(tx, task, wait, tx.now, is_beside=is_beside)
        return StartedWait(TaskStatus.RUNNING, "its wait had ended", trigger_id, tx.now, True)

    def _open(self, tx: Transaction, task: Task, turn: int, new: NewWait, is_beside: bool) -> Wait:
        wait_id = self._clock.new_id()
        any_of = BESIDE if is_beside and new.any_of is None else new.any_of
        wait = self._waits.open(tx, wait_id, task.seq, turn, new, any_of)
        if new.question is not None and wait.id == wait_id:  # else it is asked already
            self._questions.ask(tx, self._clock.new_id(), task.seq, wait.seq, new.question, new.due_at)
        return wait

    def _end_alternatives(self, tx: Transaction, first: Wait) -> None:
        """End the alternatives of a wait that has just been resolved. Their questions are withdrawn."""
        if first.any_of is not None and first.any_of != BESIDE:
            self._end_open(tx, first.task_seq, first.any_of)

    def end_open(self, tx: Transaction, task_seq: int) -> None:
        """End what a turn that is over still waits for. Its questions are withdrawn."""
        self._end_open(tx, task_seq, None)

    def _end_open(self, tx: Transaction, task_seq: int, any_of: str | None) -> None:
        for seq in self._waits.end_open(tx, task_seq, any_of):
            self._questions.close(tx, task_seq, seq, QuestionStatus.WITHDRAWN)

    def resolve(self, tx: Transaction, task: Task, wait: Wait, cause: ResolvedBy, value_json: str) -> bool:
        """End a wait, and let its turn go on at once, unless it runs for what came before. False when something else
        came first."""
        if not self._waits.resolve(tx, wait.seq, cause, value_json):
            return False
        self._end_alternatives(tx, wait)
        if task.status is not TaskStatus.WAITING:
            return True
        timer = task.trigger_id
        if timer is None or not self._operators.pull_forward(tx, timer):
            timer = self._emit(tx, task, self._waits.find_first(tx, wait), tx.now)
        self._tasks.wake(tx, task.seq, timer, f"woken: {cause}", renews=True)
        return True

    def time_is_over(self, tx: Transaction, task: Task) -> None:
        """End the wait whose timer was started, unless it was resolved before.

        At the deadline of the task, before its own time, it ends with the task: a task that is tried again waits
        again.
        """
        wait = find_first_due(self._waits.list_open(tx, task.seq))
        if wait is None:
            return
        question = self._questions.find_of_wait(tx, task.seq, wait.seq)
        if question is None and wait.kind is WaitKind.QUESTION:
            raise ValueError(f"the question of wait {wait.name} is not open any more")  # a corrupt row: set aside
        end = end_by_time(question)
        if task.deadline_at is not None and task.deadline_at <= tx.now < (wait.due_at or math.inf):
            end = WaitEnd(ResolvedBy.END, "null")
        self._waits.resolve(tx, wait.seq, end.cause, end.value_json)
        if question is not None:
            self._questions.close(tx, task.seq, wait.seq, QuestionStatus.EXPIRED)
        self._end_alternatives(tx, wait)
        if end.cause is ResolvedBy.TIMER and wait.any_of == BESIDE:
            self._end_others_due(tx, task)
        assert task.trigger_id is not None, task
        self._tasks.wake(tx, task.seq, task.trigger_id, "woken: timer", renews=is_rest(wait, tx.now))

    def _end_others_due(self, tx: Transaction, task: Task) -> None:
        """End the waits beside the first one whose time is over, too: one entry of the turn serves them all."""
        for wait in self._waits.list_open(tx, task.seq):
            if wait.any_of == BESIDE and wait.due_at is not None and wait.due_at <= tx.now:
                end = end_by_time(self._questions.find_of_wait(tx, task.seq, wait.seq))
                self._waits.resolve(tx, wait.seq, end.cause, end.value_json)
                self._questions.close(tx, task.seq, wait.seq, QuestionStatus.EXPIRED)

    def deliver(
        self,
        tx: Transaction,
        task: Task,
        event: str,
        payload_json: str,
        *,
        trigger_id: str | None,
        sent_by: str | None,
    ) -> bool:
        """Leave a message or signal for a live task; whether it resolved what the task waits for.

        The caller, who can still refuse, has checked that the mailbox is not full.
        """
        mail = self._mails.put(tx, task.seq, event, payload_json, trigger_id=trigger_id, sent_by=sent_by)
        for wait in self._waits.list_open(tx, task.seq):
            if (end := self._end_by(tx, wait, mail)) is not None:
                return self.resolve(tx, task, wait, end.cause, end.value_json)
        return False

    def is_full(self, tx: Transaction, task: Task) -> bool:
        return self._mails.count_unread(tx, task.seq, MAILBOX_MAX) >= MAILBOX_MAX

    def _resolve_from_mailbox(self, tx: Transaction, task: Task, wait: Wait, activity_seq: int | None) -> bool:
        """Resolve a wait by what is there already."""
        if activity_seq is not None and not self._activities.get_by_seq(tx, activity_seq).is_open:
            self._questions.withdraw_about(tx, [activity_seq])  # somebody decided while the turn was on its way here
            return self._waits.resolve(tx, wait.seq, ResolvedBy.ANSWER, "null")
        match wait.kind:
            case WaitKind.CHILD:
                child = self._tasks.get(tx, wait.event or "")
                if child is None or child.status.is_live:
                    return False
                return self._waits.resolve(tx, wait.seq, ResolvedBy.CHILD, end_text(child))
            case WaitKind.EVENT | WaitKind.QUESTION:
                event = wait.event if wait.kind is WaitKind.EVENT else MESSAGE
                for mail in self._mails.list_unread_of(tx, task.seq, event or ""):
                    json.loads(mail.payload_json)  # a mail that is none is set aside, and not brought
                    if (end := self._end_by(tx, wait, mail)) is not None:
                        return self._waits.resolve(tx, wait.seq, end.cause, end.value_json)
        return False

    def _end_by(self, tx: Transaction, wait: Wait, mail: Mail) -> WaitEnd | None:
        """Return how this mail ends this wait, and note that it was read. None when it does not."""
        question = None
        if may_answer(wait, mail.event) and self._mails.is_of_person(tx, mail):
            question = self._questions.find_of_wait(tx, wait.task_seq, wait.seq)
        end = end_by_mail(wait, mail.event, mail.payload_json, question)
        if end is not None:
            if end.answer is not None and question is not None:
                sender = mail.sent_by or "a signal" if mail.trigger_id is None else f"message {mail.trigger_id}"
                self._questions.answer(tx, question.seq, end.answer, note=None, answered_by=sender)
            self._mails.read(tx, mail, wait.seq)
        return end

    def _emit(self, tx: Transaction, task: Task, wait: Wait, at: float, *, is_beside: bool = False) -> str:
        """Return the one trigger that goes on with the turn of this wait. `is_beside`: the wait may outlast it."""
        spec = TriggerSpec(
            workflow=task.workflow,
            source=TriggerSource.CONTINUATION,
            task_id=task.id,
            session_id=task.session_id,
            at=at,
            max_attempts=task.max_attempts,
            dedup_key=wake_key(wait.id, self._clock.new_id() if is_beside else None),
        )
        row = self._triggers.accept(spec)._replace(at_given=bool(wait.at_given) and at == wait.due_at)
        return get_single_result(self._triggers.emit_all(tx, [row])).id


def end_text(task: Task) -> str:
    """Return how a task ended, as its parent receives it."""
    return write_task_end(task.status, task.result_json, task.error_code, task.error_message)


def waits_text(waits: Sequence[Wait]) -> str:
    """Return the reason of a task that waits: for the one, for the first of several, or for several beside each
    other."""
    if len(waits) == 1:
        return wait_text(waits[0])
    known = {wait.any_of if wait.any_of != BESIDE else wait.name for wait in waits}
    return f"waits for the first of {len(waits)}" if len(known) == 1 else f"waits for any of {len(known)}"


def wait_text(wait: Wait) -> str:
    """Return `waits for the event approved`: the reason of a task that waits."""
    match wait.kind:
        case WaitKind.TIMER:
            return "waits for its time"
        case WaitKind.EVENT:
            return f"waits for the event {wait.event}"
        case WaitKind.CHILD:
            return f"waits for task {wait.event}"
        case WaitKind.QUESTION:
            return "waits for an answer"
