"""The look at a task before it is signalled: which of its runs goes on, and whether it waits for that."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import timedelta

from temporalio.client import Client, WorkflowQueryFailedError, WorkflowQueryRejectedError
from temporalio.service import RPCError

from craftcore.errors import NotFound
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.queries import ask
from craftcore.temporal.records.task_runs import TaskRun, find_run
from craftcore.temporal.rpc_errors import is_of_no_task

ANSWER_PATIENCE = timedelta(seconds=2)
"""How long a signal waits for the answer whether its task waits for it."""

RETRY_SECONDS = 0.5
"""How often a cluster that cannot be reached is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressee:
    """A task to be signalled. `run_id` empty: its id names no run, so the last one of its workflow is meant."""

    run_id: str = ""
    waits: bool = False


async def look_for(client: Client, task_id: str, event: str) -> Addressee:
    """Return where a task is, and whether it waits for this event. A cluster that cannot be reached is asked until it
    answers.

    Raises NotFound when another task has used its dedup key since, or there is no such task.
    """
    while True:
        try:
            run = await find_run(client, task_id)
            break
        except RPCError as error:
            if is_of_no_task(error):
                raise NotFound(f"no live task {task_id}") from error
        await asyncio.sleep(RETRY_SECONDS)
    waits = await ask_waiting(client, task_id, event, run)
    return Addressee(run_id="" if run is None else run.run_id, waits=waits)


async def ask_waiting(client: Client, task_id: str, event: str, run: TaskRun | None) -> bool:
    """Return whether a task waits for this event now. False also when no worker answers: a signal needs none."""
    try:
        handle = client.get_workflow_handle(workflow_id_of_task(task_id), run_id=None if run is None else run.run_id)
        waits: bool = await ask(handle, "waits_for", event, result_type=bool, timeout=ANSWER_PATIENCE)
        return waits
    except (RPCError, WorkflowQueryFailedError, WorkflowQueryRejectedError):
        return False
