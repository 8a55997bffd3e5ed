"""The engine's side of a task: entering a turn, recording what it completes, and settling it.

Each method is a rule over a transaction it is given; what a turn comes to is written by the commit that settles its
trigger, and nowhere else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from craftcore.clock import Clock
from craftcore.errors import ErrorCode, LeaseLost
from craftcore.executions.store import ExecutionStore
from craftcore.storage.transaction import Transaction
from craftcore.tasks.ending import Ending, ended
from craftcore.tasks.memo_store import MemoStore, NewEvent, StreamRow
from craftcore.tasks.model import (
    MESSAGE,
    RESUMED_BY,
    Continues,
    Entry,
    Move,
    NewQuestion,
    NewTask,
    NewWait,
    QuestionKind,
    Resume,
    Returned,
    Suspends,
    Task,
    TaskStatus,
    Wait,
)
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import Advance, TaskStore
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waiting import MAILBOX_MAX, Waiting
from craftcore.triggers.model import Claim, Emitted, NewTrigger, TriggerSource, TriggerSpec, TriggerStatus
from craftcore.triggers.service import TriggerService
from craftcore.triggers.settlement import HANDED_BACK, INTERRUPTED, Failed, Released, Settlement
from craftcore.triggers.sources import turn_key


class Start(NamedTuple):
    """A started claim that may be a task's. `is_task`: its workflow takes ctx; `deadline` in seconds, None: none."""

    claim: Claim
    workflow: str
    is_task: bool
    deadline: float | None


class Gone(NamedTuple):
    """The task that a claim was to advance needs it no more."""

    reason: str


class TurnEnd(NamedTuple):
    """How a turn ended. `move` None: it failed, or was cancelled, and `settlement` says the rest.

    `steps`: how much it took of its work budget; `claim_next`: the next turn's trigger may be born claimed;
    `was_stalled`: a person was asked about it, and need not answer any more.
    """

    entry: Entry
    settlement: Settlement
    move: Move | None
    steps: int
    claim_next: bool
    was_stalled: bool


class Followed(NamedTuple):
    """What follows a settled turn: the next one's claim, or when the trigger that goes on is due; `ended`: nothing."""

    claim: Claim | None = None
    due_at: float | None = None
    ended: bool = False


NOTHING = Followed()


