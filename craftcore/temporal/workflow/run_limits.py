"""The limits of one run of a workflow: when a task has to go on in its next run."""

from __future__ import annotations

from temporalio import workflow

from craftcore.temporal.workflow.carried import pack
from craftcore.temporal.workflow.messages import TaskStart, TaskState

UPDATES_SPARE = 400
"""How many updates more a run takes, while its state is too large to be carried. The server takes 2,000 in a run."""

EVENTS_MAX = 45_000
HISTORY_MAX_BYTES = 40_000_000
"""The same for its history. The server ends a run at 51,200 events and at 50 MB."""

MEASURED_EVERY = 50
"""Updates between two looks at a state that was too large."""


class RunLimits:
    """Counts what a run has taken of its limits."""

    def __init__(self, start: TaskStart) -> None:
        self._start = start
        self._updates_max = start.run_updates_max
        self._measured_at = -MEASURED_EVERY
        self.updates = 0
        self.children = 0
        """Those that it has started and that have not ended."""

    def is_due(self, state: TaskState) -> bool:
        """Return whether the task has to go on in its next run. One whose state is too large for that goes on in this
        run as long as the server allows it."""
        if self.children >= self._start.run_children_max:
            return True
        info = workflow.info()
        if self.updates < self._updates_max and not info.is_continue_as_new_suggested():
            return False
        if (
            self.updates >= self._updates_max + UPDATES_SPARE
            or info.get_current_history_length() >= EVENTS_MAX
            or info.get_current_history_size() >= HISTORY_MAX_BYTES
        ):
            return True
        if self.updates - self._measured_at < MEASURED_EVERY:
            return False
        if pack(self._start, state) is not None:
            return True
        self._measured_at = self.updates
        return False
