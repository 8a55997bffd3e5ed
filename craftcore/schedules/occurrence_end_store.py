"""The only SQL of what a fired occurrence became: the end of its task or trigger, after that of its newest record."""

from __future__ import annotations

from enum import StrEnum
from operator import attrgetter
from typing import Any, NamedTuple

from craftcore.schedules.model import FireCause, Occurrence, Outcome
from craftcore.storage.damaged_rows import UNREADABLE, Damaged, model_reader, read_rows
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
SELECT newest.seq,
       newest.schedule_id,
       newest.generation,
       newest.cause,
       newest.nominal_at,
       newest.last_at,
       newest.count,
       newest.outcome,
       newest.reason,
       newest.trigger_id,
       newest.decided_at,
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
       triggers.started_at     AS trigger_started_at,
       triggers.settled_at     AS trigger_settled_at,
       first_record.created_at AS began_at,
       last_record.id          AS record_id,
       last_record.status      AS record_status,
       last_record.error_code  AS record_error_code,
       last_record.attempt     AS record_attempt,
       last_record.created_at  AS record_created_at,
       last_record.ended_at    AS record_ended_at
  FROM newest
  LEFT JOIN triggers ON triggers.id = newest.trigger_id
  LEFT JOIN tasks ON tasks.id = newest.trigger_id
  LEFT JOIN executions AS first_record
         ON first_record.id = iif(triggers.starts = 1 AND triggers.started_at IS NOT NULL, NULL,
                                  'exec-' || newest.trigger_id || '.1')
  LEFT JOIN executions AS last_record
         ON last_record.seq = iif(triggers.seq IS NULL,
                                  (SELECT max(seq)
                                     FROM executions
                                    WHERE executions.id >= 'exec-' || newest.trigger_id || '.'
                                      AND executions.id < 'exec-' || newest.trigger_id || '/'),
                                  NULL)
"""
"""The lines of an account, in no order, each with the rows that tell its end. A record is looked for where its trigger
does not tell as much."""

DAEMON = """
SELECT epochs.started_at
  FROM executions
  JOIN epochs ON epochs.epoch = executions.epoch
 WHERE executions.id = 'exec-' || :trigger_id || '.1'
"""

ALL_LINES = 1 << 62

CAUSES: dict[str, FireCause] = {one.value: one for one in FireCause}
OUTCOMES: dict[str, Outcome] = {one.value: one for one in Outcome}
"""By their texts: an enumeration takes longer to look one up, which counts for thousands of lines."""


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
    record_id    of its newest record; None: it has none, or its trigger is kept
    is_kept      its trigger has a row; `is_task`: it has a task, with the same id; `is_dead`: it is a dead letter
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
        """Return the newest lines of the account below that `seq`, newest first."""
        found: list[AccountLine | Damaged]
        try:
            found = [_line_of(*values) for values in tx.fetch_tuples(LINES, (schedule_id, before, limit))]
        except UNREADABLE:
            found = read_rows(tx, LINES, line_of, key="seq", id=schedule_id, limit=limit, before=before)
        return sorted(found, key=attrgetter("seq"), reverse=True)

    def find_daemon_start(self, tx: Reader, trigger_id: str) -> float | None:
        """Return when the daemon started that began the first attempt of a trigger; None when nothing tells any
        more."""
        found: float | None = tx.fetch_value(DAEMON, trigger_id=trigger_id)
        return found


@model_reader
def line_of(row: Row) -> AccountLine:
    """Return the model of a line with its end."""
    return _line_of(*row.values())


def _line_of(
    seq: int,
    schedule_id: str,
    generation: int,
    cause: str,
    nominal_at: float,
    last_at: float,
    count: int,
    outcome: str,
    reason: str | None,
    trigger_id: str | None,
    decided_at: float,
    *facts: Any,
) -> AccountLine:
    """Return a line from the columns of LINES, in their order: a page reads thousands of them."""
    occurrence = Occurrence(
        seq=seq, schedule_id=schedule_id, generation=generation, cause=CAUSES.get(cause) or FireCause(cause),
        nominal_at=nominal_at, last_at=last_at, count=count, outcome=OUTCOMES.get(outcome) or Outcome(outcome),
        reason=reason, trigger_id=trigger_id, decided_at=decided_at,
    )  # fmt: skip
    return AccountLine(occurrence, None if trigger_id is None else _end_of(_Facts(*facts)))


class _Facts(NamedTuple):
    """The columns of LINES that tell the end of a trigger."""

    task_status: str | None
    task_reason: str | None
    task_error_code: str | None
    task_error_message: str | None
    task_ended_at: float | None
    trigger_status: str | None
    trigger_reason: str | None
    trigger_error_code: str | None
    trigger_error_message: str | None
    trigger_attempts: int | None
    trigger_starts: int | None
    trigger_started_at: float | None
    trigger_settled_at: float | None
    began_at: float | None
    record_id: str | None
    record_status: str | None
    record_error_code: str | None
    record_attempt: int | None
    record_created_at: float | None
    record_ended_at: float | None

    @property
    def first_began_at(self) -> float | None:
        """The start of the first attempt, as far as anything tells."""
        if self.began_at is not None:
            return self.began_at
        return self.trigger_started_at if self.record_created_at is None else self.record_created_at


def _end_of(facts: _Facts) -> OccurrenceEnd:
    """Return what is known of an end: a task goes before its trigger, and that before a record."""
    trigger, began_at = facts.trigger_status, facts.first_began_at
    if (status := facts.task_status) is not None:
        return OccurrenceEnd(
            state=STATES_OF_TASKS.get(status, EndState.AT_WORK), status=status, began_at=began_at,
            ended_at=facts.task_ended_at, attempts=facts.trigger_attempts, reason=facts.task_reason,
            error_code=facts.task_error_code, error_message=facts.task_error_message, record_id=facts.record_id,
            is_kept=trigger is not None, is_task=True, is_dead=trigger == "DEAD",
        )  # fmt: skip
    if trigger is not None:
        return OccurrenceEnd(
            state=_state_of_trigger(trigger, bool(facts.trigger_starts)), status=trigger, began_at=began_at,
            ended_at=facts.trigger_settled_at, attempts=facts.trigger_attempts, reason=facts.trigger_reason,
            error_code=facts.trigger_error_code, error_message=facts.trigger_error_message, is_kept=True,
            is_dead=trigger == "DEAD",
        )  # fmt: skip
    if (status := facts.record_status) is not None:
        return OccurrenceEnd(
            state=EndState.FAILED if status == "error" else EndState.DONE, status=status, began_at=began_at,
            ended_at=facts.record_ended_at, attempts=facts.record_attempt, error_code=facts.record_error_code,
            record_id=facts.record_id,
        )  # fmt: skip
    return OccurrenceEnd(state=EndState.GONE)


STATES_OF_TASKS = {"DONE": EndState.DONE, "FAILED": EndState.FAILED, "CANCELLED": EndState.DONE}


def _state_of_trigger(status: str, has_started: bool) -> EndState:
    match status:
        case "DONE":
            return EndState.DONE if has_started else EndState.NOT_RUN
        case "FAILED" | "DEAD":
            return EndState.FAILED
        case _:
            return EndState.AT_WORK if has_started else EndState.WAITS
