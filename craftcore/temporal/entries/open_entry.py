"""The open entry that calls are sent for: its task, its number, and whether it may go on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

from temporalio.client import Client, WorkflowHandle


@dataclass(slots=True, kw_only=True)
class OpenEntry:
    """An entry of a task.

    workflow_id  the workflow of the task; with a dedup key, another task may have the same one later
    token        the number of the entry
    run_id       the run that the entry belongs to: it goes on in no other; None: the last one
    may_be_lost  asks whether the cluster may have given it up. The clock decides, also when the process was frozen
    has_stopped  asks whether the worker has stopped, and sends not even the end of a call any more
    mark_begun   lets the cluster know that its code begins; None: that is of no use
    """

    client: Client
    workflow_id: str
    task_id: str
    token: int
    run_id: str | None = None
    may_be_lost: Callable[[], bool] = lambda: False
    has_stopped: Callable[[], bool] = lambda: False
    mark_begun: Callable[[], Awaitable[None]] | None = None
    _is_left: bool = field(default=False, init=False)

    def has_lost_lease(self) -> bool:
        """Return whether nothing may be called, recorded or ended for it any more. Any thread may ask.

        Once it is so, it stays so, also when the cluster answers again. A call that was refused meanwhile may be on
        record, and the user's code may have gone on without it.
        """
        self._is_left = self._is_left or self.may_be_lost() or self.has_stopped()
        return self._is_left

    @property
    def workflow(self) -> WorkflowHandle[Any, Any]:
        """Return the workflow, whatever its run is, and whosever."""
        return self.client.get_workflow_handle(self.workflow_id)

    @property
    def run(self) -> WorkflowHandle[Any, Any]:
        """Return the run of the entry. It is of this task, also when it is over."""
        return self.client.get_workflow_handle(self.workflow_id, run_id=self.run_id)
