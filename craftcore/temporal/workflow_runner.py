"""The runner of our workflows: outside of the sandbox, and only histories that replay.

A worker that does not have a workflow in memory builds it from its history, also to answer a query. For a query the
library (temporalio 1.35) applies newer events, too, like the end of an activity, which belong to the next workflow
task. The rest of that task is applied after them. A replay gets both at once, with updates first, so the order of
commands differs, and the workflow never goes on. Here that workflow task is failed once. The server sends it again, and
the workflow is built from its history. Where the task was of a query, that fails, and the client asks again.

A query also applies the workflow task that another worker has begun, with the moment of its beginning. When that worker
dies, the task is sent again, perhaps with an update. A workflow in that state looks like one that was built for a
workflow task. Only an update tells them apart: no query brings one. So a workflow that was built from its history, has
taken in one workflow task without an update, and was then queried, is built again for its next workflow task.

One case is left. A worker that holds a workflow is frozen for longer than the sticky timeout, and another worker gets
the workflow task. The first worker then answers a query, and the second one dies in its task.
"""

from __future__ import annotations

from typing import Any

from temporalio import workflow
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from craftcore.log import get_logger
from craftcore.temporal.queries import REBUILT

log = get_logger(__name__)

CHANGES_NOTHING = frozenset({"query_workflow", "remove_from_cache"})

LEGACY = "legacy_query"
"""The id of a query that comes by itself, and not with a workflow task."""


class InstanceAround(WorkflowInstance):
    """A workflow in memory, around another one that does everything."""

    def __init__(self, instance: WorkflowInstance) -> None:
        self._instance = instance

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Return the commands that follow from new jobs."""
        return self._instance.activate(act)

    def get_serialization_context(self, command_info: Any) -> Any:
        return self._instance.get_serialization_context(command_info)

    def get_external_store_context(self, command_info: Any) -> Any:
        return self._instance.get_external_store_context(command_info)

    def get_info(self) -> workflow.Info:
        return self._instance.get_info()

    def get_thread_id(self) -> int | None:
        return self._instance.get_thread_id()


class ReplayableInstance(InstanceAround):
    """A workflow in memory that takes in nothing more, once it is ahead of its workflow tasks."""

    def __init__(self, instance: WorkflowInstance) -> None:
        super().__init__(instance)
        self._is_ahead = False
        self._was_replaying = False
        self._is_unproven = False
        """Its last workflow task may have been one that another worker had begun when this one built it for a query."""
        self._taken: tuple[int, int, int] | None = None
        """The length of the history and the moment of the workflow task that were taken in last."""

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Return the commands that follow from new jobs, or a failure of the workflow task."""
        kinds = {job.WhichOneof("variant") for job in act.jobs}
        if kinds <= CHANGES_NOTHING:
            if any(job.query_workflow.query_id == LEGACY for job in act.jobs):
                self._is_ahead = self._is_ahead or self._is_unproven
            return super().activate(act)
        if self._is_ahead:
            return self._refuse(act)
        self._take_in(act, has_update="do_update" in kinds)
        return super().activate(act)

    def _take_in(self, act: WorkflowActivation, *, has_update: bool) -> None:
        """Decide whether the next jobs of the workflow may follow these."""
        taken, last = (act.history_length, act.timestamp.seconds, act.timestamp.nanos), self._taken
        # Each workflow task has a moment of its own. More events at the moment of the last one are of no task yet.
        is_same = last is not None and taken[1:] == last[1:]
        self._is_ahead = last is not None and is_same and taken[0] > last[0]
        if has_update:
            self._is_unproven = False
        elif not is_same:
            self._is_unproven = self._was_replaying and not act.is_replaying
        self._taken, self._was_replaying = taken, act.is_replaying

    def _refuse(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        info = self.get_info()
        log.info("temporal.workflow_rebuilt", workflow=info.workflow_id, run=info.run_id, events=act.history_length)
        completion = WorkflowActivationCompletion(run_id=act.run_id)
        completion.failed.failure.message = REBUILT
        return completion


class ReplayableRunner(UnsandboxedWorkflowRunner):
    """Runs workflows in the process, without the sandbox of the library, which costs a fifth of a step."""

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return ReplayableInstance(super().create_instance(det))
