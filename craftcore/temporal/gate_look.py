"""The local activity of gates: which tasks have ended, or never began."""

from __future__ import annotations

from collections.abc import Sequence

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow.gate_messages import LOOK


class GateLook:
    """Looks at the workflows of tasks."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @activity.defn(name=LOOK)
    async def list_ended(self, workflow_ids: Sequence[str]) -> list[str]:
        """Return those of which no run is open. Raises RPCError when the cluster cannot be asked."""
        return [id for id in workflow_ids if not await self._is_open(id)]

    async def _is_open(self, workflow_id: str) -> bool:
        try:
            found = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if is_missing(error):
                return False
            raise
        return found.status is WorkflowExecutionStatus.RUNNING
