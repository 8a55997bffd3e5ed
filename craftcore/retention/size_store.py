"""How much a look found: rows and bytes by table, of what would go and all that goes with it.

Bytes are those of texts. A body that is stripped and then removed in one pass is counted once, as stripped. A removed
row has no size, so a batch removed the difference of before and after.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import NamedTuple

from craftcore.retention.cutoffs import Horizons
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


REMOVED_TRIGGERS = """
SELECT count(*),
       sum(octet_length(concat(id, source, dedup_key, dedup_scope, session_id, task_id, schedule_id, workflow, lane,
                               description, payload_json, status, reason, error_code, error_message, superseded_by)))
  FROM triggers
 WHERE seq IN (SELECT value FROM json_each(:gone))
"""
STRIPPED_TRIGGERS = """
SELECT count(*), sum(octet_length(concat(description, payload_json, error_message)) - 2)
  FROM triggers
 WHERE seq IN (SELECT value FROM json_each(:kept))
   AND stripped_at IS NULL
"""
STRIPPED_RECORDS = """
SELECT count(*), sum(octet_length(concat(envelope_json, response_json)))
  FROM executions
 WHERE seq IN (SELECT value FROM json_each(:gone))
   AND stripped_at IS NULL
"""
STRIPPED_EVENTS = """
SELECT count(*), sum(octet_length(payload_json))
  FROM events
 WHERE execution_seq IN (SELECT value FROM json_each(:gone))
   AND payload_json <> ''
"""
STRIPPED_BLOBS = """
SELECT count(*), sum(octet_length(concat(part, body)))
  FROM blobs
 WHERE execution_seq IN (SELECT value FROM json_each(:gone))
"""
STRIPPED_ACTIVITIES = """
SELECT count(*), sum(octet_length(concat(request_json, result_json, error_message)))
  FROM activity_log
 WHERE seq IN (SELECT value FROM json_each(:gone))
   AND (request_json IS NOT NULL OR result_json IS NOT NULL OR error_message IS NOT NULL)
"""
REMOVED_RECORDS = """
SELECT count(*),
       sum(octet_length(concat(id, trigger_id, task_id, workflow, status, replayable_reason, envelope_hash,
                               routing_json, error_code, events_hash, response_hash, prev_hash, record_hash))
           + iif(coalesce(ended_at, created_at) <= :bodies, 0, octet_length(concat(envelope_json, response_json))))
  FROM executions
 WHERE seq IN (SELECT value FROM json_each(:gone))
"""
REMOVED_EVENTS = """
SELECT count(*),
       sum(octet_length(concat(events.type, events.memo))
           + iif(coalesce(ended_at, created_at) <= :bodies, 0, octet_length(payload_json)))
  FROM events
  JOIN executions ON executions.seq = execution_seq
 WHERE execution_seq IN (SELECT value FROM json_each(:gone))
"""
REMOVED_BLOBS = """
SELECT count(*), sum(octet_length(concat(part, body)))
  FROM blobs
  JOIN executions ON executions.seq = execution_seq
 WHERE execution_seq IN (SELECT value FROM json_each(:gone))
   AND coalesce(ended_at, created_at) > :bodies
"""
REMOVED_TASKS = """
SELECT count(*),
       sum(octet_length(concat(id, workflow, session_id, schedule_id, parent_id, status, reason, state_json,
                               result_json, error_code, error_message, trigger_id, agents_json, agent)))
  FROM tasks
 WHERE seq IN (SELECT value FROM json_each(:gone))
"""
STRIPPED_TASKS = """
SELECT count(*), sum(octet_length(concat(state_json, result_json, error_message)) - octet_length('null'))
  FROM tasks
 WHERE seq IN (SELECT value FROM json_each(:kept))
   AND (state_json <> 'null' OR result_json IS NOT NULL OR error_message IS NOT NULL)
"""
IN_FOUND_TASKS = " WHERE task_seq IN (SELECT value FROM json_each(:seqs))"
IN_GONE_TASKS = " WHERE task_seq IN (SELECT value FROM json_each(:gone))"
AMONG_GONE = " WHERE seq IN (SELECT value FROM json_each(:gone))"
IN_GONE_WAITS = " WHERE wait_seq IN (SELECT value FROM json_each(:gone))"

WAITS = """
SELECT count(*), sum(octet_length(concat(id, name, kind, event, status, resolved_by, value_json)))
  FROM waits
"""
REMOVED_WAITS = WAITS + IN_FOUND_TASKS
QUESTIONS = """
SELECT count(*),
       sum(octet_length(concat(id, kind, question, options_json, default_json, status, answer, note, answered_by)))
  FROM questions
"""
REMOVED_QUESTIONS = QUESTIONS + IN_FOUND_TASKS
MAIL = """
SELECT count(*), sum(octet_length(concat(event, payload_json, trigger_id, sent_by, status)))
  FROM mailbox
