"""The only SQL of `notices` and `notice_kinds`, and of what a notice is about."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from craftcore.notifications.model import NotificationKind
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.facts import get_fact, set_fact
from craftcore.storage.transaction import Reader, Row, Transaction

SEEN = "notices_seen"
"""The fact that holds the number of the newest notice that was handled."""

NEW = "SELECT seq, kind, subject, at FROM notices WHERE seq > :seen ORDER BY seq LIMIT :limit"

QUESTION = """
SELECT questions.id, questions.question, questions.options_json, questions.status, tasks.workflow, tasks.schedule_id,
       tasks.id AS task_id
  FROM questions
  JOIN tasks ON tasks.seq = questions.task_seq
 WHERE questions.id = :id
"""

TRIGGER = """
SELECT triggers.id, coalesce(tasks.workflow, triggers.workflow) AS workflow, triggers.status, triggers.attempts,
       triggers.reason, triggers.error_code, triggers.error_message,
       coalesce(tasks.schedule_id, triggers.schedule_id) AS schedule_id,
       coalesce(triggers.task_id, triggers.id) AS task_id
  FROM triggers
  LEFT JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
 WHERE triggers.id = :id
"""

CREATORS = """
WITH RECURSIVE line (id, parent_id) AS (
    SELECT :id, (SELECT parent_id FROM tasks WHERE id = :id)
     UNION
    SELECT tasks.id, tasks.parent_id
      FROM line
      JOIN tasks ON tasks.id = line.parent_id
)
SELECT triggers.dedup_key
  FROM line
  JOIN triggers ON triggers.id = line.id
 WHERE triggers.dedup_key GLOB :prefix || '*'
"""
"""The task and those whose child it is, by the triggers that created them."""

OCCURRENCE = """
SELECT schedules.id, schedules.id AS schedule_id, schedules.workflow, schedule_occurrences.count,
       schedule_occurrences.reason, schedule_occurrences.nominal_at, schedule_occurrences.last_at
  FROM schedule_occurrences
  JOIN schedules ON schedules.id = schedule_occurrences.schedule_id
 WHERE schedule_occurrences.seq = CAST(:id AS INTEGER)
"""


class Notice(NamedTuple):
    """A noted event. `subject`: the id of what it is about, or the text itself."""

    seq: int
    kind: NotificationKind
    subject: str
    at: float


class NoticeStore:
    """Notices. Holds nothing; every method runs on the transaction it is given."""

    def declare_kinds(self, tx: Transaction, kinds: Collection[str]) -> None:
        """Note events of these kinds from now on, and of no other. Without a kind nothing is left to be notified of."""
        names = canonicalize(sorted(kinds))
        tx.run("DELETE FROM notice_kinds WHERE kind NOT IN (SELECT value FROM json_each(:kinds))", kinds=names)
        tx.run("INSERT OR IGNORE INTO notice_kinds (kind) SELECT value FROM json_each(:kinds)", kinds=names)
        if not kinds:
            self.close_all(tx)

    def add(self, tx: Transaction, kind: str, subject: str) -> None:
        """Note an event that no row of the database shows."""
        tx.run("INSERT INTO notices (kind, subject, at) VALUES (:kind, :subject, :now)", kind=kind, subject=subject)

    def list_new(self, tx: Reader, limit: int) -> list[Notice]:
        """Return the notices that were not handled, oldest first."""
        return [Notice(**row) for row in tx.fetch_all(NEW, seen=int(get_fact(tx, SEEN) or 0), limit=limit)]

    def close_all(self, tx: Transaction) -> None:
        """Note that all are handled."""
        newest = tx.fetch_value("SELECT max(seq) FROM notices")
        if newest is not None:
            self.close_until(tx, newest)

    def close_until(self, tx: Transaction, seq: int) -> None:
        """Note that all up to this one are handled. The newest row stays for its number."""
        set_fact(tx, SEEN, str(seq))
        tx.run("DELETE FROM notices WHERE seq < :seq", seq=seq)

    def question(self, tx: Reader, id: str) -> Row | None:
        return tx.fetch_one(QUESTION, id=id)

    def trigger(self, tx: Reader, id: str) -> Row | None:
        return tx.fetch_one(TRIGGER, id=id)

    def list_creator_keys(self, tx: Reader, task_id: str, prefix: str) -> list[str]:
        """Return the dedup keys that begin so, of the triggers that created the task and those whose child it is."""
        return [row["dedup_key"] for row in tx.fetch_all(CREATORS, id=task_id, prefix=prefix)]

    def occurrence(self, tx: Reader, seq: str) -> Row | None:
        """Return a run of occurrences with its schedule."""
        return tx.fetch_one(OCCURRENCE, id=seq)
