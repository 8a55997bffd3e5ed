"""The gates of sessions: a client signals a trigger to its gate before it starts the workflow, so the order is that of
emission."""

from __future__ import annotations

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.service import RPCError

from craftcore.clock import SystemClock
from craftcore.temporal.ids import make_session_gate_id
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow.gate_messages import GATE, Announcement, GateLimit, GateStart
from craftcore.temporal.workflow.messages import TaskStart


class SessionGates:
    """The gates of the sessions of one app."""

    def __init__(self, client: Client, task_queue: str) -> None:
        self._client = client
        self._task_queue = task_queue
        self._clock = SystemClock()

    async def announce(self, workflow_id: str, start: TaskStart) -> Announcement | None:
        """Signal to the gate of the session that this workflow starts next. Return None for a trigger of no session."""
        if start.session_id is None:
            return None
        gate = make_session_gate_id(self._task_queue, start.session_id)
        call = start.make_announcement(holder=workflow_id, mark=self._clock.new_id())
        limit = GateLimit(id=gate, places=1)
        await self._client.start_workflow(
            GATE,
            args=[GateStart(limit=limit, check_seconds=start.gate_check, idle_seconds=start.gate_idle), None],
            id=gate,
            task_queue=self._task_queue,
            id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
            id_conflict_policy=WorkflowIDConflictPolicy.USE_EXISTING,
            start_signal="announce",
            start_signal_args=[call],
        )
        return call

    async def withdraw(self, start: TaskStart, call: Announcement | None) -> None:
        """Signal to the gate that nothing was started."""
        if call is None or start.session_id is None:
            return
        gate = make_session_gate_id(self._task_queue, start.session_id)
        try:
            await self._client.get_workflow_handle(gate).signal("withdraw", args=[call.holder, call.mark])
        except RPCError as error:
            if not is_missing(error):
                raise
