"""The state of a task from its history: the workflow's own code replays it in this process. It needs no worker."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from copy import deepcopy
from dataclasses import replace

from temporalio import workflow
from temporalio.api.enums.v1 import EventType
from temporalio.api.history.v1 import HistoryEvent
from temporalio.bridge.proto.workflow_activation import WorkflowActivation
from temporalio.bridge.proto.workflow_completion import WorkflowActivationCompletion
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner, WorkflowInstance, WorkflowInstanceDetails

from craftcore.errors import StateRefused
from craftcore.temporal.workflow.messages import WORKFLOW, TaskEnd, TaskStart, TaskState
from craftcore.temporal.workflow.task import TaskWorkflow
from craftcore.temporal.workflow_runner import InstanceAround

WRITTEN = (
    EventType.EVENT_TYPE_WORKFLOW_TASK_COMPLETED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED,
    EventType.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED,
)
"""Events that workflow code writes, beside those of its commands."""

_STATES: ContextVar[list[TaskState]] = ContextVar("_STATES")
"""The list to which a workflow adds its state when it is made. Several replays may run at the same time."""


@workflow.defn(name=WORKFLOW)
class RecordedTask(TaskWorkflow):
    """The workflow of a task, whose state remains after a replay."""

    @workflow.init
    def __init__(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> None:
        super().__init__(start, carried, packed)
        _STATES.get().append(self._state)

    @workflow.run
    async def run(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> TaskEnd:
        """Enter turns until the task has ended."""
        return await super().run(start, carried, packed)


class _KeptInstance(InstanceAround):
    """A replayed workflow. Its state is copied before an eviction cancels what waits in it."""

    def __init__(self, instance: WorkflowInstance, kept: list[TaskState]) -> None:
        super().__init__(instance)
        self._kept = kept
        self._states: list[TaskState] = []

    def activate(self, act: WorkflowActivation) -> WorkflowActivationCompletion:
        if any(job.HasField("remove_from_cache") for job in act.jobs):
            self._kept.extend(deepcopy(self._states))
        before = _STATES.set(self._states)
        try:
            return super().activate(act)
        finally:
            _STATES.reset(before)


class _KeepingRunner(UnsandboxedWorkflowRunner):
    """Replays with the task queue of the history: a replayer has its own, and gates are named after that of the app."""

    def __init__(self, task_queue: str) -> None:
        super().__init__()
        self.kept: list[TaskState] = []
        self._task_queue = task_queue

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        there = replace(det, info=replace(det.info, task_queue=self._task_queue))
        return _KeptInstance(super().create_instance(there), self.kept)


def _cut_to_taken_in(events: Sequence[HistoryEvent]) -> Sequence[HistoryEvent]:
    """Return the events up to the last one that workflow code wrote.

    The library replays the others, too, at the time of an earlier workflow task: what began with them would seem older
    than it is.
    """
    for last, event in reversed(list(enumerate(events, 1))):
        # Some events of the server have the field, too, and it is 0 there.
        attributes = getattr(event, event.WhichOneof("attributes") or "", None)
        if event.event_type in WRITTEN or getattr(attributes, "workflow_task_completed_event_id", None):
            return events[:last]
    return events


async def read_state(history: WorkflowHistory, converter: DataConverter) -> TaskState:
    """Return the state of a task at the end of the history of one run.

    It is that of the last event that a worker has taken in. Raises StateRefused when the history is of another version
    of craftcore, or when no worker has taken in anything.
    """
    started = history.events[0].workflow_execution_started_event_attributes
    history = WorkflowHistory(history.workflow_id, _cut_to_taken_in(history.events))
    runner = _KeepingRunner(started.task_queue.name)
    replayer = Replayer(workflows=[RecordedTask], workflow_runner=runner, data_converter=converter)
    result = await replayer.replay_workflow(history, raise_on_replay_failure=False)
    if result.replay_failure is not None:
        message = " ".join(str(result.replay_failure).split())
        raise StateRefused(
            f"the history of {history.workflow_id} does not fit this version of craftcore: {message:.300}"
        )
    if not runner.kept:
        raise StateRefused(f"task {history.workflow_id} has not begun: no worker has taken it")
    return runner.kept[-1]
