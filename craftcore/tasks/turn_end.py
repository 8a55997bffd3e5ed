"""The end of a turn. It is written by the commit that settles its trigger, and nowhere else.

`turn_start.py` is how a turn begins, `turn_events.py` what it completes on its way.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from craftcore.errors import ErrorCode
from craftcore.storage.restored_work import RestoredWork
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import MESSAGE, Entry, NewWait, QuestionKind, Task, TaskStatus
from craftcore.tasks.outcomes import Continues, Move, Returned, Suspends
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.session_message import NewMessage, session_of
from craftcore.tasks.session_message_store import SessionMessageStore
from craftcore.tasks.store import Advance, TaskStore
from craftcore.tasks.task_end import TaskCloser, end_of_task
from craftcore.tasks.turn_stop import TurnStopper
from craftcore.tasks.waits import MAILBOX_MAX, WaitService
from craftcore.triggers.model import Claim, TriggerSource, TriggerSpec, TriggerStatus
from craftcore.triggers.service import TriggerService
from craftcore.triggers.settlement import Failed, Released, Settlement
from craftcore.triggers.sources import turn_key


class TurnEnd(NamedTuple):
    """How a turn ended. `move` None: it failed, or was cancelled, and `settlement` says the rest.

    `steps`: how much it took of its work budget. `claim_next`: the next turn's trigger may be created claimed.
    `was_stalled`: a person was asked about it, and need not answer any more. `messages`: what it appended to its
    session; stored when it is over, not when it waits or fails.
    """

    entry: Entry
    settlement: Settlement
    move: Move | None
    steps: int
    claim_next: bool
    was_stalled: bool
    messages: Sequence[NewMessage] = ()


class Followed(NamedTuple):
    """The continuation of a settled turn: the claim of the next one, or when its trigger is due; `ended`: none."""

    claim: Claim | None = None
    due_at: float | None = None
    ended: bool = False


NOTHING = Followed()


class TurnService:
    """Settle and deliver. `lease_seconds` is how long the next turn's claim holds when it is born claimed,
    `history_messages` how many messages of a session are kept."""

    def __init__(
        self,
        triggers: TriggerService,
        waiting: WaitService,
        ending: TaskCloser,
        stopping: TurnStopper,
        restored: RestoredWork,
        *,
        lease_seconds: float,
        history_messages: int,
    ) -> None:
        self._triggers = triggers
        self._waiting = waiting
        self._ending = ending
        self._stopping = stopping
        self._restored = restored
        self._lease_seconds = lease_seconds
        self._history_messages = history_messages
        self._messages = SessionMessageStore()
        self._tasks = TaskStore()
        self._questions = QuestionStore()

    def delivery_refusal(self, tx: Transaction, task_id: str) -> Released | Failed | None:
        """Return what becomes of a message that its task cannot take: routed again when the task has ended, tried again
        when its mailbox is full. None: the task takes it."""
        task = self._tasks.get(tx, task_id)
        if task is None or not task.status.is_live:
            return Released(reason=f"task {task_id} has ended")
        if self._waiting.is_full(tx, task):
            message = f"task {task_id} has {MAILBOX_MAX:,} unread mails"
            return Failed(code=ErrorCode.RATE_LIMIT, message=message, retryable=True)
        return None

    def deliver(self, tx: Transaction, claim: Claim, task_id: str) -> Followed:
        """Leave a trigger in the mailbox of a task; what follows. One that names the session comes as a message,
        whatever its source. One that names the task, or that a router sent, comes as an event called like its source,
        in small letters."""
        task = self._tasks.get(tx, task_id)
        assert task is not None, task_id
        by_session = claim.session_id is not None and claim.task_id != task_id
        is_message = claim.source == TriggerSource.MESSAGE or by_session
        event = MESSAGE if is_message else claim.source.lower()
        resolved = self._waiting.deliver(tx, task, event, claim.payload_json, trigger_id=claim.id, sent_by=None)
        self._restored.mark(tx, claim.id, task_id)
        return Followed(due_at=tx.now) if resolved else NOTHING

    def settle_all(self, tx: Transaction, epoch: int, ends: Sequence[TurnEnd]) -> list[Followed]:
        """Write what each settled turn comes to; what follows each."""
        moves: list[Advance] = []
        over: list[Task] = []
        followed: list[Followed] = []
        for end in ends:
            move, follows = self._settle(tx, epoch, end)
            followed.append(follows)
            if move is not None:
                moves.append(move)
                if follows.ended:
                    over.append(end.entry.task)
        self._tasks.advance_all(tx, moves)
        if stalled := [end.entry.task.seq for end in ends if end.was_stalled]:
            self._questions.withdraw_all(tx, stalled, QuestionKind.STALLED)
        if over:
            alone = {end.entry.task.seq for end in ends if not end.entry.still_open}
            due_at = self._ending.close(tx, over, without_waits=alone)
            if due_at is not None:
                followed = [follows._replace(due_at=due_at) if follows.ended else follows for follows in followed]
        return followed

    def _settle(self, tx: Transaction, epoch: int, end: TurnEnd) -> tuple[Advance | None, Followed]:
        """Settle the trigger and move its task. The task stays as it is while its trigger goes on.

        RUNNING -> DONE       it returned
                -> RUNNING    at its next turn
                -> WAITING    suspended, or until its next turn may begin
                -> FAILED     its attempts are spent, or trying again cannot help
                -> CANCELLED, or WAITING for its next turn when its turn was stopped
        """
        settlement, task, now = end.settlement, end.entry.task, tx.now
        over = Followed(ended=True)
        if settlement.status is TriggerStatus.PENDING:
            return None, NOTHING
        if settlement.status is not TriggerStatus.DONE:
            code = settlement.error_code or ErrorCode.VALIDATION_ERROR
            message = settlement.error_message or settlement.reason
            return end_of_task(task, TaskStatus.FAILED, settlement.reason, now, code=code, message=message), over
        match end.move:
            case None:
                if (begun := self._stopping.advance_stopped(tx, task.seq)) is not None:
                    return None, Followed(due_at=begun.due_at)
                return end_of_task(task, TaskStatus.CANCELLED, settlement.reason, now, code=settlement.error_code), over
            case Returned(result_json=result):
                self._append_messages(tx, end)
                return end_of_task(task, TaskStatus.DONE, settlement.reason, now, result_json=result), over
            case Suspends(wait=wait):
                return self._suspend(tx, end, task.turn, None, wait)
            case Continues(state_json=state, wait=wait):
                self._append_messages(tx, end)
                if end.entry.still_open:
                    self._waiting.end_open(tx, task.seq)
                if wait is None:
                    return self._next_turn(tx, epoch, end, state)
                return self._suspend(tx, end, task.turn + 1, state, wait)

    def _append_messages(self, tx: Transaction, end: TurnEnd) -> None:
        if end.messages:
            task = end.entry.task
            self._messages.append_all(
                tx, session_of(task), task.id, task.turn, end.messages, kept=self._history_messages
            )

    def _suspend(
        self, tx: Transaction, end: TurnEnd, turn: int, state: str | None, wait: NewWait
    ) -> tuple[Advance, Followed]:
        task = end.entry.task
        begun = self._waiting.begin(tx, task, turn, wait, end.entry.still_open if turn == task.turn else ())
        turns, steps = _since_input(end, turn, renews=begun.renews)
        move = Advance(
            task.seq, task.turn, tx.now, begun.status, begun.reason, turn, begun.trigger_id, turns, steps, state
        )
        return move, Followed(due_at=begun.due_at)

    def _next_turn(self, tx: Transaction, epoch: int, end: TurnEnd, state: str) -> tuple[Advance, Followed]:
        task = end.entry.task
        turn = task.turn + 1
        row = self._triggers.accept(
            TriggerSpec(
                workflow=task.workflow,
                source=TriggerSource.CONTINUATION,
                task_id=task.id,
                session_id=task.session_id,
                max_attempts=task.max_attempts,
                dedup_key=turn_key(task.id, turn),
            )
        )
        others_wait = task.session_id is not None and self._triggers.is_anybody_waiting(tx, task.session_id)
        if end.claim_next and not others_wait:
            [claim] = self._triggers.emit_claimed(tx, [row], epoch=epoch, lease_seconds=self._lease_seconds)
            assert isinstance(claim, Claim), claim
            follows = Followed(claim=claim)
        else:
            self._triggers.emit_all(tx, [row])
            follows = Followed(due_at=row.due_at)
        turns, steps = _since_input(end, turn, renews=False)
        move = Advance(task.seq, task.turn, tx.now, TaskStatus.RUNNING, "continued", turn, row.id, turns, steps, state)
        return move, follows


def _since_input(end: TurnEnd, turn: int, *, renews: bool) -> tuple[int, int]:
    """Return the turns and steps since the task last rested or got external input: its work budget counts them."""
    task = end.entry.task
    if renews:
        return 0, 0
    if turn == task.turn:
        return task.turns_alone, task.steps_alone  # the steps of a turn are counted when it is over
    return task.turns_alone + 1, task.steps_alone + end.steps
