"""The calls of an app, and of a producer, to a cluster: those that `App` makes of its engine on one machine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any, ClassVar, NoReturn

from temporalio.client import Client

from craftcore.activities.model import Decision
from craftcore.client.backend import Capability, make_refusal
from craftcore.errors import InvalidInput, NotFound, StateRefused
from craftcore.registry.registry import Registry
from craftcore.results.handle import EmittedHandle, timeout_error, timeout_seconds
from craftcore.results.own_work import refuse_own_wait
from craftcore.serialization.arguments import Duration
from craftcore.serialization.display import json_or_text
from craftcore.tasks.model import Question, Task
from craftcore.tasks.stream_chunks import StreamChunk
from craftcore.tasks.work_store import Failure, WorkFilter, WorkResult, WorkUpdate
from craftcore.temporal.addressee import ask_waiting
from craftcore.temporal.cluster_connection import translate_calls
from craftcore.temporal.cluster_lacks import LACKS
from craftcore.temporal.ids import queue_name, workflow_id_of_key
from craftcore.temporal.records.task_list import ListedTask, WorkStatus, list_tasks, list_triggers, require_task_status
from craftcore.temporal.records.task_records import make_question
from craftcore.temporal.records.task_runs import find_run
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.task_operations import TaskOperations
from craftcore.temporal.temporal_client import TemporalClient
from craftcore.temporal.workflow.messages import WORKFLOW, OpenQuestion
from craftcore.temporal.workflow.search_attributes import ASKS_KEY, QUESTIONS_MEMO
from craftcore.triggers.model import Trigger, TriggerSpec

FOLLOW_SECONDS = 0.5
"""The time between two looks at a task that is followed."""

BY_THE_APP = "the app"


@translate_calls
class ClusterRequests:
    """The calls of one app to a cluster. `app` None: a program without its code.

    Each raises ClusterUnavailable while the cluster cannot be reached, and PermissionRefused.
    """

    lacks: ClassVar[Mapping[Capability, str]] = LACKS

    def __init__(self, connection: Client, app: Registry | None, settings: TemporalSettings) -> None:
        self.client = self  # an app takes its calls from here, as from an engine
        self._connection = connection
        self._settings = settings
        self._client = TemporalClient(connection, app, settings)
        self._operations = TaskOperations(connection)
        queue = settings.task_queue or ("" if app is None else app.name)
        self._home = queue_name(connection.namespace, queue)

    async def emit(self, spec: TriggerSpec) -> EmittedHandle[Any]:
        """Start a task. It is on record when this returns, with or without a worker."""
        return EmittedHandle(self, await self._client.emit_spec(spec))

    async def emit_many(self, specs: Sequence[TriggerSpec]) -> list[EmittedHandle[Any]]:
        """Start tasks one after the other. The first refusal stops it; its `details` have `emitted`, how many were
        started before."""
        handles: list[EmittedHandle[Any]] = []
        for spec in specs:
            try:
                handles.append(await self.emit(spec))
            except InvalidInput as error:
                error.details["emitted"] = len(handles)
                raise
        return handles

    async def signal(
        self,
        task_id: str | None,
        event: str,
        payload: Any = None,
        *,
        sent_by: str | None = None,
        start: TriggerSpec | None = None,
    ) -> bool:
        """Tell a live task that something happened. True when it waited for just that a moment earlier."""
        if task_id is None or start is not None:
            raise make_refusal(self, Capability.SIGNAL_OR_START)
        run = await find_run(self._connection, task_id)
        waited = await ask_waiting(self._connection, task_id, event, run)
        await self._operations.signal(task_id, event, payload, by=sent_by)
        return waited

    async def answer(
        self, question_id: str, choice: str, *, note: str | None, reference: str | None, answered_by: str
    ) -> None:
        """Answer a question, once. Needs a worker. Raises StateRefused: too late; StillWaiting without a worker."""
        await self._operations.answer(question_id, choice, by=answered_by, note=note, reference=reference)

    async def decide(
        self, activity_key: str, decision: Decision, *, note: str | None, reference: str | None, decided_by: str
    ) -> None:
        """Decide about an action in doubt. Needs a worker. Raises StateRefused; StillWaiting without a worker."""
        found, activity = await self._operations.find_activity(activity_key)
        await self._operations.decide(found.id, activity.key, decision, by=decided_by, note=note, reference=reference)

    async def cancel_task(self, task_id: str) -> None:
        """Ask a task to end."""
        await self._operations.cancel(task_id, by=BY_THE_APP, note="cancelled")

    cancel = cancel_work = cancel_task
    """A trigger is the workflow of its task, so they have one id."""

    async def retry_task(self, task_id: str) -> None:
        """Let a FAILED task try its last turn again."""
        await self._operations.retry(task_id, by=BY_THE_APP, note=None)

    requeue = retry_task

    async def task(self, task_id: str) -> Task | None:
        """Return a task as its history has it; None when there is none, or no worker has taken it yet."""
        try:
            found = await self._operations.load(task_id)
        except NotFound:
            return None
        return None if found.state is None else found.state.task

    async def tasks(self, status: str | None, workflow: str | None, session_id: str | None, limit: int) -> list[Task]:
        """Return the newest tasks that match, as their histories have them. One that no worker has taken is left
        out."""
        ids = await self.find_ids(WorkFilter(workflow, session_id, None, status), limit)
        return [task for task in [await self.task(id) for id in ids] if task is not None]

    async def state_of(self, id: str) -> Task | Trigger:
        """Return the task. Raises NotFound; StateRefused before its first turn, when it has no state yet."""
        found = await self._operations.load(id)
        if found.state is None:
            raise StateRefused(f"task {id} has not begun: no worker has taken it yet")
        return found.state.task

    async def result_of(self, id: str, type: Any, timeout: Duration | None) -> Any:
        """Wait for the end of a task, and return its result as `type`; None: as its workflow's return type."""
        from craftcore.results.result_value import require_result  # its library is not needed to emit

        within = timeout_seconds(timeout)
        refuse_own_wait(self._home, within, "result")
        try:
            end = await asyncio.wait_for(self._client.result(id), within)
        except TimeoutError as error:
            raise timeout_error(id, within, "it goes on while a worker runs") from error
        failure = None if end.status == "DONE" else Failure(end.error_code, end.error_message)
        if type is None and failure is None:
            type = await self._client.find_result_type(id)
        return require_result(WorkResult(id, None, end.status, end.reason, end.result_json, failure), type)

    async def follow_work(self, id: str) -> AsyncGenerator[WorkUpdate, None]:
        """Yield a task as it is, and after each change that was seen, until its end."""
        refuse_own_wait(self._home, None, "events")
        last = None
        while True:
            task = await self.task(id)
            if task is not None:
                progress = None if task.progress_json is None else json_or_text(task.progress_json)
                is_over = not task.status.is_live
                update = WorkUpdate(task.status, task.reason, task.turn, progress, task.progress_count, is_over)
                if update != last:
                    yield update
                    last = update
                if is_over:
                    return
            await asyncio.sleep(FOLLOW_SECONDS)

    def follow_stream(self, id: str, name: str, after: int) -> AsyncGenerator[StreamChunk, None]:
        raise make_refusal(self, Capability.STREAMS)

    async def find_ids(self, filter: WorkFilter, limit: int) -> list[str]:
        """Return the ids of the newest tasks that match. Raises InvalidInput for an unknown status."""
        found = await self._list(filter, limit)
        ids = [await self._client.read_task_id(one.id, one.run_id) for one in found]
        return list(dict.fromkeys(ids))  # a task that was retried is listed twice

    async def _list(self, filter: WorkFilter, limit: int) -> list[ListedTask]:
        status = filter.status
        filters: dict[str, Any] = {
            "limit": limit,
            "workflow": filter.workflow,
            "session_id": filter.session_id,
            "workflow_id": None if filter.dedup_key is None else workflow_id_of_key(filter.dedup_key),
        }
        if status == WorkStatus.PENDING:
            return await list_triggers(self._connection, status=WorkStatus.PENDING, **filters)
        of_task = None if status is None else require_task_status(status)
        return await list_tasks(self._connection, status=of_task, **filters)

    async def questions(self, limit: int) -> list[Question]:
        """Return what waits for an answer, oldest task first. It needs no worker, and may lag by a second."""
        query = f"WorkflowType = '{WORKFLOW}' AND ExecutionStatus = 'Running' AND {ASKS_KEY.name} IS NOT NULL"
        listed = [one async for one in self._connection.list_workflows(query, limit=limit)]
        found = [
            make_question(OpenQuestion(**asked)) for one in listed for asked in await one.memo_value(QUESTIONS_MEMO, [])
        ]
        return sorted(found, key=lambda one: one.created_at)[:limit]

    @property
    def schedules(self) -> NoReturn:
        raise make_refusal(self, Capability.SCHEDULES)

    async def stop_turn(self, task_id: str) -> NoReturn:
        raise make_refusal(self, Capability.STOP_TURN)

    async def cancel_all(self, reason: str, *, with_schedules: bool) -> NoReturn:
        raise make_refusal(self, Capability.CANCEL_ALL)

    async def hold(self, target: object, reason: str | None) -> NoReturn:
        raise make_refusal(self, Capability.HOLD)

    async def release(self, target: object) -> NoReturn:
        raise make_refusal(self, Capability.HOLD)

    async def history(self, session_id: str, limit: int, after: int, before: int | None) -> NoReturn:
        raise make_refusal(self, Capability.HISTORY)

    async def forget_history(self, session_id: str) -> NoReturn:
        raise make_refusal(self, Capability.HISTORY)

    async def dead_letters(self, limit: int) -> NoReturn:
        raise make_refusal(self, Capability.DEAD_LETTERS)

    async def transaction(self, fn: object, args: tuple[Any, ...]) -> NoReturn:
        raise make_refusal(self, Capability.TRANSACTION)
