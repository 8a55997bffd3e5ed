"""`craftcore emit`: accept a trigger, and wait for its end if asked to."""

from __future__ import annotations

import json
import math
import os
from dataclasses import asdict
from typing import Any, Protocol

import click

from craftcore.cli.base import OnCluster, WriteCommand
from craftcore.cli.exit_codes import CANNOT_CREATE, NO_SUCH, TRY_LATER, WORK_FAILED
from craftcore.cli.payload import read_payload, require_argument_list
from craftcore.cli.session import Session
from craftcore.cli.trigger.due_time import due_text, local_due, read_due
from craftcore.cli.trigger.wait import wait_for_end
from craftcore.clock import Clock
from craftcore.errors import InvalidInput
from craftcore.producer import Producer
from craftcore.serialization.time_text import add_iso_times, parse_duration
from craftcore.triggers.model import DedupScope, Emitted, TriggerSpec


class EmissionCalls(Protocol):
    """The calls of `emit`. `wait` prints the end of what was emitted, and returns the exit code."""

    clock: Clock

    def emit(self, spec: TriggerSpec) -> Emitted: ...

    def wait(self, document: dict[str, Any], patience: float) -> int: ...


def open_emission(session: Session) -> EmissionCalls:
    """Return the calls to the place that the options name."""
    if session.cluster is None:
        return FileEmission(session)
    from craftcore.cli.temporal.cluster_emission import ClusterEmission

    return ClusterEmission(session)


