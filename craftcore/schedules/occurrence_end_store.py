"""The only SQL of what a fired occurrence became: the end of its task or trigger, after that of its newest record."""

from __future__ import annotations

from enum import StrEnum
from typing import Any, NamedTuple

from craftcore.schedules.model import Occurrence
from craftcore.schedules.occurrence_store import occurrence_of
from craftcore.storage.damaged_rows import Damaged, model_reader, read_rows
from craftcore.storage.transaction import Reader, Row

LINES = """
WITH newest AS MATERIALIZED (
    SELECT *
      FROM schedule_occurrences
     WHERE schedule_id = :id
       AND seq < :before
     ORDER BY seq DESC
     LIMIT :limit
)
SELECT newest.*,
       tasks.status            AS task_status,
       tasks.reason            AS task_reason,
       tasks.error_code        AS task_error_code,
       tasks.error_message     AS task_error_message,
       tasks.ended_at          AS task_ended_at,
       triggers.status         AS trigger_status,
       triggers.reason         AS trigger_reason,
       triggers.error_code     AS trigger_error_code,
       triggers.error_message  AS trigger_error_message,
       triggers.attempts       AS trigger_attempts,
       triggers.starts         AS trigger_starts,
       triggers.settled_at     AS trigger_settled_at,
       first_record.created_at AS began_at,
       epochs.started_at       AS daemon_started_at,
       last_record.id          AS record_id,
       last_record.status      AS record_status,
       last_record.error_code  AS record_error_code,
       last_record.attempt     AS record_attempt,
       last_record.created_at  AS record_created_at,
       last_record.ended_at    AS record_ended_at
  FROM newest
  LEFT JOIN triggers ON triggers.id = newest.trigger_id
  LEFT JOIN tasks ON tasks.id = newest.trigger_id
  LEFT JOIN executions AS first_record ON first_record.id = 'exec-' || newest.trigger_id || '.1'
  LEFT JOIN epochs ON epochs.epoch = first_record.epoch
  LEFT JOIN executions AS last_record
         ON last_record.seq = (SELECT max(seq)
                                 FROM executions
                                WHERE executions.id >= 'exec-' || newest.trigger_id || '.'
                                  AND executions.id < 'exec-' || newest.trigger_id || '/')
"""
"""The lines of an account, in no order, each with the rows of its trigger that retention has left."""

ALL_LINES = 1 << 62


class EndState(StrEnum):
    """The result of a fired occurrence. GONE: retention has removed its trigger, its task and its records."""

    WAITS = "waits"
    AT_WORK = "at work"
    DONE = "done"
    FAILED = "failed"
    NOT_RUN = "not run"
    GONE = "gone"


class OccurrenceEnd(NamedTuple):
    """The end of a fired occurrence, as far as it is known.

    status       that of its task, trigger or newest record, as the table has it; None: GONE
    began_at     when its first attempt began; None: it did not, or that is unknown by now
    ended_at     when it ended; None: it has not, or that is unknown by now
    attempts     that it took so far, as far as they count
    record_id    of its newest record; None: it has none
    is_kept      its trigger has a row; `is_task`: it has a task, with the same id; `is_dead`: it is a dead letter
    daemon_started_at  of the daemon that began its first attempt; None: unknown
    """

    state: EndState
    status: str | None = None
    began_at: float | None = None
    ended_at: float | None = None
    attempts: int | None = None
    reason: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    record_id: str | None = None
    is_kept: bool = False
    is_task: bool = False
    is_dead: bool = False
    daemon_started_at: float | None = None


class AccountLine(NamedTuple):
    """A line of the account. `end`: what it became; None of one that has not fired."""

    occurrence: Occurrence
    end: OccurrenceEnd | None

    @property
    def seq(self) -> int:
        return self.occurrence.seq


class OccurrenceEndStore:
    """Lines of `schedule_occurrences` with the ends of what fired. Holds nothing."""

    def list_lines(
        self, tx: Reader, schedule_id: str, limit: int, *, before: int = ALL_LINES
    ) -> list[AccountLine | Damaged]:
        """Return the newest lines of the account below that `seq`, newest first. Damaged ones come last."""
        found = read_rows(tx, LINES, line_of, key="seq", id=schedule_id, limit=limit, before=before)
        return sorted(found, key=lambda one: -1 if isinstance(one, Damaged) else one.seq, reverse=True)


@model_reader
def line_of(row: Row) -> AccountLine:
    """Return the model of a line with its end."""
    occurrence = occurrence_of(row)
    return AccountLine(occurrence, None if occurrence.trigger_id is None else _end_of(row))


def _end_of(row: Row) -> OccurrenceEnd:
    facts = _facts_of(row)
    began = row["began_at"] if row["began_at"] is not None else row["record_created_at"]
    found = {"began_at": began, "record_id": row["record_id"], "daemon_started_at": row["daemon_started_at"]}
    return OccurrenceEnd(**found, **facts)


def _facts_of(row: Row) -> dict[str, Any]:
    """Return what is known of its end: a task goes before its trigger, and that before a record."""
    kept = {
        "attempts": row["trigger_attempts"],
        "reason": row["trigger_reason"],
        "is_kept": row["trigger_status"] is not None,
        "is_task": row["task_status"] is not None,
        "is_dead": row["trigger_status"] == "DEAD",
    }
    if (status := row["task_status"]) is not None:
        state = {"DONE": EndState.DONE, "FAILED": EndState.FAILED, "CANCELLED": EndState.DONE}
        return {
            **kept,
            "state": state.get(status, EndState.AT_WORK),
            "status": status,
            "reason": row["task_reason"],
            "ended_at": row["task_ended_at"],
            "error_code": row["task_error_code"],
            "error_message": row["task_error_message"],
        }
    if (status := row["trigger_status"]) is not None:
        return {
            **kept,
            "state": _state_of_trigger(status, row["trigger_starts"]),
            "status": status,
            "ended_at": row["trigger_settled_at"],
            "error_code": row["trigger_error_code"],
            "error_message": row["trigger_error_message"],
        }
    if (status := row["record_status"]) is not None:
        return {
            "state": EndState.FAILED if status == "error" else EndState.DONE,
            "status": status,
            "ended_at": row["record_ended_at"],
            "attempts": row["record_attempt"],
            "error_code": row["record_error_code"],
        }
    return {"state": EndState.GONE}


def _state_of_trigger(status: str, starts: int) -> EndState:
    match status:
        case "DONE":
            return EndState.DONE if starts else EndState.NOT_RUN
        case "FAILED" | "DEAD":
            return EndState.FAILED
        case _:
            return EndState.AT_WORK if starts else EndState.WAITS
