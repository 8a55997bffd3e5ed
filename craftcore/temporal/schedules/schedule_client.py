"""The calls of a program to the schedules of a cluster: declare, operate, look."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError
from temporalio.service import RPCError

from craftcore.errors import (
    ConfigInvalid,
    CraftcoreError,
    InvalidInput,
    NotFound,
    PayloadTooLarge,
    ScheduleInvalid,
    StateRefused,
    StillWaiting,
)
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import FireCause, Occurrence, Outcome, Schedule
from craftcore.schedules.occurrence_store import occurrence_of
from craftcore.schedules.store import schedule_of
from craftcore.temporal.ids import workflow_id_of_schedule
from craftcore.temporal.queries import ask
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.task_operations import ANSWER_SECONDS
from craftcore.temporal.workflow.schedule_messages import SCHEDULE_WORKFLOW, ScheduleAnswer, ScheduleBook, ScheduleCall

REFUSALS: dict[str, type[CraftcoreError]] = {
    kind.__name__: kind for kind in (InvalidInput, ScheduleInvalid, PayloadTooLarge, StateRefused, NotFound)
}


class ScheduleClient:
    """Calls to the schedules of one namespace. `within`: seconds that a call may wait for a worker; None:
    ANSWER_SECONDS."""

    def __init__(self, client: Client, within: float | None = None) -> None:
        self._client = client
        self._within = ANSWER_SECONDS if within is None else within

    async def declare(self, schedule_id: str, call: ScheduleCall, task_queue: str) -> str:
        """Declare a schedule. Return what that changed: added, changed, enabled, unchanged; older: nothing, because the
        cluster has a newer declaration.

        A new schedule needs no worker. Raises StillWaiting for another one without a worker, ScheduleInvalid, and
        ConfigInvalid for the id of a schedule of another app.
        """
        try:
            await self._client.start_workflow(
                SCHEDULE_WORKFLOW,
                args=[call, None],
                id=workflow_id_of_schedule(schedule_id),
                task_queue=task_queue,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            )
        except WorkflowAlreadyStartedError:
            await self._refuse_foreign(schedule_id, task_queue)
            return (await self.apply_call(schedule_id, call)).change
        return "added"

    async def _refuse_foreign(self, schedule_id: str, task_queue: str) -> None:
        """Raise ConfigInvalid for a schedule of another task queue: all apps of a namespace share the ids."""
        workflow_id = workflow_id_of_schedule(schedule_id)
        seen = await self._client.get_workflow_handle(workflow_id).describe()
        if seen.task_queue != task_queue:
            raise ConfigInvalid(
                f"schedule {schedule_id} of task queue {task_queue}: the namespace has one of that id, of task queue "
                f"{seen.task_queue}. Rename one, use another namespace, or terminate workflow {workflow_id} to move it"
            )

    async def apply_call(self, schedule_id: str, call: ScheduleCall) -> ScheduleAnswer:
        """Do something with a schedule. Raises NotFound, StateRefused or ScheduleInvalid, and StillWaiting without a
        worker."""
        handle = self._client.get_workflow_handle(workflow_id_of_schedule(schedule_id))
        update = handle.execute_update("operate", call, result_type=ScheduleAnswer)
        answer: ScheduleAnswer = await self._await(schedule_id, update)
        return answer

    async def view(self, schedule_id: str) -> ScheduleBook:
        """Return a schedule as it is. Raises NotFound, and StillWaiting without a worker."""
        handle = self._client.get_workflow_handle(workflow_id_of_schedule(schedule_id))
        book: ScheduleBook = await self._await(schedule_id, ask(handle, "view", result_type=ScheduleBook))
        return book

    async def list_ids(self, task_queue: str = "") -> list[str]:
        """Return the ids of all schedules, by name; with a queue, those of its app. The list may lag a second."""
        query = f'WorkflowType = "{SCHEDULE_WORKFLOW}" AND ExecutionStatus = "Running"'
        if task_queue:
            query += f' AND TaskQueue = "{task_queue}"'
        prefix = len(workflow_id_of_schedule(""))
        return sorted([one.id[prefix:] async for one in self._client.list_workflows(query)])

    async def _await(self, schedule_id: str, call: Any) -> Any:
        try:
            return await asyncio.wait_for(call, self._within)
        except WorkflowUpdateFailedError as error:
            if not isinstance(error.cause, ApplicationError):
                raise StateRefused(str(error.cause)) from error
            raise REFUSALS.get(error.cause.type or "", StateRefused)(error.cause.message) from error
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise StillWaiting(
                f"no worker answered for schedule {schedule_id} within {self._within:g} s; the cluster may still hand "
                "it to the next worker. Start one, and look at the schedule before you send it again"
            ) from error
        except RPCError as error:
            if is_missing(error):
                raise NotFound(
                    f"no schedule has the id {schedule_id!r:.80}; see: craftcore temporal schedule list"
                ) from error
            raise


def schedule_in(book: ScheduleBook, schedule_id: str) -> Schedule:
    """Return the schedule. Raises NotFound before its first declaration was read."""
    if book.row is None:
        raise NotFound(f"schedule {schedule_id} is not declared yet: try again")
    schedule: Schedule = schedule_of(book.row)
    return schedule


def list_placed(answer: ScheduleAnswer) -> list[FiringResult]:
    """Return what became of each occurrence that a person asked for, in order."""
    return [
        FiringResult(**{**one, "outcome": Outcome(one["outcome"]), "cause": FireCause(one["cause"])})
        for one in answer.placed
    ]


def account_in(book: ScheduleBook) -> list[Occurrence]:
    """Return the lines of its account, newest first."""
    return [occurrence_of(line) for line in sorted(book.lines, key=lambda line: -line["seq"])]
