"""The local activity of tasks: which task has a dedup key that is taken."""

from __future__ import annotations

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from craftcore.temporal.records.task_runs import read_run
from craftcore.temporal.rpc_errors import is_missing
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
            return (await read_run(self._client, workflow_id)).task_id
        except RPCError as error:
            if is_missing(error):
                return workflow_id
            raise
