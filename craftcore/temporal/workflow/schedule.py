"""The workflow of one schedule. It holds its row, its account and its timer; the rules run in a local activity.

Time zone data differ between machines, so the workflow computes no moment. The result of a machine is on record.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from craftcore.temporal.ids import task_id_of
    from craftcore.temporal.workflow import messages  # noqa: F401 - a sandbox finds the types of OccurrenceStart there
    from craftcore.temporal.workflow.commands import ignore_end, seconds_until, start_task
    from craftcore.temporal.workflow.schedule_messages import (
        ACCOUNT_MAX,
        SCHEDULE_ACTIVITY,
        SCHEDULE_WORKFLOW,
        OccurrenceStart,
        ScheduleAnswer,
        ScheduleBook,
        ScheduleCall,
        ScheduleMove,
    )

MOVES_MAX = 300
"""Moves of one run, after which the schedule goes on in the next."""

LOOK_SECONDS = 600.0
"""How often a schedule looks whether the task that an occurrence waits for was ended by force."""

RETRY_SECONDS = 60.0
"""How soon a schedule tries again what the rules refused."""

RUNNING_MAX = 100
"""Tasks that a schedule keeps in mind, the newest."""


@workflow.defn(name=SCHEDULE_WORKFLOW)
class ScheduleWorkflow:
    """Starts a task for each occurrence that the rules let fire."""

    @workflow.init
    def __init__(self, declared: ScheduleCall | None, carried: ScheduleBook | None) -> None:
        self._book = carried or ScheduleBook()
        self._lock = asyncio.Lock()
        self._next_at: float | None = None
        self._moves = 0
        self._rung = False
        self._undeclared = declared

    @workflow.run
    async def run(self, declared: ScheduleCall | None, carried: ScheduleBook | None) -> None:
        """Fire what comes, for ever. A refusal of the rules is kept as the error of the schedule, and tried again."""
        while True:
            self._rung = False
            await self._tick()
            if self._moves >= MOVES_MAX or workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(args=[self._undeclared, self._book])
            try:
                await workflow.wait_condition(self._is_awake, timeout=self._seconds_left())
            except TimeoutError:
                pass

    async def _tick(self) -> None:
        try:
            if self._undeclared is not None:
                await self._move(self._undeclared)
            await self._move(ScheduleCall(kind="tick"))
            self._book.error = None
        except ApplicationError as error:
            self._book.error = error.message

    def _is_awake(self) -> bool:
        if self._book.error is not None:
            return self._rung
        return self._rung or (self._has_waiting() and not self._book.running)

    def _has_waiting(self) -> bool:
        return any(line["outcome"] == "buffered" for line in self._book.lines)

    def _seconds_left(self) -> float | None:
        if self._book.error is not None:
            return RETRY_SECONDS
        look = LOOK_SECONDS if self._has_waiting() else None
        if self._next_at is None:
            return look
        left = seconds_until(self._next_at)
        return left if look is None else min(left, look)

    async def _move(self, call: ScheduleCall) -> ScheduleAnswer:
        """Let the rules decide, and do what they say."""
        async with self._lock:
            self._moves += 1
            move: ScheduleMove = await workflow.execute_local_activity(
                SCHEDULE_ACTIVITY,
                args=[call, self._book, workflow.time()],
                result_type=ScheduleMove,
                start_to_close_timeout=timedelta(seconds=30),
            )
            if move.error_name is not None:
                raise ApplicationError(move.error, type=move.error_name, non_retryable=True)
            self._write(move)
            if self._undeclared is not None and call.kind in ("declare", "undeclare"):
                self._undeclared = None if call.revision >= self._undeclared.revision else self._undeclared
            for started in move.started:
                await self._start(started)
            made = {line["seq"] for line in move.lines}
            return ScheduleAnswer(
                book=self._book,
                lines=[line for line in self._book.lines if line["seq"] in made],
                change=move.change,
                moment=move.moment,
                placed=[self._settle(one, move.started) for one in move.placed],
            )

    def _write(self, move: ScheduleMove) -> None:
        book = self._book
        lines = {line["seq"]: line for line in [*book.lines, *move.lines]}
        beyond = len(lines) - ACCOUNT_MAX
        book.lines = [line for nth, line in enumerate(lines.values()) if nth >= beyond or line["outcome"] == "buffered"]
        book.row, book.revision, book.lines_made = move.row, move.revision, move.lines_made
        for workflow_id in move.over:
            book.running.pop(workflow_id, None)
        self._next_at = move.next_at

    async def _start(self, started: OccurrenceStart) -> None:
        """Start the task of an occurrence. The server refuses a second one of the same occurrence."""
        book, workflow_id = self._book, started.workflow_id
        line = next((line for line in book.lines if line["seq"] == started.seq), {})
        book.running[workflow_id] = workflow_id
        try:
            child = await start_task(workflow_id, started.start, WorkflowIDReusePolicy.REJECT_DUPLICATE)
        except WorkflowAlreadyStartedError:
            book.running.pop(workflow_id, None)
            line.update(outcome="skipped", reason=f"fired before, as task {workflow_id}", trigger_id=None)
            if book.row is not None and line.get("cause") == "time":
                book.row["runs"] -= 1
            return
        child.add_done_callback(ignore_end)
        task_id = task_id_of(workflow_id, child.first_execution_run_id or "")
        line["trigger_id"] = task_id
        if workflow_id in book.running:
            book.running[workflow_id] = task_id
        for oldest in list(book.running)[:-RUNNING_MAX]:
            del book.running[oldest]

    def _settle(self, placed: dict[str, Any], begun: list[OccurrenceStart]) -> dict[str, Any]:
        """Return what became of an occurrence, after its task was started or refused."""
        seq = next((one.seq for one in begun if one.workflow_id == placed["trigger_id"]), None)
        line = next((line for line in self._book.lines if line["seq"] == seq), None)
        return placed if line is None else placed | {name: line[name] for name in ("outcome", "reason", "trigger_id")}

    @workflow.signal
    def ended(self, task: str, end_text: str) -> None:
        self._book.running.pop(task, None)

    @workflow.update(name="operate")
    async def apply_call(self, call: ScheduleCall) -> ScheduleAnswer:
        """Declare the schedule again, or do what a person asks for."""
        answer = await self._move(call)
        self._rung = True
        return answer

    @workflow.query
    def view(self) -> ScheduleBook:
        return self._book
