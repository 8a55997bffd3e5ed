"""`craftcore temporal emit`: start a task on a cluster, and wait for its end if asked to."""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from craftcore.cli.exit_codes import NO_SUCH, TRY_LATER, WORK_FAILED
from craftcore.cli.payload import read_payload, require_argument_list
from craftcore.cli.session import Session
from craftcore.cli.temporal.cluster_calls import call_cluster
from craftcore.cli.temporal.cluster_options import ClusterWriteCommand, read_cluster_settings
from craftcore.cli.trigger.due_time import due_text, local_due, read_due
from craftcore.cli.trigger.emit import emit as local_emit
from craftcore.clock import SystemClock
from craftcore.errors import InvalidInput
from craftcore.serialization.time_text import add_iso_times, parse_duration
from craftcore.triggers.model import Emitted, TriggerSpec

if TYPE_CHECKING:
    from craftcore.temporal.temporal_client import TemporalClient
    from craftcore.temporal.workflow.messages import TaskEnd


@click.command(
    cls=ClusterWriteCommand,
    exits={
        WORK_FAILED: "with --wait: it was accepted, and did not succeed",
        TRY_LATER: "with --wait: it has not ended in time; or the cluster does not answer",
        NO_SUCH: "no such namespace",
    },
    examples=(
        """craftcore temporal emit order --task-queue shop --payload '{"what": "lamp"}'""",
        "craftcore temporal emit brief --task-queue shop --in 2h --dedup-key monday",
    ),
    see=("craftcore temporal worker", "craftcore emit", "docs/how-to/run-on-temporal.md"),
)
@click.argument("workflow", required=False)
@click.pass_obj
def emit(
    session: Session,
    /,
    workflow: str | None,
    payload: str,
    delay: str | None,
    at: str | None,
    wait: str | None,
    timezone: str | None,
    **spec: Any,
) -> int:
    """Start a task of WORKFLOW on a cluster.

    When this returns, it is on record, with or without a worker. Prints {"id", "created", "status", "due_at"}; with
    --wait the result of the task instead. --task-queue, or temporal.task_queue, is the name of the app.

    Without WORKFLOW it goes to the live task of --session, or else to the workflow that takes its source. With WORKFLOW
    it starts a task, also beside a live one of the session.
    """
    patience = math.inf if wait is None else parse_duration(wait)
    if not patience >= 0:
        raise InvalidInput(f"wait {wait!r:.80} must be seconds, 0 or more")
    if not read_cluster_settings(session).task_queue:
        raise InvalidInput("nothing says which app the task is for: give --task-queue, the name of the app")
    clock = SystemClock()
    asked = TriggerSpec(
        workflow=workflow,
        payload=read_payload(payload),
        **read_due(at, delay, timezone, clock),
        **{**spec, "source": spec["source"].upper()},
    )
    require_argument_list(workflow, asked.payload)

    async def start(client: TemporalClient) -> tuple[Emitted, TaskEnd | None]:
        emitted = await client.emit_spec(asked)
        if wait is None:
            return emitted, None
        try:
            return emitted, await asyncio.wait_for(
                client.result(emitted.id), None if patience == math.inf else patience
            )
        except TimeoutError:
            return emitted, None

    emitted, end = call_cluster(session, start)
    document = {
        name: value for name, value in asdict(emitted).items() if value is not None and name != "payload_differs"
    }
    if at is not None:
        document |= local_due(emitted.due_at, timezone, clock)
        session.out.print_note(due_text(emitted.due_at, timezone, clock))
    if end is not None:
        document |= {"status": end.status, "result": json.loads(end.result_json or "null"), "reason": end.reason}
    if session.json:
        session.out.document(add_iso_times(document))
    elif wait is None:
        click.echo(json.dumps(document))
    elif end is not None and end.status == "DONE":
        click.echo(end.result_json or "null")
    if end is not None and end.status != "DONE":
        session.out.print_problem(f"task {emitted.id} is {end.status}: {end.error_message or end.reason}")
        return WORK_FAILED
    if wait is not None and end is None:
        session.out.print_problem(f"task {emitted.id} has not ended in time; it goes on")
        return TRY_LATER
    return 0


emit.params[1:1] = [
    param for param in local_emit.params if isinstance(param, click.Option) and param.expose_value and param.name
]
