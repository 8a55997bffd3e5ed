"""The only SQL of `tasks`. Every move names the state it starts from."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from craftcore.errors import UnreadableRow
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import model_of, model_reader
from craftcore.storage.transaction import BulkStatement, Reader, Row, Transaction
from craftcore.tasks.mailbox_store import EarlyMailStore
from craftcore.tasks.model import NewTask, Task, TaskStatus, make_task
from craftcore.triggers.backoff import ATTEMPTS_MAX
from craftcore.triggers.validation import is_name

COUNT_LIMIT = 1 << 31

CREATE = BulkStatement(
    f"""
    INSERT INTO tasks ({", ".join(NewTask._fields)}, seq, status, created_at, updated_at)
    VALUES {{rows}}
    """,  # noqa: S608 - the columns of the model
    width=len(NewTask._fields) + 4,
)


class Advance(NamedTuple):
    """A decided move of a live task. `turn`: the one that it leaves. `state_json` None: it stays."""

    seq: int
    turn: int
    now: float
    status: TaskStatus
    reason: str | None
    next_turn: int
    trigger_id: str | None
    turns_alone: int
    steps_alone: int
    state_json: str | None = None
    result_json: str | None = None
    error_code: str | None = None
    error_message: str | None = None
    ended_at: float | None = None


ADVANCE = BulkStatement(
    f"""
    WITH move ({", ".join(Advance._fields)}) AS (VALUES {{rows}})
    UPDATE tasks
       SET status        = move.status,
           reason        = move.reason,
           turn          = move.next_turn,
           state_json    = coalesce(move.state_json, tasks.state_json),
           result_json   = move.result_json,
           error_code    = move.error_code,
           error_message = move.error_message,
           trigger_id    = move.trigger_id,
           turns_alone   = move.turns_alone,
           steps_alone   = move.steps_alone,
           ended_at      = move.ended_at,
           updated_at    = move.now
      FROM move
     WHERE tasks.seq = move.seq
       AND tasks.turn = move.turn
       AND +tasks.status IN ('RUNNING', 'WAITING')
    """,  # noqa: S608 - the fields of the model
    width=len(Advance._fields),
)

PARENT_ENDED = "its parent has ended"
"""The reason of a child that was cancelled with its parent."""


class TaskStore:
    """Rows of `tasks`. Holds nothing; every method runs on the transaction it is given."""

    def create_all(self, tx: Transaction, rows: Sequence[NewTask]) -> list[Task]:
        """Insert tasks, RUNNING at their first turn, with the signals that were sent to them before. `seq` is assigned
        here, under the write lock."""
        found = tx.fetch_one(
            """
            SELECT (SELECT coalesce(max(seq), 0) + 1 FROM tasks) AS seq,
                   EXISTS (SELECT 1 FROM early_mail) AS has_mail
            """
        )
        assert found is not None
        first: int = found["seq"]
        tasks = [make_task(row, seq, tx.now) for seq, row in enumerate(rows, first)]
        tx.execute_many(CREATE, [(*row, seq, "RUNNING", tx.now, tx.now) for seq, row in enumerate(rows, first)])
        if found["has_mail"]:
            EarlyMailStore().deliver(tx, [(task.seq, task.id) for task in tasks])
        return tasks

    def list_ending_with(self, tx: Reader, parents: Sequence[str]) -> list[Task]:
        """Return the live children of these tasks that end with them, in order."""
        rows = tx.fetch_all(
            """
            SELECT *
              FROM tasks
             WHERE parent_id IN (SELECT value FROM json_each(:parents))
               AND ends_with_parent = 1
               AND status IN ('RUNNING', 'WAITING')
             ORDER BY seq
            """,
            parents=canonicalize(list(parents)),
        )
        return [task_of(row) for row in rows]

    def list_failed_with(self, tx: Reader, seqs: Sequence[int], code: str) -> list[Task]:
        """Return those of these tasks that have FAILED with this code."""
        rows = tx.fetch_all(
            """
            SELECT *
              FROM tasks
             WHERE seq IN (SELECT value FROM json_each(:seqs))
               AND +status = 'FAILED'
               AND error_code = :code
            """,
            seqs=canonicalize(list(seqs)),
            code=code,
        )
        return [task_of(row) for row in rows]

    def get(self, tx: Reader, task_id: str) -> Task | None:
        """Return the whole row; None when there is none."""
        row = tx.fetch_one("SELECT * FROM tasks WHERE id = :id", id=task_id)
        return task_of(row) if row else None

    def get_by_seq(self, tx: Reader, seq: int) -> Task:
        """Return the row of this number, which is there."""
        row = tx.fetch_one("SELECT * FROM tasks WHERE seq = :seq", seq=seq)
        assert row is not None, seq
        return task_of(row)

    def advance_all(self, tx: Transaction, moves: Sequence[Advance]) -> None:
        """Write decided moves. Nothing is written for a task that ended, or is at another turn."""
        tx.execute_many(ADVANCE, moves)

    def wake(self, tx: Transaction, seq: int, trigger_id: str, reason: str, *, renews: bool) -> None:
        """Move WAITING -> RUNNING: its wait is resolved. `renews`: its work budget is reset."""
        tx.run(
            """
            UPDATE tasks
               SET status      = 'RUNNING',
                   reason      = :reason,
                   trigger_id  = :trigger_id,
                   turns_alone = CASE WHEN :renews THEN 0 ELSE turns_alone END,
                   steps_alone = CASE WHEN :renews THEN 0 ELSE steps_alone END,
                   updated_at  = :now
             WHERE seq = :seq
               AND status IN ('RUNNING', 'WAITING')
            """,
            seq=seq,
            trigger_id=trigger_id,
            reason=reason,
            renews=renews,
        )

    def set_deadline(self, tx: Transaction, task: Task) -> None:
        """Note that it has begun."""
        tx.run("UPDATE tasks SET deadline_at = :at WHERE seq = :seq", at=task.deadline_at, seq=task.seq)

    def set_stopped_turn(self, tx: Transaction, seq: int, turn: int | None) -> None:
        """Note the turn that a person has stopped; None: none."""
        tx.run("UPDATE tasks SET stopped_turn = :turn WHERE seq = :seq", seq=seq, turn=turn)

    def set_progress(self, tx: Transaction, seq: int, progress_json: str) -> None:
        """Store how far its code has come, in place of what it said before."""
        tx.run(
            "UPDATE tasks SET progress_json = :progress, progress_count = progress_count + 1 WHERE seq = :seq",
            progress=progress_json,
            seq=seq,
        )

    def revive(self, tx: Transaction, seq: int, trigger_id: str) -> bool:
        """Move FAILED -> RUNNING, or CANCELLED with its parent -> RUNNING: its last turn is tried again, with all the
        time it had. False: it is neither."""
        return tx.run_one(
            """
            UPDATE tasks
               SET status        = 'RUNNING',
                   reason        = 'retried',
                   trigger_id    = :trigger_id,
                   error_code    = NULL,
                   error_message = NULL,
                   deadline_at   = NULL,
                   stopped_turn  = CASE WHEN stopped_turn < turn THEN stopped_turn END,
                   turns_alone   = 0,
                   steps_alone   = 0,
                   ended_at      = NULL,
                   updated_at    = :now
             WHERE seq = :seq
               AND (status = 'FAILED' OR (status = 'CANCELLED' AND reason = :ended))
            """,
            seq=seq,
            trigger_id=trigger_id,
            ended=PARENT_ENDED,
        )

    def live_task_of_session(self, tx: Reader, session_id: str, workflow: str | None = None) -> Task | None:
        """Return the live task of a session that takes its messages. One that waits for a message or an answer comes
        before the others, then the oldest. With a workflow: one of it that goes on by messages. None: there is none."""
        row = tx.fetch_one(
            """
            SELECT tasks.*
              FROM tasks
              LEFT JOIN waits ON waits.task_seq = tasks.seq AND waits.status = 'WAITING'
              LEFT JOIN questions ON questions.task_seq = tasks.seq AND questions.status = 'OPEN' AND by_message
             WHERE tasks.session_id = :session_id
               AND tasks.session_id IS NOT NULL
               AND tasks.status IN ('RUNNING', 'WAITING')
               AND (:workflow IS NULL OR tasks.workflow = :workflow
                    AND EXISTS (SELECT 1 FROM waits WHERE task_seq = tasks.seq AND event = 'message'))
             ORDER BY waits.event IS NOT 'message' AND questions.seq IS NULL, tasks.seq
             LIMIT 1
            """,
            session_id=session_id,
            workflow=workflow,
        )
        return task_of(row) if row else None

    def live_sessions(self, tx: Reader, limit: int) -> list[Row]:
        """Return each session with a live task, and what its router needs to know of it; the one last moved first."""
        return tx.fetch_all(
            """
            SELECT tasks.session_id, tasks.id AS task_id, tasks.workflow,
                   (SELECT event
                      FROM waits
                     WHERE waits.task_seq = tasks.seq AND waits.status = 'WAITING'
                     ORDER BY event IS NOT 'message', event IS NULL, waits.seq
                     LIMIT 1) AS waits_for,
                   (SELECT description FROM triggers WHERE triggers.id = tasks.id) AS description,
                   tasks.updated_at
              FROM tasks
             WHERE tasks.session_id IS NOT NULL
               AND tasks.status IN ('RUNNING', 'WAITING')
               AND tasks.seq = (SELECT min(older.seq)
                                  FROM tasks AS older
                                 WHERE older.session_id = tasks.session_id
                                   AND older.session_id IS NOT NULL
                                   AND older.status IN ('RUNNING', 'WAITING'))
             ORDER BY tasks.updated_at DESC
             LIMIT :limit
            """,
            limit=limit,
        )

    def list_running(self, tx: Reader) -> list[Row]:
        """Return every RUNNING task with the state of its trigger (`trigger_status` None: the row is gone), and when
        it last moved. Tasks that wait are not visited."""
        return tx.fetch_all(
            """
            SELECT tasks.seq,
                   tasks.id,
                   tasks.updated_at,
                   triggers.seq        AS trigger_seq,
                   triggers.source     AS trigger_source,
                   triggers.status     AS trigger_status,
                   triggers.reason     AS trigger_reason,
                   triggers.updated_at AS trigger_updated_at,
                   triggers.due_at     AS trigger_due_at,
                   (SELECT max(at)
                      FROM events
                     WHERE execution_seq = (SELECT max(seq)
                                              FROM executions
                                             WHERE executions.task_id = tasks.id
                                               AND executions.task_id IS NOT NULL)) AS last_event_at
              FROM tasks
              LEFT JOIN triggers ON triggers.id = tasks.trigger_id
             WHERE tasks.status = 'RUNNING'
             ORDER BY tasks.seq
            """
        )

    def creator(self, tx: Reader, task_id: str) -> Row | None:
        """Return what a turn must know of the trigger that created its task; None when its row is gone."""
        return tx.fetch_one(
            "SELECT payload_json, description, schedule_id, nominal_at FROM triggers WHERE id = :id", id=task_id
        )

    def has_creator(self, tx: Reader, task_id: str) -> bool:
        """Return whether the trigger that created this task is there with its payload: retention takes both."""
        return tx.fetch_value("SELECT 1 FROM triggers WHERE id = :id AND stripped_at IS NULL", id=task_id) is not None

    def trigger_reasons(self, tx: Reader, seqs: Sequence[int]) -> dict[int, str | None]:
        """Return why each of these triggers came back to be started again."""
        rows = tx.fetch_tuples(
            "SELECT seq, reason FROM triggers WHERE seq IN (SELECT value FROM json_each(?1))",
            (canonicalize(list(seqs)),),
        )
        return dict(rows)


@model_reader
def task_of(row: Row) -> Task:
    """Return the model of a full row. Raises ValueError for a live one whose next trigger could not be emitted."""
    status = TaskStatus(row["status"])
    agents: tuple[str, ...] | None = None
    text = row["agents_json"]
    if status.is_live:
        _check(row)
        agents = None if text is None else agents_of(text)
        if row["agent"] is not None and row["agent"] not in (agents or ()):
            raise ValueError(f"agent {row['agent']!r:.80} is not one of agents_json {text!r:.80}")
    return model_of(Task, row, agents=agents)


def _check(row: Row) -> None:
    for name in ("workflow", "agent", "session_id"):
        if row[name] is not None and not is_name(row[name]):
            raise UnreadableRow(f"{name} {row[name]!r:.80} is not a name")
    if row["max_attempts"] is not None and not 1 <= row["max_attempts"] <= ATTEMPTS_MAX:
        raise UnreadableRow(f"max_attempts {row['max_attempts']} is not a number of attempts")
    for name, least in (("turn", 1), ("turns_alone", 0), ("steps_alone", 0)):
        if not least <= row[name] < COUNT_LIMIT:
            raise UnreadableRow(f"{name} {row[name]} is not a count")


def agents_of(text: str) -> tuple[str, ...]:
    """Return the column of a row. Raises UnreadableRow, or ValueError for text that is not JSON."""
    try:
        agents = json.loads(text)
    except RecursionError as error:
        raise UnreadableRow(f"agents_json {text!r:.80} is nested too deeply") from error
    if not isinstance(agents, list) or not agents or not all(is_name(name) for name in agents):
        raise UnreadableRow(f"agents_json {text!r:.80} is not a list of names")
    if len(set(agents)) < len(agents):
        raise UnreadableRow(f"agents_json {text!r:.80} says one twice, and each is tried once")
    return tuple(agents)
