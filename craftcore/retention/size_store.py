"""How much a look found: rows and bytes by table, of what would go and all that goes with it.

Bytes are those of texts. A body that is stripped and then removed in one pass is counted once, as stripped. A removed
row has no size, so a batch removed the difference of before and after.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

from craftcore.retention.cutoffs import Cutoffs
from craftcore.retention.event_text_store import FREED_BYTES, LEFT_BYTES
from craftcore.retention.model import Found
from craftcore.storage.transaction import Reader


class TableSizes(NamedTuple):
    """By table."""

    rows: Counter[str]
    bytes: Counter[str]

    def add(self, other: TableSizes) -> None:
        self.rows.update(other.rows)
        self.bytes.update(other.bytes)

    def subtract(self, other: TableSizes) -> None:
        self.rows.subtract(other.rows)
        self.bytes.subtract(other.bytes)

    @property
    def tables(self) -> dict[str, dict[str, int]]:
        """`{"triggers": {"rows": 3, "bytes": 540}}`, of what is not nothing."""
        return {table: {"rows": rows, "bytes": self.bytes[table]} for table, rows in self.rows.items() if rows}


Statements = tuple[tuple[str, str], ...]
"""Table and statement. `:seqs` are the found rows, `:kept` those of them that are only stripped, `:gone` the others."""

GONE = "IN (SELECT value FROM json_each(:gone))"
KEPT = "IN (SELECT value FROM json_each(:kept))"
FOUND = "IN (SELECT value FROM json_each(:seqs))"

TRIGGER = """
id, source, dedup_key, dedup_scope, session_id, task_id, schedule_id, workflow, lane, description, payload_json, status,
reason, error_code, error_message, superseded_by
"""
RECORD = """
id, trigger_id, task_id, workflow, status, replayable_reason, envelope_hash, routing_json, error_code, events_hash,
response_hash, prev_hash, record_hash
"""
TASK = """
id, workflow, session_id, schedule_id, parent_id, status, reason, state_json, result_json, error_code, error_message,
trigger_id, agents_json, agent, progress_json, reply_json
"""
ACTIVITY = """
idem_key, task_id, action, status, reason, policy, args_hash, result_unstored, provider_ref, error_code,
activity_log.decision
"""
QUESTION = """
questions.id, questions.kind, question, options_json, default_json, questions.status, answer, note, answered_by,
form_json, addressee
"""
WAIT = "id, name, kind, event, status, resolved_by, value_json"
MAIL = "event, payload_json, trigger_id, sent_by, status, reply_json, unanswered, emitted_as"
CHUNKS = "part, texts_json, cut_json"
DECISION = "activity_decisions.decision, reference, note, decided_by"

RECORD_BODY = "envelope_json, response_json"
ARGUMENTS = "request_json, result_json, error_message"
HAS_ARGUMENTS = "(request_json IS NOT NULL OR result_json IS NOT NULL OR error_message IS NOT NULL)"

RECORD_ENDED_AT = "coalesce(ended_at, created_at)"
ACTIVITY_ENDED_AT = "coalesce(settled_at, updated_at)"

OF_A_RECORD = "JOIN executions ON executions.seq = execution_seq"
OF_A_TASK = "JOIN tasks ON tasks.seq = task_seq"
OF_AN_ACTIVITY = "JOIN activity_log ON activity_log.seq = activity_seq"


def _size_statement(table: str, where: str, texts: str, plus: str = "", *, join: str = "") -> tuple[str, str]:
    """Return the statement for the rows of a table and the bytes of these texts; `plus`: what each row has beside."""
    size = f"sum(octet_length(concat({texts})) {plus})"
    return table, f"SELECT count(*), {size} FROM {table} {join} WHERE {where}"  # noqa: S608 - static parts


def _body_size(ended_at: str, texts: str, plus: str = "0") -> str:
    """Return the bytes of a body: of these texts, and `plus`. A body that is old enough is counted as stripped."""
    return f"+ iif({ended_at} <= :bodies, 0, octet_length(concat({texts})) + {plus})"


def _activity_statement(where: str) -> tuple[str, str]:
    return _size_statement("activity_log", where, ACTIVITY, _body_size(ACTIVITY_ENDED_AT, ARGUMENTS))


OF_TRIGGERS: Statements = (
    _size_statement("triggers", f"seq {GONE}", TRIGGER),
    _size_statement(
        "triggers",
        f"seq {KEPT} AND stripped_at IS NULL",
        "description, payload_json, error_message",
        "- octet_length('{}')",
    ),
)
OF_BODIES: Statements = (
    _size_statement("executions", f"seq {GONE} AND stripped_at IS NULL", RECORD_BODY, f"+ {FREED_BYTES}"),
    _size_statement("event_rows", f"execution_seq {GONE} AND payload_json <> ''", "payload_json"),
    _size_statement("blobs", f"execution_seq {GONE}", "part, body"),
)
OF_ARGUMENTS: Statements = (_size_statement("activity_log", f"seq {GONE} AND {HAS_ARGUMENTS}", ARGUMENTS),)
OF_RECORDS: Statements = (
    _size_statement(
        "executions", f"seq {GONE}", RECORD, f"+ {LEFT_BYTES} {_body_size(RECORD_ENDED_AT, RECORD_BODY, FREED_BYTES)}"
    ),
    _size_statement(
        "event_rows",
        f"execution_seq {GONE}",
        "type, memo",
        _body_size(RECORD_ENDED_AT, "payload_json"),
        join=OF_A_RECORD,
    ),
    _size_statement("blobs", f"execution_seq {GONE} AND {RECORD_ENDED_AT} > :bodies", "part, body", join=OF_A_RECORD),
)
OF_TASKS: Statements = (
    _size_statement("tasks", f"seq {GONE}", TASK),
    _size_statement(
        "tasks",
        f"seq {KEPT} AND (state_json <> 'null' "
        "OR coalesce(result_json, error_message, progress_json, reply_json) IS NOT NULL)",
        "state_json, result_json, error_message, progress_json, reply_json",
        "- octet_length('null')",
    ),
    _size_statement("waits", f"task_seq {FOUND}", WAIT),
    _size_statement("questions", f"task_seq {FOUND}", QUESTION),
    _size_statement("mailbox", f"task_seq {FOUND}", MAIL),
    _size_statement(  # those that are old enough are counted as streams
        "stream_chunks",
        f"task_seq {FOUND} AND ended_at > :bodies",
        CHUNKS,
        join=f"JOIN turn_streams ON turn_streams.seq = stream_seq {OF_A_TASK}",
    ),
    _size_statement("turn_streams", f"task_seq {FOUND} AND ended_at > :bodies", "name", join=OF_A_TASK),
    _activity_statement(f"task_seq {GONE}"),
    _size_statement("activity_decisions", f"activity_log.task_seq {GONE}", DECISION, join=OF_AN_ACTIVITY),
)
OF_STREAMS: Statements = (
    _size_statement("stream_chunks", f"stream_seq {GONE}", CHUNKS),
    _size_statement("turn_streams", f"seq {GONE}", "name"),
)
OF_ENDED_WAITS: Statements = (
    _size_statement("waits", f"seq {GONE}", WAIT),
    _size_statement("questions", f"wait_seq {GONE}", QUESTION),
    _size_statement("mailbox", f"wait_seq {GONE}", MAIL),
)
OF_ENDED_ACTS: Statements = (
    _activity_statement(f"seq {GONE}"),
    _size_statement("activity_decisions", f"activity_seq {GONE}", DECISION),
    _size_statement(  # those whose wait goes in the same pass are counted with it
        "questions",
        f"activity_seq {GONE} AND (wait_seq IS NULL OR waits.resolved_at > :history)",
        QUESTION,
        join="LEFT JOIN waits ON waits.seq = wait_seq",
    ),
)
OF_ENDED_QUESTIONS: Statements = (_size_statement("questions", f"seq {GONE}", QUESTION),)
OF_MESSAGES: Statements = (
    _size_statement("session_messages", f"seq {GONE}", "session_id, group_key, task_id, message_json"),
)
OF_OCCURRENCES: Statements = (
    _size_statement("schedule_occurrences", f"seq {GONE}", "schedule_id, cause, outcome, reason, trigger_id"),
)
OF_AUDIT: Statements = (
    _size_statement("audit_log", f"seq {GONE}", "name, action, subject, reason, details_json, prev_hash, hash"),
)
OF_EPOCHS: Statements = (_size_statement("epochs", f"epoch {GONE}", "boot_id, machine_boot_id, host, version"),)


def weigh(tx: Reader, statements: Statements, old: Cutoffs, found: Found) -> TableSizes:
    """Return what these rows weigh as they are now, by the statements of their kind."""
    gone = [seq for seq in found.seqs if seq not in found.kept]
    lists = {"seqs": json.dumps(found.seqs), "kept": json.dumps(sorted(found.kept)), "gone": json.dumps(gone)}
    weight = TableSizes(Counter(), Counter())
    for table, sql in statements:
        found_rows, size = (tx.fetch_one(sql, **lists, **old._asdict()) or {}).values()
        weight.rows[table] += found_rows
        weight.bytes[table] += size or 0
    return weight
