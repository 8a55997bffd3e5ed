"""The limits that an app declares for a task, and what an entry checks of them before it runs user code."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import timedelta

from temporalio.client import Client
from temporalio.service import RPCError

from craftcore.registry.registry import Registry
from craftcore.temporal.ids import make_limit_gate_id
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow.gate_messages import GateLimit
from craftcore.temporal.workflow.messages import LIMITED, EntryEnd, EntryStart
from craftcore.triggers.limit_keys import key_text

RETRY_SECONDS = 0.5
"""Seconds between two reports of a start to a cluster that cannot be reached."""

ANSWER_SECONDS = 5.0
"""How long an answer of the cluster is waited for."""


def find_limits(
    app: Registry, workflow_name: str, session_id: str | None, payload_json: str, task_queue: str
) -> list[GateLimit]:
    """Return the limits of a task: none, or that of its workflow, as a whole or by key."""
    workflow = app.workflows.get(workflow_name)
    if workflow is None or not workflow.is_limited:
        return []
    key = None
    if workflow.limit_by is not None:
        key = key_text(workflow.limit_by, session_id, payload_json)
        if key is None:
            return []
    return [
        GateLimit(
            id=make_limit_gate_id(task_queue, workflow_name, key),
            places=workflow.concurrency,
            rate_count=workflow.rate.count if workflow.rate else None,
            rate_seconds=workflow.rate.seconds if workflow.rate else 0.0,
        )
    ]


def refuse_entry(app: Registry, given: EntryStart, task_queue: str, now: float) -> EntryEnd | None:
    """Return the end of an entry that is not to begin: its trigger is stale, or it has not passed what the app
    declares."""
    start = given.start
    if start.expires_at is not None and given.starts == 1 and start.expires_at <= now:
        return EntryEnd(status="DONE", reason="stale", move=None)
    return refuse_other_limits(app, given, given.task.workflow or app.by_source.get(start.source, ""), task_queue)


def refuse_other_limits(app: Registry, given: EntryStart, workflow: str, task_queue: str) -> EntryEnd | None:
    """Return the end of an entry that has passed other limits than the app declares for this workflow. None: it has
    passed these, or the app has no such workflow."""
    if workflow not in app.workflows:
        return None
    limits = find_limits(app, workflow, given.start.session_id, given.start.payload_json, task_queue)
    if limits != given.limits:
        return EntryEnd(status="PENDING", reason=LIMITED, move=LIMITED, limits=limits)
    return None


async def report_start(
    client: Client,
    workflow_id: str,
    limits: list[GateLimit],
    entries: Mapping[str, int],
    is_stopped: Callable[[], bool],
) -> None:
    """Signal to the gates that limit a rate that the entry starts now: their window begins then, not with the pass.

    `entries` has the number of the entry at each gate. The signal is sent until the cluster
    has accepted it, the gate is gone, or the entry is stopped.
    """
    for limit in limits:
        if limit.rate_count is None:
            continue
        gate = client.get_workflow_handle(limit.id)
        while not is_stopped():
            try:
                args = [workflow_id, entries[limit.id]]
                await gate.signal("started", args=args, rpc_timeout=timedelta(seconds=ANSWER_SECONDS))
                break
            except RPCError as error:
                if is_missing(error):
                    break
            await asyncio.sleep(RETRY_SECONDS)
