"""The calls of a person to tasks on a cluster. Each call is an update or a signal, so the history keeps who and why."""

from __future__ import annotations

import asyncio
from typing import Any

from temporalio.client import Client, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError
from temporalio.service import RPCError, RPCStatusCode

from craftcore.activities.model import Activity, Decision
from craftcore.errors import NotFound, StateRefused, StillWaiting
from craftcore.serialization.encode import encode
from craftcore.tasks.model import Question
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.records.history import read_history, read_runs
from craftcore.temporal.records.history_events import Operation
from craftcore.temporal.records.recorded_state import read_state
from craftcore.temporal.records.recorded_task import RecordedTask
from craftcore.temporal.records.task_list import find_task_of_activity, find_workflow_id, list_tasks
from craftcore.temporal.records.task_records import list_questions
from craftcore.temporal.records.task_runs import find_last_run, open_task, signal_task
from craftcore.temporal.rpc_errors import is_of_no_task
from craftcore.temporal.task_retry import TaskRetry
from craftcore.temporal.workflow.messages import Mail

ANSWER_SECONDS = 10.0
"""How long a call waits for a worker that takes it."""


class TaskOperations:
    """The calls of a person. `within`: seconds that a call may wait for a worker; None: ANSWER_SECONDS."""

    def __init__(self, client: Client, within: float | None = None) -> None:
        self._client = client
        self._within = ANSWER_SECONDS if within is None else within

    async def load(self, task_id: str) -> RecordedTask:
        """Read a task from its history; it needs no worker. Raises NotFound; StateRefused for a foreign history."""
        workflow_id = workflow_id_of_task(task_id)
        try:
            runs = await read_runs(self._client, workflow_id, await find_last_run(self._client, task_id))
        except RPCError as error:
            raise _make_refusal(task_id, error) from error
        history = await read_history(runs, self._client.data_converter)
        begun = any(event.HasField("workflow_task_completed_event_attributes") for event in runs.last.events)
        state = await read_state(runs.last, self._client.data_converter) if begun else None
        return RecordedTask(workflow_id=workflow_id, runs=runs, history=history, state=state)

    async def find(self, given: str) -> RecordedTask:
        """Read the task that is meant by its id, whole or the beginning. Raises NotFound, also for a task whose dedup
        key another task has used since."""
        found = await self.load(await find_workflow_id(self._client, given))
        if workflow_id_of_task(given) != given and given != found.id:
            raise NotFound(f"task {given} is not the last of its dedup key, which task {found.id} has used since")
        return found

    async def list_having(self, attribute: str, limit: int) -> list[RecordedTask]:
        """Read the live tasks that have a search attribute, the newest first."""
        found = []
        for one in await list_tasks(self._client, limit=limit, is_live=True, having=attribute):
            try:
                found.append(await self.load(one.id))
            except NotFound:  # it has ended, and the retention took it meanwhile
                continue
        return found

    async def find_question(self, question_id: str) -> Question:
        """Return an open question. Raises NotFound; StateRefused when it is not open any more, with who answered it."""
        task_id, _, number = question_id.rpartition(".")
        missing = NotFound(f"no question has the id {question_id!r:.200}; see: craftcore temporal inbox list")
        if not task_id:
            raise missing
        try:
            found = await self.find(task_id)
        except NotFound as error:
            raise NotFound(f"no question has the id {question_id!r:.200}: {error.message}") from error
        whole = f"{found.id}.{number}"
        for question in list_questions(found):
            if question.id == whole:
                return question
        for one in found.history.operations:
            if (one.action, one.subject) == ("inbox answer", whole):
                raise StateRefused(f"question {whole} was answered by {one.by} with {one.details['answer']!r:.200}")
        made = 0 if found.state is None else found.state.waits_made
        if number.isascii() and number.isdigit() and 0 < int(number[:9]) <= made:
            raise StateRefused(f"question {whole} is not open: task {found.id} is {found.task.status}")
        raise missing

    async def find_activity(self, key: str) -> tuple[RecordedTask, Activity]:
        """Return the irreversible action of a whole key, with its task. Raises NotFound."""
        found = await self.load(await find_task_of_activity(self._client, key))
        whole = key if key.startswith("activity:") else f"activity:{key}"
        act = None if found.state is None else found.state.acts.get(whole)
        if act is None:
            raise NotFound(f"task {found.id} keeps no activity {whole}; see: craftcore temporal task events {found.id}")
        return found, act

    async def signal(self, task_id: str, event: str, payload: Any, *, by: str | None) -> None:
        """Tell a live task that something happened. Needs no worker. Raises NotFound, and StateRefused after its
        end."""
        mail = Mail(event=event, payload_json=encode(payload, "payload"), sent_by=by)
        try:
            await signal_task(self._client, task_id, "deliver", mail)
        except RPCError as error:
            raise _make_refusal(task_id, error) from error

    async def cancel(self, task_id: str, *, by: str, note: str | None) -> None:
        """Ask a task to end. Needs no worker. Raises NotFound, and StateRefused when it has ended."""
        try:
            await signal_task(self._client, task_id, "note_operation", "task cancel", by, note)
            await (await open_task(self._client, task_id)).cancel()
        except RPCError as error:
            raise _make_refusal(task_id, error) from error

    async def answer(self, question_id: str, choice: str, *, by: str, note: str | None, reference: str | None) -> None:
        """Answer a question. Raises StateRefused, which names the first answer; StillWaiting without a worker."""
        task_id = question_id.rpartition(".")[0]
        try:
            await self._update(task_id, "answer", [question_id, choice, by, note, reference])
        except (StateRefused, NotFound) as error:
            first = await self._find_operation(task_id, "inbox answer", question_id)
            if first is None:
                raise
            raise StateRefused(
                f"question {question_id} was answered before, by {first.by}: {first.details['answer']!r:.200}"
            ) from error

    async def decide(
        self, task_id: str, key: str, decision: Decision, *, by: str, note: str | None, reference: str | None
    ) -> None:
        """Decide about an action in doubt. Raises StateRefused when it is in none; StillWaiting without a worker."""
        await self._update(task_id, "decide", [key, decision.value, reference, by, note])

    async def retry(self, task_id: str, *, by: str, note: str | None) -> None:
        """Start a run that goes on with the state of a failed task. Completed steps are kept. The children that were
        cancelled with it go on before. Needs no worker. After an error it may be called again.

        Raises NotFound; StateRefused when the task has not failed, or a child is still being cancelled; PayloadTooLarge
        for a state that a run cannot carry.
        """
        try:
            await TaskRetry(self._client, self.load, by=by, note=note).retry(task_id)
        except RPCError as error:
            raise _make_refusal(task_id, error) from error

    async def _update(self, task_id: str, name: str, args: list[Any]) -> None:
        try:
            handle = await open_task(self._client, task_id)
            await asyncio.wait_for(handle.execute_update(name, args=args), self._within)
        except WorkflowUpdateFailedError as error:
            raise StateRefused(str(error.cause)) from error
        except (TimeoutError, WorkflowUpdateRPCTimeoutOrCancelledError) as error:
            raise StillWaiting(
                f"no worker took it within {self._within:g} s. It may be applied later, by the next worker: "
                "start one, and look at the task before you send it again"
            ) from error
        except RPCError as error:
            raise _make_refusal(task_id, error) from error

    async def _find_operation(self, task_id: str, action: str, subject: str) -> Operation | None:
        found = (await self.load(task_id)).history.operations
        return next((one for one in found if one.action == action and one.subject == subject), None)


def _make_refusal(task_id: str, error: RPCError) -> Exception:
    if error.status is RPCStatusCode.NOT_FOUND and "already completed" in str(error):
        return StateRefused(f"task {task_id} has ended")
    if is_of_no_task(error):
        return NotFound(f"no task has the id {task_id!r:.200}; see: craftcore temporal task list")
    return error
