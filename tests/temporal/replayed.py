"""Stored histories, and their replay in the current workflow code, in the sandbox of the library."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from temporalio.client import WorkflowHistory
from temporalio.worker import Replayer, WorkflowInstance, WorkflowInstanceDetails
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions

from craftcore.temporal.workflow.gate import GateWorkflow
from craftcore.temporal.workflow.schedule import ScheduleWorkflow
from craftcore.temporal.workflow.task import TaskWorkflow

HISTORIES_FOLDER = Path(__file__).parent / "histories"

RESTRICTIONS = SandboxRestrictions.default.with_passthrough_modules("_pytest")
"""The sandbox imports the code of a workflow for each history. Without the exception for `_pytest`, the rewritten
asserts would import pytest each time."""


def read_history(path: Path) -> WorkflowHistory:
    text = path.read_text()
    started = json.loads(text)["events"][0]["workflowExecutionStartedEventAttributes"]
    return WorkflowHistory.from_json(started["workflowId"], text)


class QueueRunner(SandboxedWorkflowRunner):
    """A runner that gives workflows this task queue. A replay has another name, and gates are named after the queue."""

    def __init__(self, task_queue: str) -> None:
        super().__init__(restrictions=RESTRICTIONS)
        self._task_queue = task_queue

    def create_instance(self, det: WorkflowInstanceDetails) -> WorkflowInstance:
        return super().create_instance(replace(det, info=replace(det.info, task_queue=self._task_queue)))


async def replay(history: WorkflowHistory) -> None:
    """Replay a history. Raises NondeterminismError if the current code differs."""
    started = history.events[0].workflow_execution_started_event_attributes
    runner = QueueRunner(started.task_queue.name)
    workflows = [TaskWorkflow, GateWorkflow, ScheduleWorkflow]
    await Replayer(workflows=workflows, workflow_runner=runner).replay_workflow(history)
