"""Waiting for the end of what was emitted: of the task, over all its turns and waits, or up to its reply; else of the
trigger. The wait for a message ends with its reply, or with the turn that receives it.

Polled: a reader has no bell of its own.
"""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import click

from craftcore.cli.session import Session, hint
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.text.command_text import paste
from craftcore.diagnostics.text.question_text import answer_commands, answer_text, question_text
from craftcore.errors import CraftcoreError, StillWaiting
from craftcore.executions.store import ExecutionStore
from craftcore.serialization.display import json_or_text
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Reader
from craftcore.tasks.lineage_store import task_of
from craftcore.tasks.model import QuestionStatus, Task, TaskStatus
from craftcore.tasks.question_store import QuestionStore
from craftcore.tasks.work_store import WorkResult, WorkStore
from craftcore.triggers.model import Trigger, TriggerStatus
from craftcore.triggers.store import TriggerStore

if TYPE_CHECKING:
    from craftcore.services import Services

WORK_FAILED = 4
POLL_FIRST, POLL_LAST = 0.01, 0.25


def wait_for_end(session: Session, core: Services, document: dict[str, Any], patience: float) -> int:
    """Wait for the end, and print it. Return the exit code. Raises StillWaiting when it did not end in time.

    `document`: the document of the emitted trigger.
    """
    with core.reading() as reader:
        held = get_fact(reader, "held")
    if not read_note(session.path)[1]:
        session.out.print_note(f"no daemon runs on {session.path}; waiting for one to be started")
    if held is not None:
        session.out.print_note(f"everything is held: {held}; waiting for: craftcore release")
    document |= _wait_for_end(session, core, document["id"], time.monotonic() + patience)
    failed = "error" in document
    if session.json:
        session.out.document(document)
    elif not failed:
        click.echo(json.dumps(document["result"]))
    if failed:
        why = document["error"].get("message") or document["error"].get("code") or ""
        what = "message" if "delivered_to" in document else "task" if "task_id" in document else "trigger"
        session.out.print_note(
            f"{what} {document['id']} ended {document['status']} ({document['reason']}): {why}".rstrip(" :")
        )
    if (task_id := document.get("delivered_to")) is not None:
        session.out.print_note(f"delivered to task {task_id}. See: {hint('task', 'show', task_id)}")
    return WORK_FAILED if failed else 0


def _wait_for_end(session: Session, core: Services, trigger_id: str, deadline: float) -> dict[str, Any]:
    """Wait until it has ended, and return how. Print questions that come meanwhile: it may wait for this user's
    answer."""
    pause = POLL_FIRST
    said_already: set[str] = set()
    while True:
        with core.reading() as reader:
            trigger = TriggerStore().get(reader, trigger_id)
            assert trigger is not None, trigger_id
            task = task_of(reader, trigger)
            if trigger.reason == "delivered" or (task is not None and task.reply_json is not None):
                end = WorkStore().find_ends(reader, [trigger_id]).get(trigger_id)
                if end is not None:
                    return _reply_document(end, task)
            elif task is not None and task.id == trigger_id and not task.status.is_live:
                return _task_ended(task)
            elif task is None and trigger.status.is_settled:
                return _trigger_ended(reader, trigger)
            if task is not None and task.status.is_live:
                for question in QuestionStore().list_of_task(reader, task.seq):
                    if question.status is QuestionStatus.OPEN and question.id not in said_already:
                        said_already.add(question.id)
                        answer = paste(*session.words(*answer_commands(question)[0][1:]))
                        session.out.print_note(f"it asks, {question_text(question)}. {answer_text(question)}: {answer}")
        if time.monotonic() >= deadline:
            raise _wait_error(core, trigger, task)
        time.sleep(min(pause, max(0.0, deadline - time.monotonic())))
        pause = min(pause * 1.5, POLL_LAST)


def _task_ended(task: Task) -> dict[str, Any]:
    document = {"task_id": task.id, "status": task.status.value, "reason": task.reason, "turns": task.turn}
    if task.status is TaskStatus.DONE:
        return {**document, "result": json_or_text(task.result_json)}
    return {**document, "error": {"code": task.error_code, "message": task.error_message}}


def _trigger_ended(reader: Reader, trigger: Trigger) -> dict[str, Any]:
    records = ExecutionStore().list_of_trigger(reader, trigger.id)
    response = records[-1]["response_json"] if records else None
    answer = json.loads(response) if response else {}
    document = {"status": trigger.status.value, "reason": trigger.reason}
    if trigger.status is TriggerStatus.DONE and trigger.reason == "succeeded":
        return {**document, "result": answer.get("payload")}
    error = answer.get("error") or {"code": trigger.error_code, "message": trigger.error_message}
    return {**document, "error": error}


def _reply_document(end: WorkResult | CraftcoreError, task: Task | None) -> dict[str, Any]:
    """Return the document of a message, or of a task that has replied to what created it. Raises NotFound."""
    if isinstance(end, CraftcoreError):
        raise end
    document = {"status": end.status, "reason": end.reason}
    if end.delivered_to is not None:
        document["delivered_to"] = end.delivered_to
    elif task is not None:
        document["task_id"] = task.id
    if end.failure is not None:
        return {**document, "error": end.failure._asdict()}
    return {**document, "result": json_or_text(end.result_json)}


def _wait_error(core: Services, trigger: Trigger, task: Task | None) -> StillWaiting:
    if task is not None and task.id == trigger.id:
        state = f"task {task.id} is {task.status}" + (f" ({task.reason})" if task.reason else "")
        see = hint("task", "show", task.id)
    elif task is not None and trigger.reason == "delivered":
        state = f"message {trigger.id} has no reply yet; task {task.id} is {task.status}"
        see = hint("task", "show", task.id)
    else:
        state = f"trigger {trigger.id} is accepted and still {trigger.status}"
        see = hint("trigger", "why", trigger.id)
    then = "it goes on without this command"
    if not read_note(core.database.path)[1]:
        then = "no daemon runs, so it goes on with the next one"
    return StillWaiting(f"{state}; {then}. See: {see}", id=trigger.id)
