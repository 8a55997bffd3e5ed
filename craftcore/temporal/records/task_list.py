"""The lists of tasks by the visibility of the cluster. They need no worker, and may lag a second.

On a cluster a trigger is the workflow of its task, so its status is that of the whole work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import islice
from typing import Any

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecution, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from craftcore.errors import ConfigInvalid, FilterInvalid, InvalidInput, NotFound
from craftcore.serialization.arguments import show_value
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.rpc_errors import is_of_no_task
from craftcore.temporal.workflow.messages import WORKFLOW

FILTERS = {
    "RUNNING": "ExecutionStatus = 'Running' AND CraftcoreStatus = 'RUNNING'",
    "WAITING": "ExecutionStatus = 'Running' AND CraftcoreStatus = 'WAITING'",
    "DONE": "ExecutionStatus = 'Completed' AND CraftcoreStatus = 'DONE'",
    "FAILED": "ExecutionStatus IN ('Failed', 'TimedOut')",
    "CANCELLED": "ExecutionStatus != 'Running' AND CraftcoreStatus = 'CANCELLED'",
}
"""The filter of the cluster for each status of a task."""

OF_CLUSTER = {
    "RUNNING": "RUNNING",
    "COMPLETED": "DONE",
    "FAILED": "FAILED",
    "CANCELED": "CANCELLED",
    "TERMINATED": "CANCELLED",
    "TIMED_OUT": "FAILED",
}
CANDIDATES_MAX = 10
SCANNED_MAX = 100_000
"""Live tasks that are looked through for those that run, or do not."""

DESCRIBED_AT_ONCE = 20
ON_A_WORKER = (
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED,
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED,
)


class WorkStatus(StrEnum):
    """PENDING -> RUNNING -> WAITING | DONE | DEAD | CANCELLED, or back to PENDING.

    PENDING: it waits for its time, for its next attempt, or for a worker. WAITING: its task waits. DEAD: it failed, and
    is not tried again.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    WAITING = "WAITING"
    DONE = "DONE"
    DEAD = "DEAD"
    CANCELLED = "CANCELLED"


