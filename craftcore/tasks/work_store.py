"""The only SQL of emitted work as a whole: to find it, and how it ended, whichever of its rows is still kept.

The work is the task that has the id of the trigger, over all its turns and waits. Without such a task it is the
trigger.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from craftcore.errors import NotFound
from craftcore.executions.store import ExecutionStore
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader
from craftcore.tasks.lineage_store import task_id_of
from craftcore.tasks.model import Task, TaskStatus
from craftcore.tasks.store import TaskStore
from craftcore.triggers.model import Trigger, TriggerStatus
from craftcore.triggers.store import TriggerStore

ENDED = """
SELECT asked.value AS id
  FROM json_each(:ids) AS asked
  LEFT JOIN tasks ON tasks.id = asked.value
  LEFT JOIN triggers ON triggers.id = asked.value
 WHERE CASE
       WHEN tasks.id IS NOT NULL THEN tasks.status NOT IN ('RUNNING', 'WAITING')
       ELSE coalesce(triggers.status NOT IN ('PENDING', 'CLAIMED'), TRUE)
       END
"""


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
    result_json   the result; None: it failed, was delivered to a task, or its result is not kept any more
    failure       None: it succeeded, or was delivered
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

    def list_ended(self, tx: Reader, ids: Sequence[str]) -> list[str]:
        """Return those of these ids that have ended, or of which no row is left."""
        return [row["id"] for row in tx.fetch_all(ENDED, ids=canonicalize(list(ids)))]

    def find(self, tx: Reader, those: WorkFilter, limit: int) -> list[str]:
        """Return the ids of the newest work that matches, newest first, as long as its trigger is kept."""
        return [row["id"] for row in tx.fetch_all(FIND, **those._asdict(), limit=limit)]

    def find_ends(self, tx: Reader, ids: Sequence[str]) -> dict[str, WorkResult | NotFound]:
        """Return the ends of those of these ids that have ended."""
        ends: dict[str, WorkResult | NotFound] = {}
        for trigger_id in self.list_ended(tx, ids):
            try:
                ends[trigger_id] = self.get(tx, trigger_id)
            except NotFound as error:
                ends[trigger_id] = error
        return ends

    def get(self, tx: Reader, trigger_id: str) -> WorkResult:
        """Return the end of work that has ended. Raises NotFound when no row of it is left."""
        task = TaskStore().get(tx, trigger_id)
        if task is not None:
            return _end_of_task(task)
        trigger = TriggerStore().get(tx, trigger_id)
        if trigger is None:
            return self._end_of_record(tx, trigger_id)
        if trigger.reason == "delivered":
            return WorkResult(
                trigger_id, None, trigger.status.value, trigger.reason, delivered_to=task_id_of(tx, trigger)
            )
        return _end_of_trigger(tx, trigger)

    def _end_of_record(self, tx: Reader, trigger_id: str) -> WorkResult:
        """Return the end that the newest record has: retention keeps records longer than triggers."""
        records = ExecutionStore().list_of_trigger(tx, trigger_id)
        if not records or records[-1]["ended_at"] is None:
            raise NotFound(f"no trigger, task or record {trigger_id}", id=trigger_id)
        record = records[-1]
        response = json.loads(record["response_json"] or "{}")
        status = record["status"].upper()
        if status == "SUCCESS":
            return WorkResult(trigger_id, record["workflow"], status, None, _payload_text(response))
        error = response.get("error") or {}
        failure = Failure(error.get("code") or record["error_code"], error.get("message"))
        return WorkResult(trigger_id, record["workflow"], status, None, failure=failure)


def _end_of_task(task: Task) -> WorkResult:
    if task.status is TaskStatus.DONE:
        return WorkResult(task.id, task.workflow, task.status.value, task.reason, task.result_json)
    failure = Failure(task.error_code, task.error_message)
    return WorkResult(task.id, task.workflow, task.status.value, task.reason, failure=failure)


def _end_of_trigger(tx: Reader, trigger: Trigger) -> WorkResult:
    records = ExecutionStore().list_of_trigger(tx, trigger.id)
    record = records[-1] if records else None
    response = json.loads((record and record["response_json"]) or "{}")
    workflow = trigger.workflow if record is None else record["workflow"]
    if trigger.status is TriggerStatus.DONE and trigger.reason == "succeeded":
        return WorkResult(trigger.id, workflow, trigger.status.value, trigger.reason, _payload_text(response))
    error = response.get("error") or {}
    failure = Failure(error.get("code") or trigger.error_code, error.get("message") or trigger.error_message)
    return WorkResult(trigger.id, workflow, trigger.status.value, trigger.reason, failure=failure)


def _payload_text(response: dict[str, object]) -> str | None:
    return json.dumps(response["payload"]) if "payload" in response else None
