"""A signal of a workflow to another one."""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.exceptions import ApplicationError


async def send_signal(workflow_id: str, signal: str, *args: Any) -> bool:
    """Send a signal to the workflow of this id. Return False when it has ended, or is not there."""
    try:
        await workflow.get_external_workflow_handle(workflow_id).signal(signal, args=args)
    except ApplicationError:
        return False
    return True