TASK_STATUSES = {WorkStatus.PENDING: "RUNNING", WorkStatus.DEAD: "FAILED"}
"""The statuses of a task that are called otherwise in a trigger."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTask:
    """A task in a list. Without the search attributes `workflow` and `session_id` are None."""

    id: str
    run_id: str
    workflow: str | None
    session_id: str | None
    status: str
    created_at: float
    ended_at: float | None
    asks: Sequence[str]
    doubts: Sequence[str]


async def list_tasks(
    client: Client,
    *,
    limit: int,
    status: str | None = None,
    workflow: str | None = None,
    session_id: str | None = None,
    workflow_id: str | None = None,
    having: str | None = None,
    is_live: bool = False,
) -> list[ListedTask]:
    """Return the newest tasks, newest first. `having`: a search attribute that must be there. `workflow_id`: that
    of a dedup key, which several tasks may have used.

    Raises ConfigInvalid when the namespace lacks the search attributes, FilterInvalid for a text no filter can hold.
    """
    parts = [f"WorkflowType = {quote(WORKFLOW)}", "ExecutionStatus != 'ContinuedAsNew'"]
    if status is not None:
        parts.append(FILTERS[status])
    if is_live:
        parts.append("ExecutionStatus = 'Running'")
    if workflow is not None:
        parts.append(f"CraftcoreWorkflow = {quote(workflow)}")
    if session_id is not None:
        parts.append(f"CraftcoreSession = {quote(session_id)}")
    if workflow_id is not None:
        parts.append(f"WorkflowId = {quote(workflow_id)}")
    if having is not None:
        parts.append(f"{having} IS NOT NULL")
    return [_make_listed(one) for one in await _select(client, " AND ".join(parts), limit)]


def require_task_status(status: str) -> str:
    """Return the status of a task that this one of work means. Raises InvalidInput for one that there is not."""
    of_task = TASK_STATUSES.get(WorkStatus(status), status) if status in WorkStatus.__members__ else status
    if of_task not in FILTERS:
        known = ", ".join(sorted({*FILTERS, *WorkStatus}))
        raise InvalidInput(f"status {show_value(status)} is unknown on a cluster; it must be one of {known}")
    return of_task


async def read_status(client: Client, workflow_id: str, task_status: str) -> WorkStatus:
    """Return the status of a trigger by that of its task. Asks the cluster whether a worker has a live one."""
    if task_status == "RUNNING":
        seen = await client.get_workflow_handle(workflow_id).describe()
        if seen.status in (None, WorkflowExecutionStatus.RUNNING):
            entries = seen.raw_description.pending_activities
            return WorkStatus.RUNNING if any(one.state in ON_A_WORKER for one in entries) else WorkStatus.PENDING
        task_status = OF_CLUSTER.get(seen.status.name, task_status)
    return WorkStatus.DEAD if task_status == "FAILED" else WorkStatus(task_status)


async def list_triggers(
    client: Client, *, limit: int, status: WorkStatus | None = None, **filters: Any
) -> list[ListedTask]:
    """Return the newest triggers, newest first, each with its WorkStatus. The filters are those of `list_tasks`, and so
    are the errors.

    For PENDING and RUNNING it looks through the live tasks, as the cluster has no list of those alone.
    """
    of_task = None if status is None else require_task_status(status)
    scanned = SCANNED_MAX if of_task == "RUNNING" else limit
    listed = await list_tasks(client, limit=scanned, status=of_task, **filters)
    found: list[ListedTask] = []
    for first in range(0, len(listed), DESCRIBED_AT_ONCE):
        part = listed[first : first + DESCRIBED_AT_ONCE]
        statuses = await asyncio.gather(*(read_status(client, one.id, one.status) for one in part))
        found += [
            replace(one, status=of_one) for one, of_one in zip(part, statuses, strict=True) if status in (None, of_one)
        ]
        if len(found) >= limit:
            break
    return found[:limit]


async def find_workflow_id(client: Client, given: str) -> str:
    """Return the workflow id of the task that is meant by its id, whole or the beginning. Raises NotFound."""
    if not given.strip():
        raise NotFound("an empty text is not the id of a task")
    for workflow_id in dict.fromkeys((given, workflow_id_of_task(given))):
        if workflow_id and await _is_there(client, workflow_id):
            return workflow_id
    query = f"WorkflowType = {quote(WORKFLOW)} AND WorkflowId STARTS_WITH {quote(given)}"
    found = list(dict.fromkeys(one.id for one in await _select(client, query, CANDIDATES_MAX)))
    if not found:
        raise NotFound(f"no task has the id {given!r:.200}; see: craftcore temporal task list")
    if len(found) > 1:
        raise NotFound(f"{given} fits several ids: {', '.join(found)}; give more of it")
    return found[0]


async def find_task_of_activity(client: Client, key: str) -> str:
    """Return the workflow id of the task whose action has this key. Raises NotFound."""
    typed = key.removeprefix("activity:")
    parts = typed.split(":")
    for count in range(1, len(parts)):
        workflow_id = workflow_id_of_task(":".join(parts[:count]))
        if workflow_id and await _is_there(client, workflow_id):
            return workflow_id
    raise NotFound(f"no activity has the key {key!r:.300}; see: craftcore temporal activity list")


async def _is_there(client: Client, workflow_id: str) -> bool:
    try:
        await client.get_workflow_handle(workflow_id).describe()
        return True
    except RPCError as error:
        if is_of_no_task(error):
            return False
        raise


def quote(text: str) -> str:
    """Return a text as a value of a query of the cluster. Raises FilterInvalid."""
    if not text or not text.isprintable():
        raise FilterInvalid(f"{text!r:.80} is not a text to look for")
    return f"'{escape(text)}'"


def escape(text: str) -> str:
    """Return the part of a value of a query between its quotes."""
    return text.replace("\\", "\\\\").replace("'", "\\'")


async def _select(client: Client, query: str, limit: int) -> list[WorkflowExecution]:
    try:
        found = [one async for one in client.list_workflows(query, limit=limit)]
    except RPCError as error:
        if error.status is RPCStatusCode.INVALID_ARGUMENT and "Craftcore" in error.message:
            raise ConfigInvalid(
                f"the namespace lacks a search attribute: {error.message:.200}. `craftcore temporal setup` adds them"
            ) from error
        if error.status is RPCStatusCode.INVALID_ARGUMENT:
            raise FilterInvalid(f"the cluster refused the filter: {error.message:.200}") from error
        raise
    return list(islice(found, limit))


def _make_listed(one: WorkflowExecution) -> ListedTask:
    attributes: dict[str, Any] = {name: list(values) for name, values in one.search_attributes.items()}

    def get_first(name: str) -> str | None:
        return attributes[name][0] if attributes.get(name) else None

    cluster = OF_CLUSTER.get(one.status.name if one.status is not None else "", "RUNNING")
    status = get_first("CraftcoreStatus") if cluster in ("RUNNING", "DONE") else None
    return ListedTask(
        id=one.id,
        run_id=one.run_id,
        workflow=get_first("CraftcoreWorkflow"),
        session_id=get_first("CraftcoreSession"),
        status=status or cluster,
        created_at=one.start_time.timestamp(),
        ended_at=None if one.close_time is None else one.close_time.timestamp(),
        asks=attributes.get("CraftcoreAsks", []),
        doubts=attributes.get("CraftcoreDoubts", []),
    )
