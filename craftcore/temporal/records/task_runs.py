"""The runs of a task, among those of the workflow of its dedup key: a key may be used by one task after the other.

A task that was retried goes on in a run of its own, whose memo says which task that is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from temporalio.client import Client, WorkflowHandle, WorkflowHistoryEventFilterType
from temporalio.service import RPCError

from craftcore.errors import NotFound
from craftcore.temporal.ids import first_run_of_task, task_id_of, workflow_id_of_task
from craftcore.temporal.records.task_list import escape
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow.search_attributes import WORKFLOW_KEY

RETRIED_TASK = "craftcore_retried_task"
"""The memo of a retried task's run: the id of the task, which is older than the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskRun:
    """A run of a workflow, and the task that it is of. `first_run_id`: the run that began its chain. `workflow`: what
    the task runs, as far as it is known."""

    task_id: str
    run_id: str
    first_run_id: str
    workflow: str | None = None


async def read_run(client: Client, workflow_id: str, run_id: str | None = None) -> TaskRun:
    """Return a run of a workflow; without `run_id` the last one. Raises RPCError."""
    seen = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    first_run_id = seen.raw_description.workflow_execution_info.first_run_id or seen.run_id
    retried: str | None = await seen.memo_value(RETRIED_TASK, None)
    return TaskRun(
        task_id=retried or task_id_of(workflow_id, first_run_id),
        run_id=seen.run_id,
        first_run_id=first_run_id,
        workflow=seen.typed_search_attributes.get(WORKFLOW_KEY),
    )


async def find_run(client: Client, task_id: str) -> TaskRun | None:
    """Return the last run of the task that has its dedup key now. None: the id names no run, so the
    last run of its workflow is meant.

    Raises NotFound when another task has used the key since, and RPCError.
    """
    if first_run_of_task(task_id) is None:
        return None
    run = await read_run(client, workflow_id_of_task(task_id))
    if run.task_id != task_id:
        raise NotFound(f"task {task_id} is not the last of its dedup key: task {run.task_id} has used the key since")
    return run


async def open_task(client: Client, task_id: str) -> WorkflowHandle[Any, Any]:
    """Return the workflow of a task, for a cancel or an update: the cluster refuses both for another task. Raises as
    `find_run`."""
    workflow_id = workflow_id_of_task(task_id)
    run = await find_run(client, task_id) or await read_run(client, workflow_id)
    return client.get_workflow_handle(workflow_id, first_execution_run_id=run.first_run_id)


async def signal_task(client: Client, task_id: str, name: str, *args: Any) -> None:
    """Signal a task. Raises as `find_run`; RPCError NOT_FOUND also when the task has ended.

    The cluster cannot compare a signal with a chain of runs, so it is for one run. A task may go on in its next run
    meanwhile: then that one is signalled.
    """
    tried = ""
    while True:
        run = await find_run(client, task_id)
        run_id = None if run is None else run.run_id
        try:
            handle = client.get_workflow_handle(workflow_id_of_task(task_id), run_id=run_id)
            return await handle.signal(name, args=args)
        except RPCError as error:
            if not is_missing(error) or run_id in (None, tried):
                raise
            tried = run_id or ""


async def find_last_run(client: Client, task_id: str) -> str | None:
    """Return the id of the run in which a task is, or ended, also when other tasks have used its dedup key since.

    None: the id names no run, so it is the last one. Raises RPCError.
    """
    first_run_id = first_run_of_task(task_id)
    if first_run_id is None:
        return None
    workflow_id = workflow_id_of_task(task_id)
    now = await read_run(client, workflow_id)
    if now.task_id == task_id:
        return now.run_id
    ended = await _follow(client, workflow_id, first_run_id)
    async for one in client.list_workflows(f"WorkflowId = '{escape(workflow_id)}'"):
        if await one.memo_value(RETRIED_TASK, None) == task_id:
            return one.run_id  # the newest is the first
    return ended


async def _follow(client: Client, workflow_id: str, run_id: str) -> str:
    """Return the run in which a chain of runs has ended."""
    while True:
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        closing = handle.fetch_history_events(event_filter_type=WorkflowHistoryEventFilterType.CLOSE_EVENT)
        following = [
            event.workflow_execution_continued_as_new_event_attributes.new_execution_run_id async for event in closing
        ]
        if not following or not following[-1]:
            return run_id
        run_id = following[-1]
