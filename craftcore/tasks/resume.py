"""The resume contract: what a boot does with the tasks an earlier daemon left behind.

ended          never resumed
WAITING        stays as it is, and its timer with it
RUNNING        goes on with its trigger, which was reclaimed; one whose trigger is gone gets a RESUME
               interrupted longer ago than `resume_max_age`, however many boots there were since: a person is asked
               first
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.plurals import format_count
from craftcore.storage.facts import set_fact
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import CANCEL, GO_ON, NewQuestion, NewWait, QuestionKind, Task, TaskStatus, WaitKind
from craftcore.tasks.service import TaskService
from craftcore.tasks.store import Advance, TaskStore
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import WaitService
from craftcore.triggers.model import TriggerSource, TriggerStatus
from craftcore.triggers.operator_store import OperatorStore
from craftcore.triggers.settlement import HANDED_BACK, RECLAIMED

NAMED_MAX = 20
"""How many tasks a restart notice names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumed:
    """The ids of tasks after this boot: those that go on with their trigger, those that got a RESUME, and those that
    wait for a person after a long interruption."""

    reclaimed: tuple[str, ...]
    resumed: tuple[str, ...]
    stale: tuple[str, ...]

    @property
    def is_anything(self) -> bool:
        return bool(self.reclaimed or self.resumed or self.stale)

    def notice(self) -> dict[str, Any]:
        """Return the payload of the restart notice."""
        named = [*self.resumed, *self.reclaimed, *self.stale][:NAMED_MAX]
        return {
            "kind": "restart",
            "resumed": len(self.resumed) + len(self.reclaimed),
            "stale": len(self.stale),
            "tasks": named,
        }


class ResumeContract:
    """The resume contract: the rules for tasks at a boot. `max_age` in seconds."""

    def __init__(self, tasks: TaskService, waiting: WaitService, *, max_age: float) -> None:
        self._service = tasks
        self._waiting = waiting
        self._max_age = max_age
        self._tasks = TaskStore()
        self._waits = WaitStore()

    def resume(self, tx: Transaction, epoch: int) -> Resumed:
        """Let every RUNNING task go on, once. In the commit that reclaimed the triggers of earlier epochs, after it."""
        reclaimed: list[str] = []
        resumed: list[str] = []
        stale: list[str] = []
        for row in self._tasks.list_running(tx):
            has_trigger = row["trigger_status"] in (TriggerStatus.PENDING, TriggerStatus.CLAIMED)
            was_reclaimed = has_trigger and row["trigger_reason"] in (*RECLAIMED, *HANDED_BACK)
            was_resumed = has_trigger and row["trigger_source"] == TriggerSource.RESUME and not row["trigger_reason"]
            if has_trigger and not (was_reclaimed or was_resumed):
                continue  # it waits for its turn or for the end of a backoff
            rested_until = min(row["trigger_due_at"] or 0.0, tx.now)  # a backoff is no staleness
            touched_at = max(row["updated_at"], row["last_event_at"] or 0.0, rested_until)
            task = self._tasks.get_by_seq(tx, row["seq"])
            if tx.now - touched_at > self._max_age:
                self._suspend(tx, task, epoch, touched_at, row["trigger_seq"] if has_trigger else None)
                stale.append(task.id)
            elif row["trigger_reason"] in HANDED_BACK or (was_reclaimed and row["trigger_updated_at"] == tx.now):
                reclaimed.append(task.id)
            elif not has_trigger:  # else an earlier boot let it go on, and ended before it did
                self._tasks.wake(tx, task.seq, self._service.resume(tx, task), "resumed after a restart", renews=False)
                resumed.append(task.id)
        found = Resumed(reclaimed=tuple(reclaimed), resumed=tuple(resumed), stale=tuple(stale))
        if found.is_anything:
            set_fact(tx, "restart", canonicalize({**found.notice(), "at": tx.now, "epoch": epoch}))
        return found

    def _suspend(self, tx: Transaction, task: Task, epoch: int, touched_at: float, trigger_seq: int | None) -> None:
        """Suspend the turn until an operator answers, and settle its trigger."""
        if trigger_seq is not None:
            OperatorStore().settle_unstarted(tx, trigger_seq, f"parked: task {task.id} is stale")
        asked = make_stale_question(task, tx.now - touched_at)
        wait = NewWait(name=f"{QuestionKind.STALE}:{epoch}", kind=WaitKind.QUESTION, question=asked)
        still_open = {one.name for one in self._waits.list_open(tx, task.seq)}
        begun = self._waiting.begin(tx, task, task.turn, wait, still_open)
        move = Advance(
            task.seq, task.turn, tx.now, TaskStatus.WAITING, "stale: waits for an answer", task.turn,
            begun.trigger_id, task.turns_alone, task.steps_alone,
        )  # fmt: skip
        self._tasks.advance_all(tx, [move])


def make_stale_question(task: Task, seconds: float) -> NewQuestion:
    """Return the question whether a task goes on after an interruption of some seconds."""
    ago = format_count(round(seconds / 3600), "hour")
    return NewQuestion(
        kind=QuestionKind.STALE,
        question=f"Task {task.id} ({task.workflow}) was interrupted {ago} ago. Go on with it?",
        options=(GO_ON, CANCEL),
    )
