"""Stop the turn of a task, and keep the task: it waits for what begins its next turn."""

from __future__ import annotations

from craftcore.errors import NotFound, StateRefused
from craftcore.storage.transaction import Transaction
from craftcore.tasks.activity_events import ActivityEvents
from craftcore.tasks.message_store import MessageStore
from craftcore.tasks.model import CONTINUED, MESSAGE, NewWait, Task, WaitKind
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import Advance, TaskStore
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import StartedWait, WaitService
from craftcore.triggers.service import TriggerService


class TurnStopper:
    """Stop turns. Each method is a rule over a transaction it is given."""

    def __init__(self, triggers: TriggerService, waiting: WaitService, acts: ActivityEvents) -> None:
        self._triggers = triggers
        self._waiting = waiting
        self._acts = acts
        self._tasks = TaskStore()
        self._waits = WaitStore()
        self._questions = QuestionStore()
        self._messages = MessageStore()

    def stop(self, tx: Transaction, task: Task, reason: str) -> None:
        """Stop the turn of a live task: at once when its code does not run, else at its next await.

        Raises StateRefused when no turn has begun, or when nothing could begin another.
        """
        if self._next_wait(tx, task) is None:
            raise StateRefused(
                f"the turn of task {task.id} was begun by no wait and by no message, so nothing would begin another; "
                f"nothing was written. To end the task: craftcore task cancel {task.id}"
            )
        if any(wait.name == CONTINUED for wait in self._waits.list_open(tx, task.seq)):
            raise StateRefused(f"task {task.id} {task.reason}: no turn of it has begun; nothing was written")
        self._tasks.set_stopped_turn(tx, task.seq, task.turn)
        try:
            if task.trigger_id is not None:
                self._triggers.cancel(tx, task.trigger_id, reason)  # whoever settles it asks `advance_stopped`
                return
        except (NotFound, StateRefused):
            pass  # nothing of it runs or will
        self.advance_stopped(tx, task.seq)

    def advance_stopped(self, tx: Transaction, task_seq: int) -> StartedWait | None:
        """Let a task wait for its next turn, if the one that has ended was stopped. Its state stays as the turn found
        it. None: its turn was not stopped, and nothing was written."""
        task = self._tasks.get_by_seq(tx, task_seq)
        if task.stopped_turn != task.turn or (wait := self._next_wait(tx, task)) is None:
            return None
        received = [wait.seq for wait in self._waits.list_of_turn(tx, task.seq, task.turn)]
        self._messages.give_up(tx, received, "its turn was stopped")
        self._waits.end_open(tx, task.seq)
        self._questions.withdraw_all(tx, [task.seq])
        self._acts.ask_at_stop(tx, task.seq)
        turn = task.turn + 1
        begun = self._waiting.begin(tx, task, turn, wait)
        move = Advance(task.seq, task.turn, tx.now, begun.status, begun.reason, turn, begun.trigger_id, 0, 0)
        self._tasks.advance_all(tx, [move])
        return begun

    def _next_wait(self, tx: Transaction, task: Task) -> NewWait | None:
        """Return what begins the next turn: the same as this one, else a message of the session. None: nothing."""
        for wait in self._waits.list_of_turn(tx, task.seq, task.turn):
            if wait.name == CONTINUED and wait.kind in (WaitKind.EVENT, WaitKind.TIMER):
                due_at = None if wait.due_at is None else tx.now + max(0.0, wait.due_at - wait.created_at)
                return NewWait(name=CONTINUED, kind=wait.kind, event=wait.event, due_at=due_at)
        if task.session_id is not None:
            return NewWait(name=CONTINUED, kind=WaitKind.EVENT, event=MESSAGE)
        return None
