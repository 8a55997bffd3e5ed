"""The only SQL of questions: each is answered once, or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from craftcore.errors import UnreadableRow
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.damaged_rows import Damaged, model_of, model_reader, read_rows
from craftcore.storage.transaction import Reader, Row, Transaction
from craftcore.tasks.answer_form import check_form
from craftcore.tasks.model import NewQuestion, Question, QuestionKind, QuestionStatus, question_asked

REQUEST_SHOWN = 600
"""Characters of the arguments that a question about an activity shows."""

SELECT = """
SELECT questions.*, tasks.id AS task_id, tasks.workflow AS workflow,
       activity_log.idem_key AS activity_key, activity_log.request_json AS request_json
  FROM questions
  JOIN tasks ON tasks.seq = questions.task_seq
  LEFT JOIN activity_log ON activity_log.seq = questions.activity_seq
"""

OLDEST = "questions.seq"
URGENCY = """
questions.activity_seq IS NULL,
CASE WHEN tasks.ended_at IS NULL
     THEN coalesce(min(questions.expires_at, tasks.deadline_at), questions.expires_at, tasks.deadline_at)
     ELSE questions.expires_at
END NULLS LAST,
questions.seq
"""
"""The order of an inbox: those about an action in doubt first, then by the earliest end. The end is the expiry, or the
deadline of a live task. It reads all open questions: 33 ms for 10,000 of them."""

FIRST_OPEN = """
 WHERE questions.seq IN (SELECT questions.seq
                           FROM questions INDEXED BY questions_open
                           JOIN tasks ON tasks.seq = questions.task_seq
                          WHERE questions.status = 'OPEN'
                          ORDER BY {order}
                          LIMIT :limit)
 ORDER BY {order}
