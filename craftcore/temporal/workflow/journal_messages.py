"""The calls of a journal, which an entry sends to the workflow of its task, and the answers.

Both are sent as JSON objects that leave out what has its default. The converter of the library would need 2 ms for each
batch, twice, where a whole update takes 10.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import msgspec

from craftcore.activities.model import Activity
from craftcore.serialization.type_descriptions import describe_type
from craftcore.temporal.workflow.messages import TaskStart

LEASE_LOST, NOT_FOUND, STATE_REFUSED = "LEASE_LOST", "NOT_FOUND", "STATE_REFUSED"
"""The names of errors that a workflow answers with."""


@dataclass(frozen=True, kw_only=True)
class Intent:
    """An intent, as `NewIntent`. `again_calls`: the calls of what is in doubt, when its policy has it called again."""

    key: str
    action: str
    policy: str
    args_hash: str
    request_json: str | None
    ends_at: float
    again_calls: int | None = None
    result_shape: str | None = None


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The outcome of a call, as `CallOutcome`."""

    status: str
    reason: str
    result_json: str | None = None
    result_unstored: str | None = None
    provider_ref: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    may_retry: bool = False


@dataclass(frozen=True, kw_only=True)
class JournalCall:
    """One call of a journal. `kind` is its name; which fields it has, depends on that."""

    kind: str
    event_type: str = ""
    text: str = ""
    memo: str | None = None
    key: str = ""
    calls: int = 0
    intent: Intent | None = None
    outcome: Outcome | None = None
    decision: str = ""
    by: str = ""
    reference: str | None = None
    workflow_id: str = ""
    run_id: str = ""
    """The run that is signalled. Empty: the last one."""
    is_keyed_forever: bool = False
    refuses_duplicate: bool = False
    """An id or a key that is held is an error: nothing is recorded."""
    held_text: str = ""
    """Recorded instead of `text` when the id or the key is held."""
    start: TaskStart | None = None
    event: str = ""
    payload_json: str = ""
    agents: list[str] | None = None


@dataclass(frozen=True, kw_only=True)
class JournalAnswer:
    """The answer to a call. `error`: the code of what is raised. `is_begun`: the activity is to be called now.

    `activity` None: the entry asks for it by a query, when it needs it.
    """

    error: str | None = None
    message: str = ""
    activity: Activity | None = None
    is_begun: bool = False
    task_id: str = ""
    created: bool = False
    is_late: bool = False
    """The call was done, and that was decided otherwise meanwhile, or it was called again."""
    rolls_over: bool = False
    """The run is at its limit: the turn is to be suspended, and is entered again in the next run."""


@dataclass(frozen=True, kw_only=True)
class JournalBatch:
    """The calls of one entry that are recorded at once. `task`: whose entry it is; empty: an earlier version did not
    say."""

    token: int
    calls: list[JournalCall]
    task: str = ""


for _message in (JournalBatch, list[JournalAnswer]):
    describe_type(_message)  # the threads of workflows and of entries read them

SENT_MAX_BYTES = 1_800_000
"""Bytes of the texts of one message as they are sent: the server takes 2 MB in one payload."""

Written = dict[str, Any]
"""A message as it is sent."""

DRAFT_ID = "@ID@"
"""The id of a task in the text of its emission, which an entry writes before the task is started."""

DEFAULTS = {kind: {one.name: one.default for one in fields(kind)} for kind in (JournalCall, JournalAnswer)}


def write_batch(batch: JournalBatch) -> Written:
    whose = {"task": batch.task} if batch.task else {}
    return {"token": batch.token, "calls": [_write(call) for call in batch.calls], **whose}


def read_batch(sent: Written) -> JournalBatch:
    """Return the batch that was sent, also by an earlier version, which wrote the defaults as well."""
    return msgspec.convert(sent, JournalBatch)


def complete_draft(call: JournalCall, task_id: str, *, created: bool) -> str:
    """Return what is on record of an emission. Entries of 0.1.0 left open whether it was created, and some of them sent
    no `held_text`."""
    draft = call.text if created else call.held_text or call.text
    return draft.replace(DRAFT_ID, task_id).replace('"@CREATED@"', "true" if created else "false")


def drop_large(answers: Sequence[JournalAnswer]) -> list[JournalAnswer]:
    """Return the answers without the requests of activities, which an entry knows, and without the activities whose
    results together are too much for one message."""
    kept, size = [], 0
    for answer in answers:
        activity = answer.activity
        if activity is None:
            kept.append(answer)
            continue
        size += measure_sent(activity.result_json)
        is_small = answer.is_begun or size <= SENT_MAX_BYTES or len(answers) == 1
        kept.append(replace(answer, activity=replace(activity, request_json=None) if is_small else None))
    return kept


def write_answers(answers: Sequence[JournalAnswer]) -> list[Written]:
    """Return the answers as they are sent."""
    return [_write(answer) for answer in answers]


def read_answers(sent: list[Written]) -> list[JournalAnswer]:
    return msgspec.convert(sent, list[JournalAnswer])


def measure_sent(text: str | None) -> int:
    """Return the bytes of a text as it is sent: quotes and letters beyond ASCII are written as escapes."""
    return len(json.dumps(text)) if text else 0


def _write(message: JournalCall | JournalAnswer) -> Written:
    """Return the fields that differ from their defaults."""
    defaults = DEFAULTS[type(message)]
    return {name: value for name, value in msgspec.to_builtins(message).items() if value != defaults[name]}
