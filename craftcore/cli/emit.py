"""`craftcore emit`: accept a trigger, and wait for its end if asked to."""

from __future__ import annotations

import json
import math
import time
from typing import TYPE_CHECKING, Any

import click

from craftcore.cli.moments import parse_duration, parse_moment
from craftcore.cli.output import with_iso
from craftcore.cli.payload import read_payload
from craftcore.cli.root import Command
from craftcore.cli.session import Session
from craftcore.daemon.lock import read_note
from craftcore.errors import InvalidInput, StillWaiting
from craftcore.executions.store import ExecutionStore
from craftcore.producer import Producer
from craftcore.triggers.model import Emitted, Trigger, TriggerSpec, TriggerStatus
from craftcore.triggers.store import TriggerStore

if TYPE_CHECKING:
    from craftcore.core import Core

WORK_FAILED = 4
POLL_FIRST, POLL_LAST = 0.01, 0.25


@click.command(cls=Command)
@click.argument("workflow", required=False)
@click.option("--payload", metavar="JSON|@FILE|-", default="{}", help="The workflow's keyword arguments.")
@click.option("--source", default="IMMEDIATE", help="Where it comes from: decides priority and rules.")
@click.option("--session", "session_id", metavar="ID", help="Triggers of one session run in order.")
@click.option("--dedup-key", metavar="KEY", help="Accept it once, however often it is emitted.")
@click.option(
    "--on-duplicate", default="keep", metavar="keep|replace|error", help="What a second one with the key does."
)
@click.option("--at", metavar="TIME", help="When it is due: ISO 8601 with a zone, or epoch seconds.")
@click.option("--in", "delay", metavar="DURATION", help="When it is due: 10s, 5m, 2h, 1d from now.")
@click.option("--priority", type=int, metavar="0-99", help="Lower is sooner.")
@click.option("--description", metavar="TEXT", help="What a person should read about it.")
@click.option("--supersedes", metavar="session", help="Settle the session's older waiting ones of this source.")
@click.option(
    "--wait", metavar="[SECONDS]", is_flag=False, flag_value="inf", help="Wait for its end; print its result."
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
    **spec: Any,
) -> int:
    """Accept a trigger for WORKFLOW.

    When this returns it is on disk.

    Prints {"id", "created", "status", "due_at"}; with --wait the workflow's result instead (with --json both). A wait
    that is over exits 75, and work that did not succeed 4.
    """
    patience = math.inf if wait is None else parse_duration(wait)
    if not patience >= 0:
        raise InvalidInput(f"wait {wait!r:.80} must be seconds, 0 or more")
    asked = TriggerSpec(
        workflow=workflow,
        payload=read_payload(payload),
        at=None if at is None else parse_moment(at),
        delay=None if delay is None else parse_duration(delay),
        **{**spec, "source": spec["source"].upper()},
    )
    core = session.core()
    core.triggers.accept(asked)  # what is refused must not leave a new database behind
    with Producer(session.path, config=core.config) as producer:
        [emitted] = producer.emit_many([asked])
    told = with_iso(_told(emitted))
    if wait is None:
        if session.json:
            session.out.document(told)
        else:
            click.echo(json.dumps(_told(emitted)))
        return 0
    try:
        return _wait(session, core, told, patience)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"trigger {emitted.id} is accepted; it goes on without this command") from None


def _told(emitted: Emitted) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": emitted.id,
        "created": emitted.created,
        "status": emitted.status.value,
        "due_at": emitted.due_at,
    }
    return {**told, "payload_differs": True} if emitted.payload_differs else told


def _wait(session: Session, core: Core, told: dict[str, Any], patience: float) -> int:
    """Tell how it ended. Raises StillWaiting when it did not in time."""
    if not read_note(session.path)[1]:
        session.out.aside(f"no daemon runs on {session.path}; waiting for one to be started")
    trigger, response = _settled(core, told["id"], time.monotonic() + patience)
    answer = json.loads(response) if response else {}
    succeeded = trigger.status is TriggerStatus.DONE and trigger.reason == "succeeded"
    told |= {"status": trigger.status.value, "reason": trigger.reason}
    if succeeded:
        told["result"] = answer.get("payload")
    else:
        code, message = trigger.error_code, trigger.error_message
        told["error"] = answer.get("error") or {"code": code, "message": message}
    if session.json:
        session.out.document(told)
    elif succeeded:
        click.echo(json.dumps(told["result"]))
    if not succeeded:
        why = told["error"].get("message") or told["error"].get("code") or ""
        session.out.aside(f"trigger {trigger.id} ended {trigger.status} ({trigger.reason}): {why}".rstrip(" :"))
    return 0 if succeeded else WORK_FAILED


def _settled(core: Core, trigger_id: str, deadline: float) -> tuple[Trigger, str | None]:
    """The settled row and its last response, read until it is there. Polled: a reader has no bell of its own."""
    triggers, executions, pause = TriggerStore(), ExecutionStore(), POLL_FIRST
    while True:
        with core.reading() as reader:
            trigger = triggers.get(reader, trigger_id)
            assert trigger is not None, trigger_id
            if trigger.status.is_settled:
                records = executions.of_trigger(reader, trigger_id)
                return trigger, records[-1]["response_json"] if records else None
        if time.monotonic() >= deadline:
            sentence = f"trigger {trigger_id} is accepted and still {trigger.status}; it goes on without this command"
            raise StillWaiting(f"{sentence}. See: craftcore trigger why {trigger_id}", id=trigger_id)
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, POLL_LAST)
