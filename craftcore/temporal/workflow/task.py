"""The workflow of one task. It holds the journal and the waits of its turns, and contains none of the user's code."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from craftcore.errors import ErrorCode
    from craftcore.serialization.canonical import canonicalize
    from craftcore.serialization.plurals import format_count
    from craftcore.tasks.model import CANCEL, QuestionKind, ResolvedBy, Resume, Task, TaskStatus
    from craftcore.temporal.ids import task_id_of
    from craftcore.temporal.workflow import mailbox, task_ledger
    from craftcore.temporal.workflow.messages import (
        ACTIVITY,
        WORKFLOW,
        EntryEnd,
        EntryStart,
        TaskEnd,
        TaskStart,
        TaskState,
        TaskView,
    )
    from craftcore.temporal.workflow.task_handlers import TaskHandlers

IDLE_CRASHES_MAX = 3
"""Crashes in a row in which a turn recorded nothing: then it is poison."""

TIMER_MIN_SECONDS = 0.001
"""Less than this would be no timer."""

ENTRY_MAX = timedelta(days=366)


@workflow.defn(name=WORKFLOW)
class TaskWorkflow(TaskHandlers):
    """Enters the turns of a task one after the other."""

    @workflow.init
    def __init__(self, start: TaskStart, carried: TaskState | None) -> None:
        super().__init__(carried or TaskState(task=_new_task(start), resume=Resume.FIRST))
        self._start = start

    @workflow.run
    async def run(self, start: TaskStart, carried: TaskState | None) -> TaskEnd:
        """Enter turns until the task has ended. A task that failed fails its workflow."""
        try:
            if start.due_at > workflow.info().start_time.timestamp():
                await _sleep_until(start.due_at)
            end = await self._enter_turns()
        except asyncio.CancelledError:
            end = TaskEnd(status=TaskStatus.CANCELLED, reason="cancelled", error_code=ErrorCode.WORKFLOW_ABORTED)
        self._set_task(status=TaskStatus(end.status), reason=end.reason)
        await self._report_end(end)
        if any(one.is_open for one in self._state.acts.values()):  # a person decides, also when no turn goes on
            await workflow.wait_condition(lambda: not any(one.is_open for one in self._state.acts.values()))
        await workflow.wait_condition(workflow.all_handlers_finished)
        if end.status == TaskStatus.FAILED:
            raise ApplicationError(end.error_message or end.reason, end, type=end.error_code, non_retryable=True)
        return end

    async def _enter_turns(self) -> TaskEnd:
        while True:
            if workflow.info().is_continue_as_new_suggested():
                await workflow.wait_condition(workflow.all_handlers_finished)
                workflow.continue_as_new(args=[self._start, self._state])
            end = await self._enter()
            if end is None:
                state = self._state
                if state.idle_crashes >= IDLE_CRASHES_MAX:
                    message = f"{format_count(state.idle_crashes, 'worker')} died in it, and it recorded nothing"
                    return _failure("poison", ErrorCode.POISON, message)
                continue
            if end.deadline_at is not None:
                self._set_task(deadline_at=end.deadline_at)
            if (over := await self._settle(end)) is not None:
                return over

    async def _enter(self) -> EntryEnd | None:
        """Run one entry of the turn. None: its worker died."""
        state = self._state
        state.entries += 1
        state.attempts += 1
        state.starts += 1
        self._token, self._has_recorded = state.entries, False
        self._set_task(status=TaskStatus.RUNNING, reason="running")
        given = EntryStart(
            token=self._token,
            task=state.task,
            start=self._start,
            resume=state.resume,
            attempts=state.attempts,
            starts=state.starts,
            crashes=state.crashes,
            now=workflow.time(),
            memo=state.memo,
            waits=state.kept_waits,
        )
        try:
            end: EntryEnd = await workflow.execute_activity(
                ACTIVITY,
                given,
                result_type=EntryEnd,
                start_to_close_timeout=ENTRY_MAX,
                heartbeat_timeout=timedelta(seconds=self._start.heartbeat_timeout),
                retry_policy=RetryPolicy(maximum_attempts=1),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
        except ActivityError as error:
            if is_cancelled_exception(error):
                raise asyncio.CancelledError from error
            await self._close_journal()
            until = task_ledger.leave_behind(state, state.entries, workflow.time())
            state.crashes += 1
            state.idle_crashes = 0 if self._has_recorded else state.idle_crashes + 1
            state.resume = Resume.CRASH
            if until:  # its call may be on its way until then: nothing can be decided of it
                await _sleep_until(until)
            return None
        await self._close_journal()
        state.idle_crashes = 0
        return end

    async def _close_journal(self) -> None:
        """Refuse the journal of the entry from now on, and let what it has begun come to its end."""
        self._token = 0
        await workflow.wait_condition(workflow.all_handlers_finished)

    async def _settle(self, end: EntryEnd) -> TaskEnd | None:
        """Move the task as its settlement says. Return its end; None: it goes on."""
        state = self._state
        if end.status == "PENDING":
            if end.gives_back:
                state.attempts -= 1
            state.resume = Resume.RESUME if end.gives_back and end.not_before is None else Resume.RETRY
            if end.not_before is not None:
                self._set_task(reason=end.reason)
                await _sleep_until(end.not_before)
            return None
        if end.status != "DONE":
            return _failure(end.reason, end.error_code, end.error_message)
        match end.move:
            case "returned":
                return TaskEnd(status=TaskStatus.DONE, reason=end.reason, result_json=end.result_json)
            case "continues":
                self._begin_turn(end)
            case "suspends":
                pass
            case _:
                return TaskEnd(status=TaskStatus.CANCELLED, reason=end.reason, error_code=end.error_code)
        state.attempts = state.starts = state.crashes = 0
        if end.wait is None:
            return None
        return await self._wait(end)

    def _begin_turn(self, end: EntryEnd) -> None:
        state, task = self._state, self._state.task
        self._set_task(
            turn=task.turn + 1,
            state_json=end.state_json,
            turns_alone=task.turns_alone + 1,
            steps_alone=task.steps_alone + end.steps,
        )
        state.memo, state.kept_waits, state.resume = {}, [], Resume.NEXT
        numbered = f"activity:{task.id}:{task.turn}."
        state.acts = {key: one for key, one in state.acts.items() if one.is_open or not key.startswith(numbered)}

    async def _wait(self, end: EntryEnd) -> TaskEnd | None:
        state = self._state
        assert end.wait is not None, end
        began = workflow.time()
        mailbox.begin_wait(state, end.wait, began)
        self._set_task(status=TaskStatus.WAITING, reason=f"waits: {end.wait.identity}")
        while state.open_waits:
            due_at = mailbox.next_due(state)
            left = None if due_at is None else _seconds_until(due_at)
            try:
                await workflow.wait_condition(lambda: not state.open_waits, timeout=left)
            except TimeoutError:
                mailbox.end_due_wait(state, max(workflow.time(), due_at or 0.0))
        over = state.kept_waits[-1]
        if over.name.startswith(QuestionKind.BUDGET) and over.value_json == canonicalize(CANCEL):
            return TaskEnd(status=TaskStatus.CANCELLED, reason="cancelled", error_code=ErrorCode.WORKFLOW_ABORTED)
        if over.resolved_by is not ResolvedBy.TIMER or workflow.time() - began >= 60.0:
            self._set_task(turns_alone=0, steps_alone=0)
        return None

    async def _report_end(self, end: TaskEnd) -> None:
        """Tell the parent, and cancel the children that end with this task."""
        error = None if end.error_code is None else {"code": end.error_code, "message": end.error_message}
        told = f'{{"error":{canonicalize(error)},"result":{end.result_json or "null"},"status":"{end.status}"}}'
        if self._start.parent is not None:
            handle = workflow.get_external_workflow_handle(self._start.parent)
            try:
                await handle.signal("ended", args=[workflow.info().workflow_id, told])
            except ApplicationError:  # it has ended
                pass
        for child in self._state.children_to_cancel:
            if child not in self._state.child_ends:
                try:
                    await workflow.get_external_workflow_handle(child).cancel()
                except ApplicationError:
                    pass

    @workflow.query
    def view(self) -> TaskView:
        """Return the task as it is."""
        state, task = self._state, self._state.task
        return TaskView(
            id=task.id,
            workflow=task.workflow,
            status=task.status,
            reason=task.reason or "",
            turn=task.turn,
            entries=state.entries,
            crashes=state.crashes,
            progress_json=task.progress_json,
            questions=mailbox.list_questions(state),
            activities=list(state.acts.values()),
        )


async def _sleep_until(moment: float) -> None:
    """Sleep by a timer, also when the moment is past.

    The time of a workflow may differ at a replay. When a worker replays a task for a query, a timer that has fired
    meanwhile is seen at the time of the last workflow task. So no command may depend on a comparison with the time.
    """
    await asyncio.sleep(_seconds_until(moment))


def _seconds_until(moment: float) -> float:
    return max(TIMER_MIN_SECONDS, moment - workflow.time())


def _failure(reason: str, code: str | None, message: str | None) -> TaskEnd:
    return TaskEnd(status=TaskStatus.FAILED, reason=reason, error_code=code, error_message=message or reason)


def _new_task(start: TaskStart) -> Task:
    info, now = workflow.info(), workflow.time()
    return Task(
        seq=1,
        id=task_id_of(info.workflow_id, info.first_execution_run_id),
        workflow=start.workflow,
        agents=None,
        agent=None,
        session_id=None,
        schedule_id=None,
        parent_id=start.parent,
        status=TaskStatus.RUNNING,
        reason=None,
        turn=1,
        state_json="null",
        result_json=None,
        error_code=None,
        error_message=None,
        trigger_id=None,
        max_attempts=start.max_attempts,
        turns_alone=0,
        steps_alone=0,
        deadline_at=None,
        created_at=now,
        updated_at=now,
        ended_at=None,
        dedup_key=None,
    )