"""
"""The condition for the first open questions. The index has no others, so what was answered is never visited."""

CLOSE = "UPDATE questions SET status = :status, closed_at = :now WHERE status = 'OPEN' AND"
GIVEN = "(SELECT value FROM json_each(:seqs))"


class QuestionStore:
    """Rows of `questions`. Holds nothing."""

    def ask(
        self,
        tx: Transaction,
        question_id: str,
        task_seq: int,
        wait_seq: int | None,
        asked: NewQuestion,
        expires_at: float | None,
    ) -> None:
        """Open a question. The one that is open about an activity stays, and is from now on that of this wait."""
        tx.run(
            """
            INSERT INTO questions (
                id, task_seq, wait_seq, activity_seq, kind, question, options_json, default_json, by_message,
                form_json, addressee, created_at, expires_at
            ) VALUES (
                :id, :task_seq, :wait_seq, :activity_seq, :kind, :question, :options, :default, :by_message,
                :form, :addressee, :now, :expires_at
            )
            ON CONFLICT (activity_seq) WHERE activity_seq IS NOT NULL AND status = 'OPEN' DO UPDATE
               SET wait_seq   = excluded.wait_seq,
                   expires_at = excluded.expires_at,
                   question   = excluded.question
            """,
            id=question_id,
            task_seq=task_seq,
            wait_seq=wait_seq,
            activity_seq=asked.activity_seq,
            kind=asked.kind,
            question=asked.question,
            options=None if asked.options is None else canonicalize(list(asked.options)),
            default=asked.default_json,
            by_message=int(asked.by_message),
            form=asked.form_json,
            addressee=asked.addressee,
            expires_at=expires_at,
        )

    def answer(self, tx: Transaction, seq: int, answer: str, *, note: str | None, answered_by: str) -> bool:
        """Close a question with an answer. False when it is closed already, and nothing was written."""
        return tx.run_one(
            """
            UPDATE questions
               SET status      = 'ANSWERED',
                   answer      = :answer,
                   note        = :note,
                   answered_by = :by,
                   closed_at   = :now
             WHERE seq = :seq
               AND status = 'OPEN'
            """,
            seq=seq,
            answer=answer,
            note=note,
            by=answered_by,
        )

    def close(self, tx: Transaction, task_seq: int, wait_seq: int, status: QuestionStatus) -> None:
        """Close a question whose wait has ended without an answer. One about an activity stays open."""
        tx.run(
            f"{CLOSE} task_seq = :task_seq AND wait_seq = :wait_seq AND kind <> 'activity'",
            task_seq=task_seq,
            wait_seq=wait_seq,
            status=status,
        )

    def withdraw_all(self, tx: Transaction, task_seqs: Sequence[int], kind: QuestionKind | None = None) -> None:
        """Withdraw the open questions of these tasks (of this kind; None: of any that is the task's own; a question
        about an irreversible action is not)."""
        tx.run(
            f"{CLOSE} task_seq IN {GIVEN} AND coalesce(kind = :kind, kind <> 'activity')",
            status=QuestionStatus.WITHDRAWN,
            seqs=canonicalize(list(task_seqs)),
            kind=kind,
        )

    def withdraw_about(self, tx: Transaction, activity_seqs: Sequence[int]) -> None:
        """Withdraw the open questions about these activities."""
        tx.run(
            f"{CLOSE} activity_seq IN {GIVEN}",
            status=QuestionStatus.WITHDRAWN,
            seqs=canonicalize(list(activity_seqs)),
        )

    def open_question_about(self, tx: Reader, activity_seq: int) -> Question | None:
        """Return the open question about an activity; None when there is none."""
        return _find(tx, "questions.activity_seq = :seq AND questions.status = 'OPEN'", seq=activity_seq)

    def has_open(self, tx: Reader, task_seq: int, kind: QuestionKind) -> bool:
        """Return whether a question of this kind about a task is open."""
        row = tx.fetch_value(
            "SELECT 1 FROM questions WHERE task_seq = :task_seq AND kind = :kind AND status = 'OPEN' LIMIT 1",
            task_seq=task_seq,
            kind=kind,
        )
        return row is not None

    def find_of_wait(self, tx: Reader, task_seq: int, wait_seq: int) -> Question | None:
        """Return the open question a wait belongs to; None when there is none."""
        return _find(
            tx,
            "questions.task_seq = :task_seq AND wait_seq = :wait_seq AND questions.status = 'OPEN'",
            task_seq=task_seq,
            wait_seq=wait_seq,
        )

    def get(self, tx: Reader, question_id: str) -> Question | None:
        """Return the whole row; None when there is none."""
        return _find(tx, "questions.id = :id", id=question_id)

    def open_ones(self, tx: Reader, limit: int) -> list[Question | Damaged]:
        """Return what waits for an answer, asked longest ago first."""
        return read_rows(tx, SELECT + FIRST_OPEN.format(order=OLDEST), question_of, limit=limit)

    def list_urgent(self, tx: Reader, limit: int) -> list[Question | Damaged]:
        """Return what waits for an answer: about an action in doubt first, then by the earliest end."""
        return read_rows(tx, SELECT + FIRST_OPEN.format(order=URGENCY), question_of, limit=limit)

    def newest_open_at(self, tx: Reader) -> float | None:
        """Return when the newest of the open questions was asked; None when there is none."""
        moment: float | None = tx.fetch_value(
            """
            SELECT created_at
              FROM questions
             WHERE seq = (SELECT max(seq) FROM questions INDEXED BY questions_open WHERE status = 'OPEN')
            """
        )
        return moment

    def list_of_task(self, tx: Reader, task_seq: int) -> list[Question]:
        """Return all that was asked by a task or about it, the first first."""
        rows = tx.fetch_all(SELECT + "WHERE questions.task_seq = :seq ORDER BY questions.seq", seq=task_seq)
        return [question_of(row) for row in rows]

    def list_newest_of_task(self, tx: Reader, task_seq: int, limit: int) -> list[Question]:
        """Return the newest questions of a task or about it, the oldest of them first."""
        newest = SELECT + "WHERE questions.task_seq = :seq ORDER BY questions.seq DESC LIMIT :limit"
        return [question_of(row) for row in tx.fetch_all(newest, seq=task_seq, limit=limit)][::-1]

    def ids_of(self, tx: Reader, task_id: str) -> list[str]:
        """Return the ids of all that was asked by a task or about it."""
        rows = tx.fetch_all(
            "SELECT id FROM questions WHERE task_seq = (SELECT seq FROM tasks WHERE id = :id)", id=task_id
        )
        return [row["id"] for row in rows]


def _find(tx: Reader, condition: str, **params: Any) -> Question | None:
    row = tx.fetch_one(f"{SELECT} WHERE {condition}", **params)
    return question_of(row) if row else None


@model_reader
def question_of(row: Row) -> Question:
    """Return the model of a full row. Raises UnreadableRow, or ValueError for text that is not JSON."""
    options = None if row["options_json"] is None else json.loads(row["options_json"])
    if options is not None and not (isinstance(options, list) and all(isinstance(one, str) for one in options)):
        raise UnreadableRow(f"options_json {row['options_json']:.80} is not a list of texts")
    if row["form_json"] is not None:
        check_form(row["form_json"])
    text, is_about_activity = row["question"], row["activity_seq"] is not None
    asked = question_asked(text, is_about_activity=is_about_activity)
    # only the row of the activity holds its arguments
    arguments = f" Its arguments: {_shorten_arguments(row['request_json'])}" if is_about_activity else ""
    return model_of(
        Question,
        row,
        question=f"{asked}{arguments}{text[len(asked) :]}",
        asked=asked,
        options=None if options is None else tuple(options),
    )


def _shorten_arguments(request_json: str | None) -> str:
    request = request_json or "arguments that are not kept"
    return request if len(request) <= REQUEST_SHOWN else request[:REQUEST_SHOWN] + "…"
