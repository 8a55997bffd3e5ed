"""The retry of a failed task on a cluster: a run that goes on with its state, after the children cancelled with it.

A call may break off anywhere, and others may call at the same time. Called again, it does what is left.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container
from dataclasses import replace
from datetime import timedelta

from temporalio.client import Client, WorkflowExecutionDescription, WorkflowExecutionStatus
from temporalio.common import SearchAttributePair, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from craftcore.error_codes import ErrorCode
from craftcore.errors import NotFound, StateRefused
from craftcore.tasks.model import Resume, Task, TaskStatus
from craftcore.tasks.wait_rules import write_task_end
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.records.history import RETRIED_RUN
from craftcore.temporal.records.recorded_task import RecordedTask
from craftcore.temporal.records.task_runs import RETRIED_TASK, find_run, signal_task
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow import mailbox, rollover
from craftcore.temporal.workflow.messages import WORKFLOW, TaskStart, TaskState, first_arguments
from craftcore.temporal.workflow.priorities import make_priority
from craftcore.temporal.workflow.search_attributes import STATUS_KEY

RUNNING = SearchAttributePair(STATUS_KEY, TaskStatus.RUNNING.value)
"""The status of a retried task in lists, before a worker takes it."""

NOT_KEPT = write_task_end(
    TaskStatus.CANCELLED,
    None,
    ErrorCode.WORKFLOW_ABORTED,
    "how it ended is not known: its history is not kept any more",
)
"""The end of a child that the cluster does not know any more."""


class TaskRetry:
    """The retry of a task, by a person. `load` reads a task; it raises NotFound, and StateRefused for a foreign one."""

    def __init__(
        self, client: Client, load: Callable[[str], Awaitable[RecordedTask]], *, by: str, note: str | None
    ) -> None:
        self._client = client
        self._load = load
        self._by = by
        self._note = note

    async def retry(self, task_id: str) -> None:
        """Retry a task. Raises what TaskOperations.retry raises, and an RPCError for a task that is not there."""
        run = await find_run(self._client, task_id)
        run_id = None if run is None else run.run_id
        seen = await self._client.get_workflow_handle(workflow_id_of_task(task_id), run_id=run_id).describe()
        task = await self._load(task_id)
        state = task.state
        if state is not None and await self._is_retried(seen):
            await self._signal_ends(task, state, state.child_ends)
        if seen.status is not WorkflowExecutionStatus.FAILED or state is None:
            status = state.task.status if state is not None else "not begun"
            raise StateRefused(f"task {task_id} is {status}; only a FAILED task can be retried")
        await self._go_on(seen, task, state)

    async def _is_retried(self, seen: WorkflowExecutionDescription) -> bool:
        """Return whether an earlier call has started this run. It may have broken off after that."""
        is_running = seen.status is WorkflowExecutionStatus.RUNNING
        return is_running and await seen.memo_value(RETRIED_RUN, None) is not None

    async def _go_on(self, seen: WorkflowExecutionDescription, task: RecordedTask, state: TaskState) -> None:
        ends = await self._revive_children(task.workflow_id, state)
        await self._start_again(seen, task, replace(make_retry(state), child_ends=ends))
        await self._signal_ends(task, state, ends)

    async def _signal_ends(self, task: RecordedTask, state: TaskState, known: Container[str]) -> None:
        """Signal the ends of children to a task that goes on: they ended while it was closed. A second signal does no
        harm."""
        for child in state.children_to_cancel + state.children_to_leave:
            if child in known or (end := await self._read_end(child, but_by=task.workflow_id)) is None:
                continue
            try:
                await signal_task(self._client, task.id, "ended", child, end)
            except RPCError as error:
                if not is_missing(error):
                    raise
                return  # the task has ended again

    async def _revive_children(self, parent: str, state: TaskState) -> dict[str, str]:
        """Let the children that were cancelled with their parent go on, and theirs. Return how the others ended."""
        ends = dict(state.child_ends)
        for child in state.children_to_leave:
            if child not in ends and (end := await self._read_end(child)) is not None:
                ends[child] = end
        for child in state.children_to_cancel:
            try:
                seen = await self._client.get_workflow_handle(child).describe()  # before its state: that is not older
                found = await self._load(child)
            except (NotFound, RPCError) as error:
                if isinstance(error, RPCError) and not is_missing(error):
                    raise
                ends.setdefault(child, NOT_KEPT)
                continue
            end = find_end(found)
            if is_cancelled_by(found, parent) and (end is None or was_cut_off(found, parent)):
                if seen.status is WorkflowExecutionStatus.RUNNING:
                    raise StateRefused(f"child {child} is still being cancelled: retry the task when it has ended")
                ends.pop(child, None)
                if found.state is None:
                    await self._start_again(seen, found, None)
                else:
                    await self._go_on(seen, found, found.state)
            elif end is not None:
                ends[child] = end
            else:  # an earlier call has started it again
                ends.pop(child, None)
                if found.state is not None:
                    await self._signal_ends(found, found.state, found.state.child_ends)
        return ends

    async def _read_end(self, child: str, *, but_by: str | None = None) -> str | None:
        """Return how a child ended; None: it goes on, or its history cannot be read. `but_by`: None also for one that
        ended as cancelled because this parent ended."""
        try:
            found = await self._load(child)
        except NotFound:
            return NOT_KEPT
        except StateRefused:  # its history is of another version: its own signal reports the end
            return None
        return None if but_by is not None and was_cut_off(found, but_by) else find_end(found)

    async def _start_again(
        self, seen: WorkflowExecutionDescription, task: RecordedTask, state: TaskState | None
    ) -> None:
        """Start a run of the workflow of an ended task. `state` None: no worker had taken it."""
        first = task.runs.last.events[0].workflow_execution_started_event_attributes
        [start] = await self._client.data_converter.decode([first.input.payloads[0]], [TaskStart])
        arguments = first_arguments(start) if state is None else rollover.pack(start, state)
        if arguments is None:
            assert state is not None, task.id
            raise rollover.make_refusal(state)
        memo = {
            RETRIED_RUN: seen.run_id,
            RETRIED_TASK: task.id,
            "craftcore_retried_by": self._by,
            "craftcore_retried_note": self._note,
        }
        has_failed = seen.status is WorkflowExecutionStatus.FAILED
        policy = WorkflowIDReusePolicy
        was_retried = StateRefused(f"task {task.id} was retried meanwhile, and goes on")
        if (await self._client.get_workflow_handle(seen.id).describe()).run_id != seen.run_id:
            raise was_retried  # the policy refuses only a run that has not ended
        try:
            await self._client.start_workflow(
                WORKFLOW,
                args=arguments,
                id=seen.id,
                task_queue=seen.task_queue,
                task_timeout=timedelta(milliseconds=first.workflow_task_timeout.ToMilliseconds()),
                id_reuse_policy=policy.ALLOW_DUPLICATE_FAILED_ONLY if has_failed else policy.ALLOW_DUPLICATE,
                memo=memo,
                search_attributes=seen.typed_search_attributes.updated(RUNNING),
                priority=make_priority(start),
            )
        except WorkflowAlreadyStartedError as error:
            raise was_retried from error


def make_retry(state: TaskState) -> TaskState:
    """Return the state with which a failed task goes on: its last turn again, with all its attempts."""
    task = replace(
        state.task,
        status=TaskStatus.RUNNING,
        reason="retried",
        result_json=None,
        error_code=None,
        error_message=None,
        deadline_at=None,
        ended_at=None,
    )
    return replace(
        state,
        task=task,
        resume=Resume.RETRY,
        attempts=0,
        attempt_entry=state.entries + 1,
        starts=0,
        crashes=0,
        idle_entries=[],
        first_at=None,
        open_waits=[],
        asked={},
        mail_bytes=sum(map(mailbox.size_of, state.mails)),
    )


def find_end(task: RecordedTask) -> str | None:
    """Return how a child has ended, as its parent receives it; None: it goes on.

    The workflow of an ended child may still be open. It closes once its parent has received the end,
    and no action is in doubt.
    """
    row = _find_row(task)
    if row.status.is_live:
        return None
    return write_task_end(row.status, row.result_json, row.error_code, row.error_message)


def is_cancelled_by(task: RecordedTask, parent: str) -> bool:
    """Return whether the end of this parent has cancelled the last run of a child."""
    return parent in (
        event.workflow_execution_cancel_requested_event_attributes.external_workflow_execution.workflow_id
        for event in task.runs.last.events
        if event.HasField("workflow_execution_cancel_requested_event_attributes")
    )


def was_cut_off(task: RecordedTask, parent: str) -> bool:
    """Return whether a child ended as cancelled because its parent ended, and not by a person."""
    return _find_row(task).status is TaskStatus.CANCELLED and is_cancelled_by(task, parent)


def _find_row(task: RecordedTask) -> Task:
    return task.task if task.history.end is not None or task.state is None else task.state.task
