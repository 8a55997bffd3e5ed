"""The calls that start the tasks of an app on a cluster, and wait for their ends."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

from temporalio.client import Client, WorkflowFailureError
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, CancelledError, WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.errors import ConfigInvalid, NotFound
from craftcore.registry.registry import Registry
from craftcore.temporal.emission import find_target, is_kept_forever, make_answer, start_of
from craftcore.temporal.entries.accept import make_accept
from craftcore.temporal.entries.declared_limits import find_limits
from craftcore.temporal.ids import task_id_of, workflow_id_of_task
from craftcore.temporal.records.task_runs import TaskRun, find_last_run, read_run
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.session_gates import SessionGates
from craftcore.temporal.settings import TemporalSettings
from craftcore.temporal.workflow.messages import WORKFLOW, TaskEnd, TaskStart, first_arguments
from craftcore.temporal.workflow.priorities import make_priority
from craftcore.temporal.workflow.search_attributes import make_first_attributes
from craftcore.temporal.workflow.task_moves import make_cancelled_end
from craftcore.triggers.duplicates import find_foreign_holder
from craftcore.triggers.model import Emitted, NewTrigger, TriggerSpec


class TemporalClient:
    """Starts tasks of one app on a cluster. `app` None: a program without its code, which checks no payload."""

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
            run = await self._read_run(workflow_id, error.run_id)
            if refusal := find_foreign_holder(row, run.task_id, run.workflow):
                raise refusal from error
            return make_answer(row, run.task_id, created=False)
        return make_answer(row, task_id_of(workflow_id, handle.first_execution_run_id or ""), created=True)

    async def read_task_id(self, workflow_id: str, run_id: str | None = None) -> str:
        """Return the id of the task that has a workflow, or one of its runs. Raises NotFound."""
        has_key = workflow_id.startswith("k:")
        return (await self._read_run(workflow_id, run_id)).task_id if has_key else workflow_id

    async def _read_run(self, workflow_id: str, run_id: str | None) -> TaskRun:
        try:
            return await read_run(self._client, workflow_id, run_id)
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


def make_not_found(task_id: str, error: RPCError) -> Exception:
    return NotFound(f"no live task {task_id}") if is_missing(error) else error
