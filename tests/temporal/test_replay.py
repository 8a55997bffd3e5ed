"""The replay of stored histories in the current workflow code: running tasks survive an upgrade of their workers.

`tests/temporal/histories` has one history of each released version and shape. A history is never changed, and `python
-m tests.temporal.cluster_history NAME` writes a new one.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import anyio
import pytest
from temporalio import workflow
from temporalio.client import WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.worker import Replayer, UnsandboxedWorkflowRunner

from craftcore.temporal.records.recorded_state import read_state
from craftcore.temporal.workflow.messages import WORKFLOW, TaskEnd, TaskStart, TaskState
from craftcore.temporal.workflow.task import TaskWorkflow
from tests.support.processes import PATIENCE
from tests.temporal.cluster_history import record_history
from tests.temporal.replayed import HISTORIES_FOLDER, read_history, replay

pytestmark = pytest.mark.anyio
HISTORIES = sorted(HISTORIES_FOLDER.glob("*.json"))


@pytest.mark.parametrize("path", HISTORIES, ids=lambda path: path.stem)
async def test_stored_history_replays_in_the_current_code(path):
    await replay(read_history(path))


async def test_new_history_replays(cluster):
    with anyio.fail_after(PATIENCE):
        history = await record_history(replace(cluster, task_queue="replays"), steps=3)
    await replay(history)


async def test_wait_has_the_same_beginning_in_each_part_of_its_history():
    """A command may read the history before a worker has processed the end of an entry."""
    history = read_history(HISTORIES_FOLDER / "0.1.0.json")
    began: dict[str, set[float]] = {}
    for end in range(80, 130, 3):  # the waits are open in this range, and a part ends at a completed activity
        known = WorkflowHistory(history.workflow_id, history.events[:end])
        state = await read_state(known, DataConverter.default)
        for wait in state.open_waits:
            began.setdefault(wait.name, set()).add(wait.created_at)
    assert {name: len(moments) for name, moments in began.items()} == {"continued": 1, "sleep#1": 1, "ask#3": 1}


async def test_states_that_are_read_at_once_are_those_of_their_histories():
    names = ("0.1.0", "0.1.0-cancel", "0.1.0-session", "0.1.0-cancel-intent")
    histories = [read_history(HISTORIES_FOLDER / f"{name}.json") for name in names] * 2
    read_ids: list[tuple[str, str]] = []

    async def read(history: WorkflowHistory) -> None:
        state = await read_state(history, DataConverter.default)
        read_ids.append((history.workflow_id, state.task.id))

    async with anyio.create_task_group() as group:
        for history in histories:
            group.start_soon(read, history)
    assert sorted(read_ids) == sorted((history.workflow_id, history.workflow_id) for history in histories)


@workflow.defn(name=WORKFLOW)
class OtherWorkflow:
    """A changed workflow with another beginning."""

    @workflow.run
    async def run(self, start: Any, carried: Any, packed: Any) -> None:
        await workflow.sleep(1)


async def test_history_of_other_code_is_refused():
    """The replay test finds a change that would break running tasks."""
    replayer = Replayer(workflows=[OtherWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    with pytest.raises(workflow.NondeterminismError):
        await replayer.replay_workflow(read_history(HISTORIES_FOLDER / "0.1.0.json"))


@workflow.defn(name=WORKFLOW)
class CarelessWorkflow(TaskWorkflow):
    """A changed workflow that leaves an entry and its calls at INTENT."""

    @workflow.init
    def __init__(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> None:
        super().__init__(start, carried, packed)

    @workflow.run
    async def run(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> TaskEnd:
        return await super().run(start, carried, packed)

    async def _leave_entry(self, *, died: bool = False) -> None:
        self._token = 0


async def test_task_with_an_intent_does_not_close():
    replayer = Replayer(workflows=[CarelessWorkflow], workflow_runner=UnsandboxedWorkflowRunner())
    with pytest.raises(RuntimeError, match="the end of these calls is not known: activity:"):
        await replayer.replay_workflow(read_history(HISTORIES_FOLDER / "0.1.0-cancel.json"))
