"""The history of a task on a cluster, over all its runs, as values: what `inspect`, `task events` and `audit` show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from temporalio.api.enums.v1 import EventType as Kind
from temporalio.api.history.v1 import HistoryEvent
from temporalio.client import Client, WorkflowHistory
from temporalio.converter import DataConverter
from temporalio.service import RPCError

from craftcore.temporal.records.history_events import HistoryReader, TaskHistory
from craftcore.temporal.rpc_errors import is_missing

RUNS_MAX = 1_000
"""Runs of one task that are read."""

RETRIED_RUN = "craftcore_retried_run"
"""The memo of a retried task's run: the run that had failed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Runs:
    """The histories of the runs of a task, oldest first."""

    histories: Sequence[WorkflowHistory]

    @property
    def last(self) -> WorkflowHistory:
        return self.histories[-1]


async def read_runs(client: Client, workflow_id: str, run_id: str | None = None) -> Runs:
    """Read the histories of a task up to this run; None: to its last one. Runs that the retention of the namespace took
    are missing at the beginning.

    Raises RPCError: NOT_FOUND when there is no such workflow.
    """
    found: list[WorkflowHistory] = []
    while len(found) < RUNS_MAX:
        try:
            history = await client.get_workflow_handle(workflow_id, run_id=run_id).fetch_history()
        except RPCError as error:
            if found and is_missing(error):
                break
            raise
        found.append(history)
        started = history.events[0].workflow_execution_started_event_attributes
        run_id = started.continued_execution_run_id
        if not run_id and RETRIED_RUN in started.memo.fields:
            [run_id] = await client.data_converter.decode([started.memo.fields[RETRIED_RUN]], [str])
        if not run_id:
            break
    return Runs(histories=found[::-1])


async def read_history(runs: Runs, converter: DataConverter) -> TaskHistory:
    """Return what the runs say, in the order of the events."""
    reader = HistoryReader()
    for history in runs.histories:
        for event in history.events:
            await _read_event(reader, event, converter)
    return reader.history


async def _read_event(reader: HistoryReader, event: HistoryEvent, converter: DataConverter) -> None:
    """Give one event to the reader, its payloads as JSON values."""

    async def decode(payloads: Any) -> list[Any]:
        return list(await converter.decode(list(payloads))) if payloads else []

    at = event.event_time.ToMicroseconds() / 1e6
    match event.event_type:
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_STARTED:
            started = event.workflow_execution_started_event_attributes
            memo = {name: (await decode([payload]))[0] for name, payload in started.memo.fields.items()}
            reader.start(
                at, await decode(started.input.payloads), memo, continued=bool(started.continued_execution_run_id)
            )
        case Kind.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED:
            scheduled = event.activity_task_scheduled_event_attributes
            reader.enter(at, event.event_id, await decode(scheduled.input.payloads))
        case Kind.EVENT_TYPE_ACTIVITY_TASK_STARTED:
            begun = event.activity_task_started_event_attributes
            reader.take(at, begun.scheduled_event_id, begun.identity)
        case Kind.EVENT_TYPE_ACTIVITY_TASK_COMPLETED:
            completed = event.activity_task_completed_event_attributes
            [end] = await decode(completed.result.payloads)
            reader.leave(at, completed.scheduled_event_id, end)
        case Kind.EVENT_TYPE_ACTIVITY_TASK_TIMED_OUT:
            lost = event.activity_task_timed_out_event_attributes
            reader.lose(at, lost.scheduled_event_id, lost.failure.message)
        case Kind.EVENT_TYPE_ACTIVITY_TASK_FAILED:
            failed = event.activity_task_failed_event_attributes
            reader.lose(at, failed.scheduled_event_id, failed.failure.message)
        case Kind.EVENT_TYPE_ACTIVITY_TASK_CANCELED:
            reader.lose(at, event.activity_task_canceled_event_attributes.scheduled_event_id, "cancelled")
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_ACCEPTED:
            request = event.workflow_execution_update_accepted_event_attributes.accepted_request
            reader.ask(at, request.meta.update_id, request.input.name, await decode(request.input.args.payloads))
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_UPDATE_COMPLETED:
            updated = event.workflow_execution_update_completed_event_attributes
            failure = updated.outcome.failure.message if updated.outcome.HasField("failure") else None
            answers = [] if failure is not None else await decode(updated.outcome.success.payloads)
            reader.confirm(at, updated.meta.update_id, answers, failure)
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_SIGNALED:
            signaled = event.workflow_execution_signaled_event_attributes
            reader.take_signal(at, signaled.signal_name, await decode(signaled.input.payloads))
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            reader.add(at, "CANCEL_REQUESTED", {})
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_COMPLETED:
            done = event.workflow_execution_completed_event_attributes
            [end] = await decode(done.result.payloads)
            reader.end(at, end)
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_FAILED:
            reason = event.workflow_execution_failed_event_attributes.failure
            details = await decode(reason.application_failure_info.details.payloads)
            reader.end(at, details[0] if details else {"status": "FAILED", "reason": reason.message})
        case Kind.EVENT_TYPE_WORKFLOW_EXECUTION_TERMINATED:
            why = event.workflow_execution_terminated_event_attributes.reason
            reader.end(at, {"status": "CANCELLED", "reason": f"terminated on the cluster: {why}"})
