"""The triggers of a namespace. On a cluster a trigger is the workflow of its task, so its status is that of the whole
work. Its lists need no worker, and may lag a second."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from enum import StrEnum

from temporalio.api.enums.v1 import PendingActivityState
from temporalio.client import Client, WorkflowExecutionStatus

from craftcore.temporal.task_list import OF_CLUSTER, ListedTask, list_tasks

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
    client: Client,
    *,
    limit: int,
    status: WorkStatus | None = None,
    workflow: str | None = None,
    session_id: str | None = None,
) -> list[ListedTask]:
    """Return the newest triggers, newest first, each with its WorkStatus. Raises as `list_tasks`.

    For PENDING and RUNNING it looks through the live tasks, as the cluster has no list of those alone.
    """
    of_task = None if status is None else TASK_STATUSES.get(status, str(status))
    scanned = SCANNED_MAX if of_task == "RUNNING" else limit
    listed = await list_tasks(client, limit=scanned, status=of_task, workflow=workflow, session_id=session_id)
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
