"""The workflow of one task. It holds the journal and the waits of its turns, and contains none of the user's code."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from temporalio import workflow
from temporalio.common import RetryPolicy
from temporalio.exceptions import ActivityError, ApplicationError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeout

with workflow.unsafe.imports_passed_through():
    from craftcore.activities.model import ActivityStatus
    from craftcore.errors import PayloadTooLarge
    from craftcore.tasks.model import Resume, Task, TaskStatus
    from craftcore.tasks.wait_rules import write_task_end
    from craftcore.temporal.ids import task_id_of, workflow_id_of_schedule
    from craftcore.temporal.workflow import counts, mailbox, memo_pages, task_ledger
    from craftcore.temporal.workflow.carried import unpack
    from craftcore.temporal.workflow.entry_size import find_excess
    from craftcore.temporal.workflow.external_signal import send_signal
    from craftcore.temporal.workflow.messages import (
        ACTIVITY,
        BEGUN,
        WORKFLOW,
        EntryEnd,
        EntryStart,
        MemoPage,
        TaskEnd,
        TaskStart,
        TaskState,
        TaskView,
    )
    from craftcore.temporal.workflow.search_attributes import publish
    from craftcore.temporal.workflow.shield import run_shielded
    from craftcore.temporal.workflow.task_moves import (
        PUTS_IN_DOUBT,
        TaskMoves,
        make_cancelled_end,
        make_failure,
        sleep_until,
    )

ENTRY_MAX = timedelta(days=366)

REFUSES_LARGE = "refuses a large entry"
"""The patch of tasks that fail when an entry cannot be sent. A converter of the user's own may have sent one before."""


