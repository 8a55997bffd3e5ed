"""How a turn begins: what it finds of its task, and why it is entered. In the commit that starts its trigger."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from craftcore.executions.trigger_view import Creator
from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import (
    CONTINUED,
    Entry,
    NewTask,
    QuestionKind,
    RecordedStop,
    Resume,
    Task,
    TaskStatus,
    Wait,
    resolution_order,
)
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.store import TaskStore
from craftcore.tasks.stream_store import StreamStore
from craftcore.tasks.turn_event_store import CONTINUES_ATTEMPT, FAILURE_MARK, MemoStore, split_failures
from craftcore.tasks.wait_rules import resume_after
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import WaitService
from craftcore.triggers.model import OWN_SOURCES, Claim, TriggerSource
from craftcore.triggers.settlement import HANDED_BACK, INTERRUPTED


class TurnStart(NamedTuple):
    """A started claim that may be a task's. `is_task`: it begins one; `deadline` in seconds, None: none."""

    claim: Claim
    workflow: str
    is_task: bool
    deadline: float | None


class StaleTurn(NamedTuple):
    """The task that a claim was to advance needs it no more."""

    reason: str


class TurnStarter:
    """Enter turns. Each method is a rule over a transaction it is given."""

    def __init__(self, waiting: WaitService) -> None:
        self._waiting = waiting
        self._tasks = TaskStore()
        self._waits = WaitStore()
        self._memos = MemoStore()
        self._questions = QuestionStore()
        self._streams = StreamStore()

    def enter_all(self, tx: Transaction, starts: Sequence[TurnStart]) -> list[Entry | StaleTurn | None]:
        """Return what each started claim finds of its task; a new task is created. None: it belongs to no task."""
        fresh = [start for start in starts if start.is_task and start.claim.task_id is None and start.claim.starts == 1]
        created = iter(self._tasks.create_all(tx, [_new_task_row(start, tx.now) for start in fresh]) if fresh else ())
        entries: list[Entry | StaleTurn | None] = []
        for start in starts:
            if start.claim.task_id is not None or start.claim.starts > 1:
                entries.append(self._enter_again(tx, start))
            else:
                entries.append(Entry(task=next(created), resume=Resume.FIRST) if start.is_task else None)
        return entries

    def _enter_again(self, tx: Transaction, start: TurnStart) -> Entry | StaleTurn | None:
        claim = start.claim
        task = self._tasks.get(tx, claim.task_id or claim.id)
        if task is None:
            if claim.task_id is not None and claim.source in OWN_SOURCES:
                return StaleTurn(f"task {claim.task_id} is not there any more")
            if not start.is_task:
                return None
            [task] = self._tasks.create_all(tx, [_new_task_row(start, tx.now)])
        if not task.status.is_live:
            return StaleTurn(f"task {task.id} is {task.status}")
        if task.trigger_id != claim.id:
            return StaleTurn(f"task {task.id} goes on with another trigger")
        if task.status is TaskStatus.WAITING:
            self._waiting.time_is_over(tx, task)
            task = self._tasks.get_by_seq(tx, task.seq)
        if task.deadline_at is None and start.deadline is not None:  # a child's first start, or the first after a retry
            task = replace(task, deadline_at=tx.now + start.deadline)
            self._tasks.set_deadline(tx, task)
        self._questions.withdraw_all(tx, [task.seq], QuestionKind.STALLED)  # of an attempt that is over
        begun = self._waits.list_of_turn(tx, task.seq, task.turn)
        waits = sorted((wait for wait in begun if not wait.is_open), key=resolution_order)
        creator = self._tasks.creator(tx, task.id) if claim.id != task.id else None
        resume = self._entry_reason(tx, claim, task, waits)
        memo, streams = self._memos.read_turn(tx, task.seq, task.turn)
        failures: dict[str, int] = {}
        if any(FAILURE_MARK in name for name in memo):
            goes_on = claim.starts > 1 and resume in CONTINUES_ATTEMPT
            since = self._memos.find_attempt_start(tx, claim.id) if goes_on else math.inf
            memo, failures = split_failures(memo, since)
        return Entry(
            task=task,
            stopped=self._read_stop(tx, task) if task.stopped_turn == task.turn - 1 else None,
            resume=resume,
            creator=Creator(**creator) if creator else None,
            memo=memo,
            failures=failures,
            waits={wait.name: wait for wait in waits},
            streams=streams,
            still_open=frozenset(wait.name for wait in begun if wait.is_open),
        )

    def _read_stop(self, tx: Transaction, task: Task) -> RecordedStop:
        turn = task.turn - 1
        began = [wait for wait in self._waits.list_of_turn(tx, task.seq, turn) if wait.name == CONTINUED]
        return RecordedStop(
            turn,
            began[0].value_json if began else None,
            tuple(self._memos.list_steps_of_turn(tx, task.seq, turn)),
            self._streams.read_turn(tx, task.id, turn),
        )

    def _entry_reason(self, tx: Transaction, claim: Claim, task: Task, waits: Sequence[Wait]) -> Resume:
        if claim.starts > 1:
            reason = self._tasks.trigger_reasons(tx, [claim.seq]).get(claim.seq)
            if reason == INTERRUPTED:
                return Resume.CRASH
            return Resume.RESUME if reason in HANDED_BACK else Resume.RETRY
        if claim.source == TriggerSource.RESUME:
            return Resume.RESUME
        if waits:
            return resume_after(waits[-1])
        return Resume.FIRST if task.turn == 1 else Resume.NEXT


def _new_task_row(start: TurnStart, now: float) -> NewTask:
    claim = start.claim
    return NewTask(
        id=claim.id,
        workflow=start.workflow,
        session_id=claim.session_id,
        schedule_id=claim.schedule_id,
        parent_id=None,
        trigger_id=claim.id,
        max_attempts=claim.max_attempts,
        deadline_at=None if start.deadline is None else now + start.deadline,
        dedup_key=claim.active_key,
    )
