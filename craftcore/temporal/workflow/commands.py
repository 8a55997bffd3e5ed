"""The commands of a workflow to the cluster: timers, signals, tasks, and work that no cancel breaks off."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError

from craftcore.temporal.workflow.messages import WORKFLOW, TaskStart, first_arguments
from craftcore.temporal.workflow.priorities import make_priority
from craftcore.temporal.workflow.search_attributes import make_first_attributes

T = TypeVar("T")

TIMER_MIN_SECONDS = 0.001
"""Less than this would be no timer."""


async def run_shielded(work: Coroutine[Any, Any, T]) -> T:
    """Do this to its end, and return its result. A cancel of the workflow does not interrupt it, and is not raised.

    A cancel may come together with the answer to a signal. The library (temporalio 1.35) then cancels a signal that has
    arrived, which its core refuses at each attempt, so the workflow would never go on. It also cancels the child that
    was being started.
    """
    doing = asyncio.create_task(work)
    while not doing.done():
        with suppress(asyncio.CancelledError):
            await asyncio.shield(doing)
    return doing.result()


async def send_signal(workflow_id: str, signal: str, *args: Any) -> bool:
    """Send a signal to the workflow of this id. Return False when it has ended, or is not there."""
    try:
        await workflow.get_external_workflow_handle(workflow_id).signal(signal, args=args)
    except ApplicationError:
        return False
    return True


async def sleep_until(moment: float) -> None:
    """Sleep by a timer, also when the moment is past.

    The time of a workflow may differ at a replay. When a worker replays a task for a query, a timer that has fired
    meanwhile is seen at the time of the last workflow task. So no command may depend on a comparison with the time.
    """
    await asyncio.sleep(seconds_until(moment))


def seconds_until(moment: float) -> float:
    """Return the seconds until a moment, at least those of the shortest timer."""
    return max(TIMER_MIN_SECONDS, moment - workflow.time())


async def start_task(
    workflow_id: str, start: TaskStart, reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.ALLOW_DUPLICATE
) -> workflow.ChildWorkflowHandle[Any, Any]:
    """Start a task, which lives on when this workflow ends. Raises WorkflowAlreadyStartedError."""
    return await workflow.start_child_workflow(
        WORKFLOW,
        args=first_arguments(start),
        id=workflow_id,
        id_reuse_policy=reuse,
        parent_close_policy=workflow.ParentClosePolicy.ABANDON,
        search_attributes=make_first_attributes(start.workflow, start.session_id),
        priority=make_priority(start),
    )


def ignore_end(child: asyncio.Task[Any]) -> None:
    """Take the failure of a task that this workflow has started: its signal reports how it ended."""
    if not child.cancelled():
        child.exception()
