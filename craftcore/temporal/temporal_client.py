"""The calls of a program to the tasks of an app on a cluster: emit, signal, answer, decide, look."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowFailureError, WorkflowUpdateFailedError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, CancelledError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from craftcore.activities.model import Decision
from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.errors import ConfigInvalid, NotFound, StateRefused
from craftcore.registry.registry import Registry
from craftcore.serialization.encode import encode
from craftcore.temporal.emission import find_target, is_kept_forever, make_answer, start_of
from craftcore.temporal.entries.accept import make_accept
from craftcore.temporal.entries.declared_limits import find_limits
from craftcore.temporal.ids import task_id_of, workflow_id_of_task
from craftcore.temporal.queries import ask
from craftcore.temporal.records.task_runs import find_last_run, open_task, read_run, signal_task
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.session_gates import SessionGates
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.workflow.messages import WORKFLOW, Mail, TaskEnd, TaskStart, TaskView, first_arguments
from craftcore.temporal.workflow.priorities import make_priority
from craftcore.temporal.workflow.search_attributes import make_first_attributes
from craftcore.temporal.workflow.task_moves import make_cancelled_end
from craftcore.triggers.duplicates import find_foreign_holder
from craftcore.triggers.model import Emitted, NewTrigger, TriggerSpec


class TemporalClient:
    """Calls of a program to one app on a cluster. `app` None: a program without its code, which checks no payload."""

    def __init__(
        self,
        client: Client,
        app: Registry | None,
        settings: TemporalSettings,
        *,
        gate_check: float = 60.0,
        gate_idle: float = 3600.0,
    ) -> None:
        self._client = client
        self._app = app
        self._gate_check, self._gate_idle = gate_check, gate_idle
        self._settings = settings
        self._task_queue = settings.task_queue or ("" if app is None else app.name)
        self._gates = SessionGates(client, self._task_queue)
        self._accept = make_accept(app, SystemClock(), Config())

    @property
    def connection(self) -> Client:
        """The client of the library, for lists."""
        return self._client

    async def emit(self, workflow: str | None = None, payload: Mapping[str, Any] | None = None, **options: Any) -> str:
        """Start a task, and return its id, as `emit_spec`. The options are those of TriggerSpec."""
        return (await self.emit_spec(TriggerSpec(workflow=workflow, payload=payload or {}, **options))).id

    async def emit_spec(self, spec: TriggerSpec) -> Emitted:
        """Start a task. It is on record when this returns, with or without a worker. A trigger with a session and
        no workflow goes to the live task of that session.

        Raises InvalidInput for a task_id, and for a replacement; DuplicateTrigger; ConfigInvalid for a
        namespace without search attributes.
        """
        row = self._accept(spec)
        workflow_id = find_target(row)
        start = self._start_of(row)
        announced = await self._gates.announce(workflow_id, start)
        try:
            handle = await self._client.start_workflow(
                WORKFLOW,
                args=first_arguments(start),
                id=workflow_id,
                task_queue=self._task_queue,
                task_timeout=timedelta(seconds=self._settings.task_timeout),
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE
                if is_kept_forever(row)
                else WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                search_attributes=make_first_attributes(start.workflow, start.session_id),
                priority=make_priority(start),
            )
        except RPCError as error:
            if error.status is RPCStatusCode.INVALID_ARGUMENT and "earch attribute" in error.message:
                raise ConfigInvalid(
                    f"namespace {self._client.namespace} lacks search attributes: run craftcore temporal setup once, "
                    f"as an administrator ({error.message:.200})"
                ) from error
            raise
        except WorkflowAlreadyStartedError as error:
            await self._gates.withdraw(start, announced)
            id, holder = await self._find_holder(workflow_id, error.run_id)
            if refusal := find_foreign_holder(row, id, holder):
                raise refusal from error
            return make_answer(row, id, created=False)
        return make_answer(row, task_id_of(workflow_id, handle.first_execution_run_id or ""), created=True)

    async def _find_holder(self, workflow_id: str, run_id: str | None) -> tuple[str, str | None]:
        """Return the id and the workflow of the task that has a workflow id. Raises NotFound."""
        try:
            run = await read_run(self._client, workflow_id, run_id)
        except RPCError as error:
            raise make_not_found(workflow_id, error) from error
        return run.task_id, run.workflow

    async def read_task_id(self, workflow_id: str, run_id: str | None = None) -> str:
        """Return the id of the task that has a workflow, or one of its runs. Raises NotFound."""
        if not workflow_id.startswith("k:"):
            return workflow_id
        try:
            return (await read_run(self._client, workflow_id, run_id)).task_id
        except RPCError as error:
            raise make_not_found(workflow_id, error) from error

    async def find_result_type(self, task_id: str) -> Any:
        """Return the type that the workflow of a task is annotated to return; Any where this program has no code of it.

        Raises NotFound.
        """
        if self._app is None:
            return Any
        try:
            run_id = await find_last_run(self._client, task_id)
            run = await read_run(self._client, workflow_id_of_task(task_id), run_id)
        except RPCError as error:
            raise make_not_found(task_id, error) from error
        declared = self._app.workflows.get(run.workflow or "")
        return Any if declared is None else declared.result_type

    def _start_of(self, row: NewTrigger) -> TaskStart:
        app = self._app
        start = start_of(row, self._settings.heartbeat_timeout)
        limits = []
        if app is not None:
            limits = find_limits(
                app,
                start.workflow or app.by_source.get(start.source, ""),
                start.session_id,
                start.payload_json,
                self._task_queue,
            )
        return replace(start, limits=limits, gate_check=self._gate_check, gate_idle=self._gate_idle)

    async def result(self, task_id: str) -> TaskEnd:
        """Wait for the end of a task, and return it, also when it failed. Raises NotFound."""
        try:
            run_id = await find_last_run(self._client, task_id)
            workflow_id = workflow_id_of_task(task_id)
            end: TaskEnd = await self._client.get_workflow_handle(
                workflow_id, run_id=run_id, result_type=TaskEnd
            ).result()
            return end
        except WorkflowFailureError as error:
            if isinstance(error.cause, CancelledError):  # before its workflow ran for the first time
                return make_cancelled_end()
            if not isinstance(error.cause, ApplicationError):
                raise
            return TaskEnd(
                status="FAILED",
                reason=error.cause.message,
                error_code=error.cause.type,
                error_message=error.cause.message,
            )
        except RPCError as error:
            raise make_not_found(task_id, error) from error

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


def make_not_found(task_id: str, error: RPCError) -> Exception:
    return NotFound(f"no live task {task_id}") if is_missing(error) else error