@workflow.defn(name=WORKFLOW)
class TaskWorkflow(TaskMoves):
    """Enters the turns of a task one after the other."""

    @workflow.init
    def __init__(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> None:
        state = unpack(carried, packed) or TaskState(task=_new_task(start), resume=Resume.FIRST, limits=start.limits)
        super().__init__(start, state)

    @workflow.run
    async def run(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> TaskEnd:
        """Enter turns until the task has ended. A task that failed fails its workflow."""
        try:
            if start.due_at > workflow.info().start_time.timestamp():
                await sleep_until(start.due_at)
            end = await self._enter_turns()
        except asyncio.CancelledError:
            end = make_cancelled_end()
        except PayloadTooLarge as error:
            end = make_failure("too large", error.code, error.message)
        if self._is_inside and workflow.patched(PUTS_IN_DOUBT):  # a cancel came with the end of its entry
            await run_shielded(self._leave_entry())
        self._set_task(
            status=TaskStatus(end.status),
            reason=end.reason,
            result_json=end.result_json,
            error_code=end.error_code,
            error_message=end.error_message,
        )
        await run_shielded(self._finish(end))
        self._refuse_intents()
        if end.status == TaskStatus.FAILED:
            raise ApplicationError(end.error_message or end.reason, end, type=end.error_code, non_retryable=True)
        return end

    def _has_open_acts(self) -> bool:
        return any(one.is_open for one in self._state.acts.values())

    async def _enter_turns(self) -> TaskEnd:
        state = self._state
        if state.open_waits and (over := await self._end_wait()) is not None:
            return over
        while True:
            self._check_mailbox()
            if self._limits.is_due(state):
                await self._roll_over()
            if (over := await self._gates.enter()) is not None:
                return over
            end = await self._enter()
            if end is not None:
                await self._gates.leave(end)
            if workflow.cancellation_reason() is not None and (end is None or end.goes_on):
                return make_cancelled_end()  # its entry did not hear of that, or its worker died
            if end is None:
                if (over := await self._settle_crash()) is not None:
                    return over
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
        state.first_at = workflow.time() if state.first_at is None else state.first_at
        self._set_task(status=TaskStatus.RUNNING, reason="running")
        if not state.is_interrupted:
            state.touched_at = workflow.time()
        given = EntryStart(
            token=self._token,
            task=state.task,
            start=self._start,
            resume=state.resume,
            attempts=state.attempts,
            starts=state.starts,
            crashes=state.crashes,
            now=workflow.time(),
            first_at=state.first_at,
            memo=state.memo if (is_inline := memo_pages.is_inline(state)) else {},
            waits=state.kept_waits if is_inline else [],
            attempt_entry=state.attempt_entry,
            handed_back_since=state.handed_back_since,
            limits=state.limits,
            gates=state.gates,
            touched_at=state.touched_at if state.is_interrupted else None,
            is_paged=not is_inline,
        )
        if (excess := find_excess(given)) is not None and workflow.patched(REFUSES_LARGE):
            raise excess
        end: EntryEnd | None = None
        self._is_inside = True
        is_cancelled = False
        try:
            end = await workflow.execute_activity(
                ACTIVITY,
                given,
                result_type=EntryEnd,
                start_to_close_timeout=ENTRY_MAX,
                heartbeat_timeout=timedelta(seconds=self._start.heartbeat_timeout),
                retry_policy=RetryPolicy(maximum_attempts=1),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            state.idle_entries.clear()
            counts.count_entry(state.task.workflow, end)
        except asyncio.CancelledError:  # it came with the end of the entry
            counts.count_attempt(state.task.workflow, counts.CANCELLED)
            raise
        except ActivityError as error:
            is_cancelled = is_cancelled_exception(error)
            counts.count_attempt(state.task.workflow, counts.CANCELLED if is_cancelled else counts.CRASHED)
            if not is_cancelled:
                self._count_crash(has_begun=_has_begun(error))
        await self._leave_entry(died=end is None)
        if is_cancelled:
            raise asyncio.CancelledError
        return end

    async def _leave_entry(self, *, died: bool = False) -> None:
        """Refuse the journal of the entry from now on, let what it has begun come to its end, and put its calls without
        an end in doubt. Nothing can be decided of them as long as they may be on their way.

        A cancel may break it off anywhere. Then it is repeated.
        """
        state, self._token = self._state, 0
        await workflow.wait_condition(workflow.all_handlers_finished)
        if died:
            self._put_in_doubt(state.entries)
        if task_ledger.list_intents(state) and workflow.patched(PUTS_IN_DOUBT):
            self._put_in_doubt(None)
        if self._calls_until:
            await sleep_until(self._calls_until)
        self._calls_until, self._is_inside = 0.0, False

    def _put_in_doubt(self, token: int | None) -> None:
        for left in task_ledger.list_intents(self._state, token):
            counts.count_call(self._state.acts[left].action, ActivityStatus.UNKNOWN)
        until = task_ledger.leave_behind(self._state, token, workflow.time())
        self._calls_until = max(self._calls_until, until)

    async def _finish(self, end: TaskEnd) -> None:
        await self._gates.close()
        await self._report_end(end)
        while self._has_open_acts() or self._gates.has_unread:  # a person decides, also when no turn goes on
            await workflow.wait_condition(lambda: not self._has_open_acts() or self._gates.has_unread)
            await self._gates.emit_unread()
            publish(self._state)
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._gates.emit_unread()

    async def _report_end(self, end: TaskEnd) -> None:
        """Tell the parent or the schedule, and cancel the children that end with this task."""
        end_text = write_task_end(end.status, end.result_json, end.error_code, end.error_message)
        schedule_id = self._start.schedule_id
        for waiting in (self._start.parent, None if schedule_id is None else workflow_id_of_schedule(schedule_id)):
            if waiting is not None:
                await send_signal(waiting, "ended", workflow.info().workflow_id, end_text)
        for child in self._state.children_to_cancel:
            if child not in self._state.child_ends:
                try:
                    await workflow.get_external_workflow_handle(child).cancel()
                except ApplicationError:
                    pass

    @workflow.query
    def read_memo(self, first: int) -> MemoPage:
        """Return a page of what the turn has on record."""
        return memo_pages.make_page(self._state, first)

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
            late=state.late,
        )


def _has_begun(error: ActivityError) -> bool:
    """Return whether the code of an entry whose worker died may have begun."""
    return not isinstance(error.cause, ActivityTimeout) or BEGUN in error.cause.last_heartbeat_details


def _new_task(start: TaskStart) -> Task:
    info, now = workflow.info(), workflow.time()
    return Task(
        seq=1,
        id=task_id_of(info.workflow_id, info.first_execution_run_id),
        workflow=start.workflow,
        agents=None,
        agent=None,
        session_id=start.session_id,
        schedule_id=start.schedule_id,
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
