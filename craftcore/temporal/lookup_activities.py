"""The local activities in which a workflow looks at other workflows. Their answers are on record, as a replay needs."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from craftcore.temporal.records.task_runs import read_run
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow.gate_messages import LOOK
from craftcore.temporal.workflow.messages import TASK_LOOK


class LookupActivities:
    """Look-ups of a namespace. Each raises RPCError when the cluster cannot be asked."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=LOOK)
    async def list_ended(self, workflow_ids: Sequence[str]) -> list[str]:
        """Return the workflows of which no run is open: their tasks have ended, or never began."""
        return [id for id in workflow_ids if not await is_open(self._client, id)]

    @activity.defn(name=TASK_LOOK)
    async def read_id(self, workflow_id: str) -> str:
        """Return the id of the newest task of a workflow; the id of the workflow when it has gone meanwhile."""
        try:
            return (await read_run(self._client, workflow_id)).task_id
        except RPCError as error:
            if is_missing(error):
                return workflow_id
            raise


async def is_open(client: Client, workflow_id: str) -> bool:
    """Return whether a run of a workflow is open. Raises RPCError when the cluster cannot be asked."""
    try:
        found = await client.get_workflow_handle(workflow_id).describe()
    except RPCError as error:
        if is_missing(error):
            return False
        raise
    return found.status is WorkflowExecutionStatus.RUNNING
