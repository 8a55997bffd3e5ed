"""The only SQL of emitted work as a whole: to find it, and how it ended, whichever of its rows is still kept.

The work is the task that has the id of the trigger, over all its turns and waits, or up to its reply to that trigger.
For a message to a live task it is the turn that receives it. Else it is the trigger.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from craftcore.errors import CraftcoreError, DatabaseInvalid, ErrorCode, NotFound
from craftcore.executions.store import ExecutionStore
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader, Row
from craftcore.tasks.message_store import MessageStore
from craftcore.tasks.model import Task, TaskStatus
from craftcore.tasks.store import TaskStore
from craftcore.triggers.model import Trigger, TriggerStatus
from craftcore.triggers.settlement import has_next_turn
from craftcore.triggers.store import TriggerStore

FIND_MAX = 10_000
"""How much work one search may return."""

ENDED = """
WITH RECURSIVE copies (asked, id) AS (
    SELECT value, value
      FROM json_each(:ids)
     UNION
    SELECT copies.asked, mailbox.emitted_as
      FROM copies
      JOIN mailbox ON mailbox.trigger_id = copies.id
     WHERE mailbox.emitted_as IS NOT NULL
)
SELECT copies.asked, copies.id
  FROM copies
  LEFT JOIN mailbox ON mailbox.seq = (SELECT max(seq) FROM mailbox WHERE trigger_id = copies.id)
  LEFT JOIN waits ON waits.seq = mailbox.wait_seq
  LEFT JOIN tasks AS reader ON reader.seq = mailbox.task_seq
  LEFT JOIN tasks ON tasks.id = copies.id
  LEFT JOIN triggers ON triggers.id = copies.id
 WHERE mailbox.emitted_as IS NULL
   AND CASE
       WHEN tasks.id IS NOT NULL
       THEN tasks.status NOT IN ('RUNNING', 'WAITING') OR tasks.reply_json IS NOT NULL
       WHEN mailbox.status = 'UNREAD'
       THEN FALSE
       WHEN mailbox.status = 'READ'
       THEN mailbox.reply_json IS NOT NULL OR reader.turn > waits.turn OR reader.status NOT IN ('RUNNING', 'WAITING')
       ELSE coalesce(triggers.status NOT IN ('PENDING', 'CLAIMED'), TRUE)
       END
"""
"""With the id by which each goes on: a message that its task did not read is emitted again."""


FIND = """
SELECT triggers.id
  FROM triggers
  LEFT JOIN tasks ON tasks.id = triggers.id
 WHERE (triggers.task_id IS NULL OR triggers.task_id = triggers.id)
   AND (:workflow IS NULL OR coalesce(tasks.workflow, triggers.workflow) = :workflow)
   AND (:session_id IS NULL OR triggers.session_id = :session_id)
   AND (:dedup_key IS NULL OR triggers.dedup_key = :dedup_key)
   AND (:status IS NULL OR coalesce(tasks.status, triggers.status) = :status)
 ORDER BY triggers.seq DESC
 LIMIT :limit
"""


UPDATE_OF = """
SELECT coalesce(tasks.status, triggers.status) AS status,
       coalesce(tasks.reason, triggers.reason) AS reason,
       coalesce(tasks.turn, 0)                 AS turn,
       tasks.progress_json,
       coalesce(tasks.progress_count, 0)       AS progress_count
  FROM (SELECT :id AS id) AS asked
  LEFT JOIN tasks ON tasks.id = coalesce(:reader, asked.id)
  LEFT JOIN triggers ON triggers.id = asked.id
 WHERE coalesce(tasks.id, triggers.id) IS NOT NULL