class FileEmission:
    """The calls to a database file."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session.core()
        self.clock = self._core.clock

    def emit(self, spec: TriggerSpec) -> Emitted:
        core = self._core
        core.triggers.accept(spec)  # what is refused must not leave a new database behind
        is_new = not os.path.exists(core.database.path)  # also where one may not look: refused below
        with Producer(self._session.path, config=core.config) as producer:
            [emitted] = producer.emit_many([spec])
        if is_new:  # in a wrong folder, say: no daemon of theirs will ever look there
            self._session.out.print_note(
                f"made a new database: {core.database.path}. Another one is named by --db or CRAFTCORE_DB"
            )
        return emitted

    def wait(self, document: dict[str, Any], patience: float) -> int:
        return wait_for_end(self._session, self._core, document, patience)


@click.command(
    cls=WriteCommand,
    touches="Writes in one commit, beside a daemon or without one; makes the database where it is missing.",
    exits={
        WORK_FAILED: "with --wait: it was accepted, and did not succeed",
        CANNOT_CREATE: "the database cannot be made",
        TRY_LATER: "with --wait: it has not ended in time; it goes on",
    },
    examples=(
        """craftcore emit greet --payload '{"name": "Ada"}' --wait 1m""",
        "craftcore emit brief.daily --in 2h --dedup-key brief:monday --dedup-scope ever",
        "craftcore emit --source message --session ada --payload @message.json",
    ),
    see=("craftcore trigger why", "craftcore schedule add", "docs/explanation/lifecycle.md#triggers"),
    on_cluster=OnCluster(
        help="""Start a task of WORKFLOW on a cluster.

        When this returns, it is on record, with or without a worker. Prints {"id", "created", "status", "due_at"}; with
        --wait the result of the task instead. --task-queue, or temporal.task_queue, is the name of the app.

        Without WORKFLOW it goes to the live task of --session, or else to the workflow that takes its source. With
        WORKFLOW it starts a task, also beside a live one of the session.
        """,
        exits={NO_SUCH: None},
        examples=(
            """craftcore emit order --task-queue shop --payload '{"what": "lamp"}'""",
            "craftcore emit brief --task-queue shop --in 2h --dedup-key monday",
        ),
        see=("craftcore worker", "docs/explanation/lifecycle.md#triggers"),
    ),
)
@click.argument("workflow", required=False)
@click.option(
    "--payload", metavar="JSON|@FILE|-", default="{}", help="A JSON object: the workflow's keyword arguments."
)
@click.option(
    "--source",
    metavar="SOURCE",
    default="IMMEDIATE",
    show_default=True,
    help="Where it comes from, like MESSAGE: decides priority and rules.",
)
@click.option("--session", "session_id", metavar="SESSION", help="Triggers of one session run one at a time, in order.")
@click.option(
    "--dedup-key",
    metavar="KEY",
    help="Accept it once, as long as the key (ship:order-1) is held.",
)
@click.option(
    "--dedup-scope",
    metavar="ever|active",
    help="How long the key is held: ever (retention.keys after the end, by default 90 days), or active (until the work "
    "has ended); else as its source says.",
)
@click.option(
    "--on-duplicate",
    default="keep",
    show_default=True,
    metavar="keep|replace|error",
    help="A second one with the key: the first stays, takes what is new if it has not started, or exit 64.",
)
@click.option("--at", metavar="TIME", help="When it is due, e.g. 'tomorrow 9am'; else now.")
@click.option("--timezone", metavar="ZONE", help="The zone of --at; by default the machine's.")
@click.option("--in", "delay", metavar="DURATION", help="How long from now it is due.")
@click.option("--priority", type=int, metavar="0-99", help="Lower is sooner; else that of its source.")
@click.option("--description", metavar="TEXT", help="A description for people.")
@click.option("--supersedes", metavar="session", help="Settle the session's older waiting ones of this source.")
@click.option(
    "--wait", metavar="[DURATION]", is_flag=False, flag_value="inf", help="Wait for its end, and print its result."
)
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
    """Accept a trigger for WORKFLOW.

    When this returns, it is on disk. Prints {"id", "created", "status", "due_at"}; with --wait the workflow's result
    instead (with --json both): that of a task when the task has ended, over all its turns and waits. The result of a
    message to a live task is the reply of the turn that receives it (ctx.reply), else null when that turn is over; with
    --json also "delivered_to", the task's id.

    --at adds the moment in local time, "due_at_local", and its "timezone".

    When another trigger holds the dedup key, nothing is written: "created" is false, "id" is that trigger, "held" is
    "dedup_key" and "dedup_scope" says for how long. A sentence on standard error says the same.

    WORKFLOW may be left out: the trigger goes to the live task of --session, or else to the workflow that takes its
    source. With WORKFLOW it starts a task, also beside a live one of the session. Only a message (--source message) to
    a live chat of that workflow, which goes on by messages, is delivered to the chat.
    """
    patience = math.inf if wait is None else parse_duration(wait)
    if not patience >= 0:
        raise InvalidInput(f"wait {wait!r:.80} must be seconds, 0 or more")
    calls = open_emission(session)
    asked = TriggerSpec(
        workflow=workflow,
        payload=read_payload(payload),
        **read_due(at, delay, timezone, calls.clock),
        **{**spec, "source": spec["source"].upper()},
    )
    require_argument_list(workflow, asked.payload)
    emitted = calls.emit(asked)
    if emitted.held is not None and asked.on_duplicate == "keep":
        session.out.print_note(_duplicate_text(emitted, asked.dedup_key))
    document = _emitted_document(emitted)
    if at is not None:
        document |= local_due(emitted.due_at, timezone, calls.clock)
        session.out.print_note(due_text(emitted.due_at, timezone, calls.clock))
    with_times = add_iso_times(document)
    if wait is None:
        if session.json:
            session.out.document(with_times)
        else:
            click.echo(json.dumps(document))
        return 0
    try:
        return calls.wait(with_times, patience)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"trigger {emitted.id} is accepted; it goes on without this command") from None


def _duplicate_text(emitted: Emitted, dedup_key: str | None) -> str:
    """Return which trigger exists instead of a new one, and when the same work can be emitted again."""
    stands = f"trigger {emitted.id} ({emitted.status}) holds the"
    if emitted.held == "id":
        return f"no new trigger: {stands} id"
    if emitted.dedup_scope is DedupScope.EVER:
        until = "after it is settled, too (scope ever). To run it again, give another key"
    else:
        until = "until its work has ended (scope active). Emit it again then, or give another key"
    return f"no new trigger: {stands} dedup key {dedup_key} {until}"


def _emitted_document(emitted: Emitted) -> dict[str, Any]:
    document = {name: value for name, value in asdict(emitted).items() if value is not None}
    if not emitted.payload_differs:
        del document["payload_differs"]
    return document
