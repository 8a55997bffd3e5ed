"""The local activity of tasks: which task has a dedup key that is taken."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from craftcore.temporal.ids import task_id_of
from craftcore.temporal.workflow.messages import TASK_LOOK


class TaskLook:
    """Looks at the workflow of a key."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=TASK_LOOK)
    async def read_id(self, workflow_id: str) -> str:
        """Return the id of the newest task of a workflow; the id of the workflow when it has gone meanwhile. Raises
        RPCError when the cluster cannot be asked."""
        try:
            found = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return workflow_id
            raise
        return task_id_of(workflow_id, found.raw_description.workflow_execution_info.first_run_id or found.run_id)