"""
"""`reader`: the id of the task whose turn has received the message."""


class WorkUpdate(NamedTuple):
    """Emitted work at one moment.

    status          of its task, or of the trigger while it has created none; of a message, of the task that received it
                    as long as that turn lasts
    turn            of its task, from 1; 0 without a task
    progress        the newest value that its code gave to ctx.progress; None: none
    progress_count  how many values its code gave
    is_over         it has ended, or has its reply
    """

    status: str
    reason: str | None
    turn: int
    progress: Any
    progress_count: int
    is_over: bool


class WorkFilter(NamedTuple):
    """The work to find; None matches all. `status`: that of the task, or of a trigger without one."""

    workflow: str | None = None
    session_id: str | None = None
    dedup_key: str | None = None
    status: str | None = None


class Failure(NamedTuple):
    """The error of work that has ended without a result. `code` and `message` None: none is on record."""

    code: str | None
    message: str | None


class WorkResult(NamedTuple):
    """The end of emitted work.

    workflow      the workflow that ran; None: none did, or its rows are gone
    result_json   the result, or the reply; None: it failed, or its result is not kept any more
    failure       None: it succeeded, or has its reply
    delivered_to  the task that received it as a message; None: it was not delivered
    """

    id: str
    workflow: str | None
    status: str
    reason: str | None
    result_json: str | None = None
    failure: Failure | None = None
    delivered_to: str | None = None


class WorkStore:
    """Emitted work. Holds nothing; every method runs on the reader it is given."""

    def list_ended(self, tx: Reader, ids: Sequence[str]) -> dict[str, str]:
        """Return those of these ids that have ended, or of which no row is left, each with the id by which it went
        on."""
        return {row["asked"]: row["id"] for row in tx.fetch_all(ENDED, ids=canonicalize(list(ids)))}

    def update_of(self, tx: Reader, id: str) -> WorkUpdate:
        """Return work as it is now. Raises NotFound when no row of it is left."""
        goes_on = MessageStore().newest_id(tx, id)
        row = tx.fetch_one(UPDATE_OF, id=goes_on, reader=_reader_of(tx, goes_on))
        if row is None:
            raise NotFound(f"no trigger or task {id}", id=id)
        progress = row.pop("progress_json")
        is_over = bool(self.list_ended(tx, [id]))
        return WorkUpdate(**row, progress=None if progress is None else json.loads(progress), is_over=is_over)

    def find_writer(self, tx: Reader, id: str) -> tuple[str, int | None]:
        """Return the task that writes the streams of work, and the turn in which it does. None: all of its turns; 0:
        none has received the message."""
        goes_on = MessageStore().newest_id(tx, id)
        if (task := TaskStore().get(tx, goes_on)) is not None:
            return goes_on, None if task.reply_json is None else 1
        if (message := MessageStore().find(tx, goes_on)) is not None:
            return TaskStore().get_by_seq(tx, message.task_seq).id, message.turn or 0
        return goes_on, None

    def find(self, tx: Reader, those: WorkFilter, limit: int) -> list[str]:
        """Return the ids of the newest work that matches, newest first, as long as its trigger is kept."""
        return [row["id"] for row in tx.fetch_all(FIND, **those._asdict(), limit=limit)]

    def find_ends(self, tx: Reader, ids: Sequence[str]) -> dict[str, WorkResult | CraftcoreError]:
        """Return the ends of those of these ids that have ended, or the error for which one cannot be read."""
        ends: dict[str, WorkResult | CraftcoreError] = {}
        for asked, trigger_id in self.list_ended(tx, ids).items():
            try:
                ends[asked] = self.get(tx, trigger_id)._replace(id=asked)
            except CraftcoreError as error:
                ends[asked] = error
        return ends

    def get(self, tx: Reader, trigger_id: str) -> WorkResult:
        """Return the end of work that has ended. Raises NotFound when no row of it is left, DatabaseInvalid when what
        is left cannot be read."""
        task = TaskStore().get(tx, trigger_id)
        if task is not None and task.reply_json is not None:
            return WorkResult(task.id, None, task.status.value, task.reason, task.reply_json)
        if task is not None:
            return _end_of_task(task)
        trigger = TriggerStore().get(tx, trigger_id)
        if trigger is None or has_next_turn(trigger.status, trigger.reason):  # the task was removed
            return _end_of_records(tx, trigger_id)
        if trigger.reason == "delivered":
            return _end_of_message(tx, trigger)
        return _end_of_trigger(tx, trigger)


def _reader_of(tx: Reader, trigger_id: str) -> str | None:
    """Return the id of the live task whose turn has received this message. None: none has, or its turn is over."""
    message = MessageStore().find(tx, trigger_id)
    if message is None or message.turn is None:
        return None
    task = TaskStore().get_by_seq(tx, message.task_seq)
    return task.id if task.status.is_live and task.turn == message.turn else None


def _end_of_message(tx: Reader, trigger: Trigger) -> WorkResult:
    """Return the reply to a message, or the end of the turn that received it."""
    message = MessageStore().find(tx, trigger.id)
    if message is None:
        raise NotFound(f"the reply to message {trigger.id} is not kept any more", id=trigger.id)
    task = TaskStore().get_by_seq(tx, message.task_seq)
    end = WorkResult(trigger.id, None, trigger.status.value, trigger.reason, delivered_to=task.id)
    if message.reply_json is not None:
        return end._replace(result_json=message.reply_json)
    if message.turn is None or message.unanswered is not None:
        why = message.unanswered or "no task has read it"
        failure = Failure(ErrorCode.WORKFLOW_ABORTED, why)
        return end._replace(status=TaskStatus.CANCELLED.value, reason=why, failure=failure)
    if task.status in (TaskStatus.FAILED, TaskStatus.CANCELLED) and task.turn == message.turn:
        return _end_of_task(task)._replace(id=trigger.id, delivered_to=task.id)
    return end._replace(result_json="null")


def _end_of_task(task: Task) -> WorkResult:
    if task.status is TaskStatus.DONE:
        return WorkResult(task.id, task.workflow, task.status.value, task.reason, task.result_json)
    failure = Failure(task.error_code, task.error_message)
    return WorkResult(task.id, task.workflow, task.status.value, task.reason, failure=failure)


def _end_of_trigger(tx: Reader, trigger: Trigger) -> WorkResult:
    record = _newest_record(tx, trigger.id)
    workflow = trigger.workflow if record is None else record["workflow"]
    end = WorkResult(trigger.id, workflow, trigger.status.value, trigger.reason)
    response = {} if record is None else _response_of(record)
    if trigger.status is TriggerStatus.DONE and trigger.reason == "succeeded":
        return end._replace(result_json=_payload_text(response))
    error = response.get("error") or {}
    return end._replace(
        failure=Failure(error.get("code") or trigger.error_code, error.get("message") or trigger.error_message)
    )


def _end_of_records(tx: Reader, trigger_id: str) -> WorkResult:
    """Return the end that the newest record has: retention keeps records longer than triggers and tasks."""
    record = _newest_record(tx, trigger_id)
    if record is not None and record["task_id"] == trigger_id:
        newest = ExecutionStore().list_of_task(tx, trigger_id, 1)[0]
        record = _newest_record(tx, newest["trigger_id"])  # of its last turn
    if record is None or record["status"] not in ("success", "error"):
        raise NotFound(
            f"no trigger, task or record {trigger_id}: the end of this work is not kept any more", id=trigger_id
        )
    response = _response_of(record)
    end = WorkResult(trigger_id, record["workflow"], record["status"].upper(), None)
    if record["status"] == "success":
        return end._replace(result_json=_payload_text(response))
    error = response.get("error") or {}
    return end._replace(failure=Failure(error.get("code") or record["error_code"], error.get("message")))


def _newest_record(tx: Reader, trigger_id: str) -> Row | None:
    records = ExecutionStore().list_of_trigger(tx, trigger_id)
    return records[-1] if records else None


def _response_of(record: Row) -> dict[str, Any]:
    try:
        response = json.loads(record["response_json"] or "{}")
    except ValueError:
        response = None
    if not isinstance(response, dict):
        raise DatabaseInvalid(f"the response of record {record['id']} is damaged: craftcore verify says what else is")
    return response


def _payload_text(response: dict[str, object]) -> str | None:
    return json.dumps(response["payload"]) if "payload" in response else None
