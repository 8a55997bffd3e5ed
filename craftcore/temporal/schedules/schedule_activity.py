"""The local activity of schedules: it looks what runs, and lets the rules decide."""

from __future__ import annotations

from dataclasses import replace

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError

from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.schedules.schedule_rules import ScheduleRules, is_blocked
from craftcore.temporal.workflow.schedule_messages import SCHEDULE_ACTIVITY, ScheduleBook, ScheduleCall, ScheduleMove


class ScheduleActivity:
    """The moves of schedules on one worker."""

    def __init__(self, client: Client, rules: ScheduleRules) -> None:
        self._client = client
        self._rules = rules

    @activity.defn(name=SCHEDULE_ACTIVITY)
    async def move(self, call: ScheduleCall, book: ScheduleBook, now: float) -> ScheduleMove:
        """Return what is to be done.

        A task tells its schedule that it has ended. One that was ended by force does not, so a schedule that would wait
        for it looks.
        """
        over = [one for one in book.running if await self._is_over(one)] if is_blocked(book) else []
        left = {one: task for one, task in book.running.items() if one not in over}
        move = self._rules.move(call, replace(book, running=left), now)
        return replace(move, over=over)

    async def _is_over(self, workflow_id: str) -> bool:
        try:
            seen = await self._client.get_workflow_handle(workflow_id).describe()
        except RPCError as error:
            if is_missing(error):
                return True
            raise
        return seen.status is not WorkflowExecutionStatus.RUNNING
