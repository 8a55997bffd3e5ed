"""Queries of workflows, which are asked again when a worker had to build the workflow again."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from temporalio.client import WorkflowHandle, WorkflowQueryFailedError

REBUILT = "a query had applied events of this workflow task: the workflow is built from its history again"
"""The failure of what a worker did not take in, because its workflow was ahead: see `workflow_runner`."""

TRIES_MAX = 5


async def ask(
    handle: WorkflowHandle[Any, Any], name: str, *args: Any, result_type: Any, timeout: timedelta | None = None
) -> Any:
    """Return the answer of a workflow. `timeout`: of one try; None: the library's own.

    Raises RPCError, WorkflowQueryFailedError and WorkflowQueryRejectedError as the library does.
    """
    tries = 0
    while True:
        try:
            return await handle.query(name, args=args, result_type=result_type, rpc_timeout=timeout)
        except WorkflowQueryFailedError as error:
            tries += 1
            if REBUILT not in str(error) or tries == TRIES_MAX:
                raise