class TurnService:
    """Enter, record, settle. `lease_seconds` is how long the next turn's claim holds when it is born claimed."""

    def __init__(
        self, clock: Clock, triggers: TriggerService, waiting: Waiting, ending: Ending, *, lease_seconds: float
    ) -> None:
        self._clock = clock
        self._triggers = triggers
        self._waiting = waiting
        self._ending = ending
        self._lease_seconds = lease_seconds
        self._tasks = TaskStore()
        self._waits = WaitStore()
        self._memos = MemoStore()
        self._records = ExecutionStore()
        self._questions = QuestionStore()

    # Enter

    def enter_all(self, tx: Transaction, starts: Sequence[Start]) -> list[Entry | Gone | None]:
        """What each started claim finds of its task; a task that is new is created. None: it belongs to no task."""
        fresh = [start for start in starts if start.is_task and start.claim.task_id is None and start.claim.starts == 1]
        created = iter(self._tasks.create_all(tx, [_new(start, tx.now) for start in fresh]) if fresh else ())
        entries: list[Entry | Gone | None] = []
        for start in starts:
            if start.claim.task_id is not None or start.claim.starts > 1:
                entries.append(self._enter_again(tx, start))
            else:
                entries.append(Entry(task=next(created), resume=Resume.FIRST) if start.is_task else None)
        return entries

    def _enter_again(self, tx: Transaction, start: Start) -> Entry | Gone | None:
        claim = start.claim
        task = self._tasks.get(tx, claim.task_id or claim.id)
        if task is None:
            if claim.source in (TriggerSource.CONTINUATION, TriggerSource.RESUME):
                return Gone(f"task {claim.task_id} is not there any more")
            if not start.is_task:
                return None
            [task] = self._tasks.create_all(tx, [_new(start, tx.now)])
        if not task.status.is_live:
            return Gone(f"task {task.id} is {task.status}")
        if task.trigger_id != claim.id:
            return Gone(f"task {task.id} goes on with another trigger")
        if task.status is TaskStatus.WAITING:
            self._waiting.time_is_over(tx, task)
            task = self._tasks.by_seq(tx, task.seq)
        self._questions.withdraw_all(tx, [task.seq], QuestionKind.STALLED)  # of an attempt that is over
        waits = self._waits.of_turn(tx, task.seq, task.turn)
        creator = self._tasks.creator(tx, task.id) if claim.id != task.id else None
        return Entry(
            task=task,
            resume=self._why(tx, claim, task, waits),
            payload_json=creator["payload_json"] if creator else None,
            description=creator["description"] if creator else None,
            memo=self._memos.of_turn(tx, task.seq, task.turn),
            waits={wait.name: wait for wait in waits},
        )

    def _why(self, tx: Transaction, claim: Claim, task: Task, waits: Sequence[Wait]) -> Resume:
        if claim.starts > 1:
            reason = self._tasks.trigger_reasons(tx, [claim.seq]).get(claim.seq)
            if reason == INTERRUPTED:
                return Resume.CRASH
            return Resume.RESUME if reason in HANDED_BACK else Resume.RETRY
        if claim.source == TriggerSource.RESUME:
            return Resume.RESUME
        if waits and (by := waits[-1].resolved_by) is not None:
            unasked = waits[-1].name.startswith((QuestionKind.STALE, QuestionKind.BUDGET))
            return Resume.RESUME if unasked else RESUMED_BY.get(by, Resume.RESUME)
        return Resume.FIRST if task.turn == 1 else Resume.NEXT

    # Record

    def record_all(self, tx: Transaction, events: list[NewEvent]) -> list[int | Exception]:
        """Append events to the records of running turns; an answer each: its number there. LeaseLost, and nothing
        written, for a turn that does not hold its trigger any more."""
        held = self._memos.held(tx, [(event.trigger_seq, event.lease_token) for event in events])
        kept = [event for event in events if (event.trigger_seq, event.lease_token) in held]
        last = Counter(self._records.last_events(tx, sorted({event.execution_seq for event in kept})))
        numbered: list[tuple[int, NewEvent]] = []
        answers: list[int | Exception] = []
        for event in events:
            if (event.trigger_seq, event.lease_token) not in held:
                answers.append(LeaseLost(f"the turn of record {event.execution_seq} is over; nothing was written"))
                continue
            last[event.execution_seq] += 1
            numbered.append((last[event.execution_seq], event))
            answers.append(last[event.execution_seq])
        self._memos.add_all(tx, numbered)
        return answers

    def record(self, tx: Transaction, event: NewEvent) -> int:
        """`record_all` for one. Raises LeaseLost."""
        [answer] = self.record_all(tx, [event])
        if isinstance(answer, Exception):
            raise answer
        return answer

    def emit_recorded(
        self, tx: Transaction, row: NewTrigger, event: Callable[[Emitted], NewEvent], child: NewTask | None
    ) -> Emitted:
        """Emit for a running turn, and record that it did: one commit. `child`: the task that the trigger creates.

        Raises LeaseLost, or DuplicateTrigger when the spec asked for it.
        """
        [emitted] = self._triggers.emit_all(tx, [row])
        if isinstance(emitted, Exception):
            raise emitted
        if child is not None and emitted.created:
            self._tasks.create_all(tx, [child])
        self.record(tx, event(emitted))
        return emitted

    def stream(self, tx: Transaction, task_id: str, limit: int) -> list[StreamRow]:
        """The newest events of a task, oldest of them first."""
        return self._memos.stream(tx, task_id, limit)

    def ask_stalled(self, tx: Transaction, claim: Claim, task: Task, asked: NewQuestion) -> None:
        """Ask a person about a turn that runs and completes nothing; it runs on meanwhile. Not once it is over, and not
        while somebody is asked already."""
        is_held = self._memos.held(tx, [(claim.seq, claim.lease_token)])
        if is_held and not self._questions.has_open(tx, task.seq, asked.kind):
            self._questions.ask(tx, self._clock.new_id(), task.seq, None, asked, None)

    # Settle

    def refuses_mail(self, tx: Transaction, task_id: str) -> Released | Failed | None:
        """What becomes of a message that its task cannot take: routed anew when it has ended, tried again when its
        mailbox is full. None: it takes it."""
        task = self._tasks.get(tx, task_id)
        if task is None or not task.status.is_live:
            return Released(reason=f"task {task_id} has ended")
        if self._waiting.is_full(tx, task):
            message = f"task {task_id} has {MAILBOX_MAX:,} unread mails"
            return Failed(code=ErrorCode.RATE_LIMIT, message=message, retryable=True)
        return None

    def deliver(self, tx: Transaction, claim: Claim, task_id: str) -> Followed:
        """A message reached its task, which does not refuse it."""
        task = self._tasks.get(tx, task_id)
        assert task is not None, task_id
        event = MESSAGE if claim.source == TriggerSource.MESSAGE else claim.source.lower()
        resolved = self._waiting.deliver(tx, task, event, claim.payload_json, trigger_id=claim.id, sent_by=None)
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
            due_at = self._ending.tidy(tx, over)
            if due_at is not None:
                followed = [follows._replace(due_at=due_at) if follows.ended else follows for follows in followed]
        return followed

    def _settle(self, tx: Transaction, epoch: int, end: TurnEnd) -> tuple[Advance | None, Followed]:
        """RUNNING -> DONE       it returned
                  -> RUNNING    at its next turn
                  -> WAITING    suspended, or until its next turn may begin
                  -> FAILED     its attempts are spent, or trying again cannot help
                  -> CANCELLED
        and stays as it is while its trigger goes on."""
        settlement, task, now = end.settlement, end.entry.task, tx.now
        over = Followed(ended=True)
        if settlement.status is TriggerStatus.PENDING:
            return None, NOTHING
        if settlement.status is not TriggerStatus.DONE:
            code = settlement.error_code or ErrorCode.VALIDATION_ERROR
            message = settlement.error_message or settlement.reason
            return ended(task, TaskStatus.FAILED, settlement.reason, now, code=code, message=message), over
        match end.move:
            case None:
                return ended(task, TaskStatus.CANCELLED, settlement.reason, now, code=settlement.error_code), over
            case Returned(result_json=result):
                return ended(task, TaskStatus.DONE, settlement.reason, now, result_json=result), over
            case Suspends(wait=wait):
                return self._suspend(tx, end, task.turn, None, wait)
            case Continues(state_json=state, wait=wait):
                if wait is None:
                    return self._next_turn(tx, epoch, end, state)
                return self._suspend(tx, end, task.turn + 1, state, wait)

    def _suspend(
        self, tx: Transaction, end: TurnEnd, turn: int, state: str | None, wait: NewWait
    ) -> tuple[Advance, Followed]:
        task = end.entry.task
        begun = self._waiting.begin(tx, task, turn, wait)
        turns, steps = _alone(end, turn, renews=begun.renews)
        move = Advance(
            begun.status, begun.reason, turn, state, None, None, None, begun.trigger_id, turns, steps, None, tx.now,
            task.seq, task.turn,
        )  # fmt: skip
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
        if end.claim_next:
            [claim] = self._triggers.emit_claimed(tx, [row], epoch=epoch, lease_seconds=self._lease_seconds)
            assert isinstance(claim, Claim), claim
            follows = Followed(claim=claim)
        else:
            self._triggers.emit_all(tx, [row])
            follows = Followed(due_at=row.due_at)
        turns, steps = _alone(end, turn, renews=False)
        move = Advance(
            TaskStatus.RUNNING, "continued", turn, state, None, None, None, row.id, turns, steps, None, tx.now,
            task.seq, task.turn,
        )  # fmt: skip
        return move, follows


def _new(start: Start, now: float) -> NewTask:
    claim = start.claim
    return NewTask(
        claim.id,
        start.workflow,
        claim.session_id,
        claim.schedule_id,
        None,
        claim.id,
        claim.max_attempts,
        None if start.deadline is None else now + start.deadline,
    )


def _alone(end: TurnEnd, turn: int, *, renews: bool) -> tuple[int, int]:
    """Turns and steps since the task last rested or heard from outside: what its work budget counts."""
    task = end.entry.task
    if renews:
        return 0, 0
    if turn == task.turn:
        return task.turns_alone, task.steps_alone  # the steps of a turn are counted when it is over
    return task.turns_alone + 1, task.steps_alone + end.steps
