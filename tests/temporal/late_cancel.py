"""A workflow runner that delivers an event and a cancellation together, as after an outage of the workers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.worker import WorkflowInstance, WorkflowInstanceDetails

from craftcore.temporal.workflow.messages import WORKFLOW
from craftcore.temporal.workflow_runner import CHANGES_NOTHING, InstanceAround, ReplayableRunner


@dataclass
class Moment:
    """The first matching activation of the next task, at which the task waits for its cancellation.

    `held` counts the workflow tasks that were failed meanwhile.
    """

    matches: Callable[[WorkflowActivation], bool]
    workflow_id: str | None = None
    is_over: bool = False
    held: int = 0


class LateInstance(InstanceAround):
    """A task whose activations fail from its moment on, until the cancellation is among the jobs."""

    def __init__(self, instance: WorkflowInstance, moment: Moment) -> None:
        super().__init__(instance)
        self._moment = moment

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        """Return the commands for new jobs, or a failure until the cancellation is among the jobs."""
        moment, info = self._moment, self.get_info()
        if moment.workflow_id is None and info.workflow_type == WORKFLOW:
            moment.workflow_id = info.workflow_id
        jobs = {job.WhichOneof("variant") for job in act.jobs}
        if moment.is_over or moment.workflow_id != info.workflow_id or jobs <= CHANGES_NOTHING:
            return super().activate(act)
        if not moment.matches(act):
            return super().activate(act)
        if "cancel_workflow" in jobs:
            moment.is_over = True
            return super().activate(act)
        moment.held += 1
        completion = WorkflowActivationCompletion(run_id=act.run_id)
        completion.failed.failure.message = "it waits for the cancel"
        return completion


class LateRunner(ReplayableRunner):
    """A runner of workflows that delivers a cancellation to one of them at a moment, which tests may replace."""

    def __init__(self) -> None:
        super().__init__()
        self.moment = Moment(lambda _: False)

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return LateInstance(super().create_instance(det), self.moment)
