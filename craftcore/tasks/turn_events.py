"""The events of a turn: each is committed alone or with its effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from craftcore.clock import Clock
from craftcore.errors import LeaseLost, StateRefused
from craftcore.executions.event_store import EventStore
from craftcore.executions.store import ExecutionStore
from craftcore.storage.restored_work import MadeKind, RestoredWork
from craftcore.storage.transaction import Transaction, get_single_result
from craftcore.tasks.message_store import MessageStore
from craftcore.tasks.model import NewQuestion, NewTask, Task
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.tasks.turn_event_store import MemoStore, NewEvent
from craftcore.triggers.derived_ids import is_derived
from craftcore.triggers.model import Claim, Emitted, NewTrigger
from craftcore.triggers.service import TriggerService


class TurnRecorder:
    """Record for turns that run. Each method is a rule over a transaction it is given."""

    def __init__(self, clock: Clock, triggers: TriggerService, restored: RestoredWork) -> None:
        self._clock = clock
        self._triggers = triggers
        self._restored = restored
        self._tasks = TaskStore()
        self._memos = MemoStore()
        self._records = ExecutionStore()
        self._events = EventStore()
        self._questions = QuestionStore()
        self._messages = MessageStore()

    def record_all(self, tx: Transaction, events: list[NewEvent]) -> list[int | Exception]:
        """Append events to the records of running turns; an answer each: its number there. LeaseLost, and nothing
        written, for a turn that does not hold its trigger any more."""
        held = self._memos.held_leases(tx, [(event.trigger_seq, event.lease_token) for event in events])
        kept = [event for event in events if (event.trigger_seq, event.lease_token) in held]
        numbers = iter(self.append_all(tx, kept))
        return [
            next(numbers)
            if (event.trigger_seq, event.lease_token) in held
            else LeaseLost(f"the turn of record {event.execution_seq} is over; nothing was written")
            for event in events
        ]

    def append_all(self, tx: Transaction, events: list[NewEvent]) -> list[int]:
        """Return the same for turns that are known to hold their triggers, or records known to be open."""
        if not events:
            return []
        last = Counter(self._events.newest_numbers(tx, sorted({event.execution_seq for event in events})))
        numbers = []
        for event in events:
            last[event.execution_seq] += 1
            numbers.append(last[event.execution_seq])
        self._memos.add_all(tx, list(zip(numbers, events, strict=True)))
        return numbers

    def record(self, tx: Transaction, event: NewEvent) -> int:
        """Record one event: `record_all` for one. Raises LeaseLost."""
        return get_single_result(self.record_all(tx, [event]))

    def append_to_open(self, tx: Transaction, events: Sequence[tuple[int, int, int, str, str, int]]) -> None:
        """Append events (record, task, turn, type, text, activity) to those of these records that are still open, while
        nothing runs."""
        is_open = self._records.list_open(tx, [seq for seq, *_ in events])
        self.append_all(
            tx,
            [
                NewEvent(0, "", seq, task_seq, turn, type_, text, None, activity_seq)
                for seq, task_seq, turn, type_, text, activity_seq in events
                if seq in is_open
            ],
        )

    def emit_recorded(
        self, tx: Transaction, row: NewTrigger, event: Callable[[Emitted], NewEvent], child: NewTask | None
    ) -> Emitted:
        """Emit for a running turn, and record that it did: one commit. `child`: the task that the trigger creates.

        Raises LeaseLost, or DuplicateTrigger when the spec asked for it.
        """
        emitted = get_single_result(self._triggers.emit_all(tx, [row]))
        if child is not None and emitted.created:
            self._tasks.create_all(tx, [child])
        record = event(emitted)
        self.record(tx, record)
        # Anybody may have held a dedup key in the lost file, by another id.
        same_id = emitted.created and row.dedup_key is None and (row.id_given or is_derived(row.id))
        self.mark_made(tx, record, emitted.id, same_id=same_id)
        return emitted

    def reply(
        self, tx: Transaction, task: Task, wait_seqs: Sequence[int], reply_json: str, event: NewEvent, is_first: bool
    ) -> None:
        """Answer what a running turn has received and has not answered, and record it. Raises LeaseLost, or
        StateRefused when there is nothing to answer. `is_first` False, for a later agent: an earlier one may have
        replied, and nothing is written then."""
        self.record(tx, event)
        answered = self._messages.reply(tx, task.seq, task.turn, wait_seqs, reply_json)
        if not answered and is_first:
            raise StateRefused(
                f"turn {task.turn} of task {task.id} has nothing to reply to: what it received has its reply, or it "
                "was begun by no message"
            )

    def mark_made(
        self, tx: Transaction, event: NewEvent, made_id: str, *, kind: MadeKind = "trigger", same_id: bool = False
    ) -> None:
        """Mark what the turn of this event has made or signalled, if the file was restored and the task is in doubt."""
        if self._restored.is_possible(tx):
            maker = self._tasks.get_by_seq(tx, event.task_seq)
            self._restored.mark(tx, maker.id, made_id, kind=kind, same_id=same_id)

    def set_progress(self, tx: Transaction, claim: Claim, task_seq: int, progress_json: str) -> None:
        """Store how far a running turn has come. Raises LeaseLost for one that does not hold its trigger any more."""
        if not self._memos.held_leases(tx, [(claim.seq, claim.lease_token)]):
            raise LeaseLost(f"the turn of trigger {claim.id} is over; nothing was written")
        self._tasks.set_progress(tx, task_seq, progress_json)

    def ask_stalled(self, tx: Transaction, claim: Claim, task: Task, asked: NewQuestion) -> None:
        """Ask a person about a turn that runs and completes nothing; it runs on meanwhile. Nothing is asked once it is
        over, or while a question is open."""
        is_held = self._memos.held_leases(tx, [(claim.seq, claim.lease_token)])
        if is_held and not self._questions.has_open(tx, task.seq, asked.kind):
            self._questions.ask(tx, self._clock.new_id(), task.seq, None, asked, None)
