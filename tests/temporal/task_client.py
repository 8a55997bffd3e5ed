"""The calls of the tests to tasks on a cluster: each is one call of the library, without a note of who made it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from temporalio.client import Client, WorkflowUpdateFailedError
from temporalio.service import RPCError

from craftcore.activities.model import Decision
from craftcore.errors import StateRefused
from craftcore.serialization.encode import encode
from craftcore.temporal.ids import workflow_id_of_task
from craftcore.temporal.queries import ask
from craftcore.temporal.records.task_runs import find_last_run, open_task, signal_task
from craftcore.temporal.temporal_client import TemporalClient, make_not_found
from craftcore.temporal.workflow.messages import Mail, TaskView
from craftcore.triggers.model import TriggerSpec


class TaskClient(TemporalClient):
    """Starts tasks, and calls them."""

    @property
    def connection(self) -> Client:
        """The client of the library, for lists."""
        return self._client

    async def emit(self, workflow: str | None = None, payload: Mapping[str, Any] | None = None, **options: Any) -> str:
        """Start a task, and return its id, as `emit_spec`. The options are those of TriggerSpec."""
        return (await self.emit_spec(TriggerSpec(workflow=workflow, payload=payload or {}, **options))).id

    async def signal(self, task_id: str, event: str, payload: Any = None, *, sent_by: str | None = None) -> None:
        """Tell a live task that something happened. It is kept until the task waits for it. Raises NotFound."""
        mail = Mail(event=event, payload_json=encode(payload, "payload"), sent_by=sent_by)
        try:
            await signal_task(self._client, task_id, "deliver", mail)
        except RPCError as error:
            raise make_not_found(task_id, error) from error

    async def answer(
        self, task_id: str, question_id: str, answer: str, *, by: str, reference: str | None = None
    ) -> None:
        """Answer an open question of a task. Raises StateRefused when it is not open, or has no such option."""
        await self._update(task_id, "answer", [question_id, answer, by, None, reference])

    async def decide(
        self, task_id: str, key: str, decision: Decision, *, by: str, reference: str | None = None
    ) -> None:
        """Decide whether an irreversible action in doubt happened. Raises StateRefused when it is not in doubt."""
        await self._update(task_id, "decide", [key, decision.value, reference, by])

    async def cancel(self, task_id: str) -> None:
        """Cancel a task. Raises NotFound."""
        try:
            await (await open_task(self._client, task_id)).cancel()
        except RPCError as error:
            raise make_not_found(task_id, error) from error

    async def view(self, task_id: str) -> TaskView:
        """Return a task as it is, also after its end, as long as a worker runs. Raises NotFound."""
        try:
            run_id = await find_last_run(self._client, task_id)
            handle = self._client.get_workflow_handle(workflow_id_of_task(task_id), run_id=run_id)
            view: TaskView = await ask(handle, "view", result_type=TaskView)
        except RPCError as error:
            raise make_not_found(task_id, error) from error
        return view

    async def _update(self, task_id: str, name: str, args: list[Any]) -> None:
        try:
            await (await open_task(self._client, task_id)).execute_update(name, args=args)
        except WorkflowUpdateFailedError as error:
            raise StateRefused(str(error.cause)) from error
        except RPCError as error:
            raise make_not_found(task_id, error) from error