"""
REMOVED_MAIL = MAIL + IN_FOUND_TASKS
ACTIVITIES = """
SELECT count(*),
       sum(octet_length(concat(idem_key, task_id, action, status, reason, policy, args_hash, result_unstored,
                               provider_ref, error_code, decision))
           + iif(coalesce(settled_at, updated_at) <= :bodies, 0,
                 octet_length(concat(request_json, result_json, error_message))))
  FROM activity_log
"""
REMOVED_ACTIVITIES = ACTIVITIES + IN_GONE_TASKS
REMOVED_DECISIONS = """
SELECT count(*), sum(octet_length(concat(activity_decisions.decision, reference, note, decided_by)))
  FROM activity_log
  JOIN activity_decisions ON activity_decisions.activity_seq = activity_log.seq
 WHERE activity_log.task_seq IN (SELECT value FROM json_each(:gone))
"""
REMOVED_OCCURRENCES = """
SELECT count(*), sum(octet_length(concat(schedule_id, cause, outcome, reason, trigger_id)))
  FROM schedule_occurrences
 WHERE seq IN (SELECT value FROM json_each(:gone))
"""
REMOVED_AUDIT = """
SELECT count(*), sum(octet_length(concat(name, action, subject, reason, details_json, prev_hash, hash)))
  FROM audit_log
 WHERE seq IN (SELECT value FROM json_each(:gone))
"""
REMOVED_EPOCHS = """
SELECT count(*), sum(octet_length(concat(boot_id, machine_boot_id, host, version)))
  FROM epochs
 WHERE epoch IN (SELECT value FROM json_each(:gone))
"""

TURN_WAITS = WAITS + AMONG_GONE
TURN_QUESTIONS = QUESTIONS + IN_GONE_WAITS
TURN_ASKED = QUESTIONS + AMONG_GONE
TURN_MAIL = MAIL + IN_GONE_WAITS
TURN_ACTIVITIES = ACTIVITIES + AMONG_GONE
TURN_DECISIONS = """
SELECT count(*), sum(octet_length(concat(decision, reference, note, decided_by)))
  FROM activity_decisions
 WHERE activity_seq IN (SELECT value FROM json_each(:gone))
"""
TURN_DOUBTS = """
SELECT count(*),
       sum(octet_length(concat(questions.id, questions.kind, question, options_json, default_json, questions.status,
                               answer, note, answered_by)))
  FROM questions
  LEFT JOIN waits ON waits.seq = wait_seq
 WHERE activity_seq IN (SELECT value FROM json_each(:gone))
   AND (wait_seq IS NULL OR waits.resolved_at > :history)
"""
"""Those whose wait goes in the same pass are counted with it."""

Statements = tuple[tuple[str, str], ...]
"""Table and statement. `:seqs` are the rows that were found, `:kept` those of them that are only stripped, `:gone` the
others."""

OF_TRIGGERS: Statements = (("triggers", REMOVED_TRIGGERS), ("triggers", STRIPPED_TRIGGERS))
OF_BODIES: Statements = (("executions", STRIPPED_RECORDS), ("events", STRIPPED_EVENTS), ("blobs", STRIPPED_BLOBS))
OF_ARGUMENTS: Statements = (("activity_log", STRIPPED_ACTIVITIES),)
OF_RECORDS: Statements = (("executions", REMOVED_RECORDS), ("events", REMOVED_EVENTS), ("blobs", REMOVED_BLOBS))
OF_TASKS: Statements = (
    ("tasks", REMOVED_TASKS),
    ("tasks", STRIPPED_TASKS),
    ("waits", REMOVED_WAITS),
    ("questions", REMOVED_QUESTIONS),
    ("mailbox", REMOVED_MAIL),
    ("activity_log", REMOVED_ACTIVITIES),
    ("activity_decisions", REMOVED_DECISIONS),
)
OF_ENDED_WAITS: Statements = (("waits", TURN_WAITS), ("questions", TURN_QUESTIONS), ("mailbox", TURN_MAIL))
OF_ENDED_ACTS: Statements = (
    ("activity_log", TURN_ACTIVITIES),
    ("activity_decisions", TURN_DECISIONS),
    ("questions", TURN_DOUBTS),
)
OF_ENDED_QUESTIONS: Statements = (("questions", TURN_ASKED),)
OF_OCCURRENCES: Statements = (("schedule_occurrences", REMOVED_OCCURRENCES),)
OF_AUDIT: Statements = (("audit_log", REMOVED_AUDIT),)
OF_EPOCHS: Statements = (("epochs", REMOVED_EPOCHS),)


def weigh(tx: Reader, statements: Statements, old: Horizons, found: Found) -> TableSizes:
    """Return what these rows weigh as they are now, by the statements of their kind."""
    gone = [seq for seq in found.seqs if seq not in found.kept]
    lists = {"seqs": json.dumps(found.seqs), "kept": json.dumps(sorted(found.kept)), "gone": json.dumps(gone)}
    weight = TableSizes(Counter(), Counter())
    for table, sql in statements:
        found_rows, size = (tx.fetch_one(sql, **lists, **old._asdict()) or {}).values()
        weight.rows[table] += found_rows
        weight.bytes[table] += size or 0
    return weight
