"""The only SQL of the mailbox: what was sent to a task, in the order it came, also before its first turn."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader, Row, Transaction

UNREAD = "SELECT seq, task_seq, event, payload_json, trigger_id, sent_by FROM mailbox WHERE status = 'UNREAD' AND"


class Mail(NamedTuple):
    """A message or signal that was not read yet. `trigger_id` is the message's; None: it was a signal."""

    seq: int
    task_seq: int
    event: str
    payload_json: str
    trigger_id: str | None
    sent_by: str | None


class MailStore:
    """Rows of `mailbox`. Holds nothing."""

    def put(
        self,
        tx: Transaction,
        task_seq: int,
        event: str,
        payload_json: str,
        *,
        trigger_id: str | None,
        sent_by: str | None,
    ) -> Mail:
        """Leave a mail for a task."""
        seq: int = tx.fetch_value(
            """
            INSERT INTO mailbox (task_seq, event, payload_json, trigger_id, sent_by, created_at)
            VALUES (:task_seq, :event, :payload, :trigger_id, :sent_by, :now)
            RETURNING seq
            """,
            task_seq=task_seq,
            event=event,
            payload=payload_json,
            trigger_id=trigger_id,
            sent_by=sent_by,
            now=tx.now,
        )
        return Mail(seq, task_seq, event, payload_json, trigger_id, sent_by)

    def list_unread_of(self, tx: Reader, task_seq: int, event: str) -> Iterator[Mail]:
        """Return those of that event that were not read, oldest first; what is not taken is not visited."""
        return map(
            Mail._make, tx.fetch_tuples(f"{UNREAD} task_seq = ?1 AND event = ?2 ORDER BY seq", (task_seq, event))
        )

    def is_of_person(self, tx: Reader, mail: Mail) -> bool:
        """Return whether it can answer a question: a signal, or a trigger of source MESSAGE. A schedule cannot."""
        if mail.trigger_id is None:
            return True
        return bool(tx.fetch_value("SELECT source = 'MESSAGE' FROM triggers WHERE id = :id", id=mail.trigger_id))

    def read(self, tx: Transaction, mail: Mail, wait_seq: int) -> None:
        """Note that this message resolved that wait."""
        tx.run(
            "UPDATE mailbox SET status = 'READ', wait_seq = :wait_seq WHERE seq = :seq AND status = 'UNREAD'",
            seq=mail.seq,
            wait_seq=wait_seq,
        )

    def list_left_by(self, tx: Reader, task_seqs: Sequence[int]) -> list[Mail]:
        """Return what these tasks did not read, oldest first."""
        given = "(SELECT value FROM json_each(?1))"
        rows = tx.fetch_tuples(f"{UNREAD} task_seq IN {given} ORDER BY seq", (canonicalize(list(task_seqs)),))
        return [Mail._make(row) for row in rows]

    def leave(self, tx: Transaction, mail: Mail, emitted_as: str | None) -> None:
        """Note that the task of a message has ended: it was EMITTED again, by that id, or LEFT unread."""
        tx.run(
            """
            UPDATE mailbox
               SET status     = iif(:new_id IS NULL, 'LEFT', 'EMITTED'),
                   emitted_as = :new_id
             WHERE seq = :seq
               AND status = 'UNREAD'
            """,
            seq=mail.seq,
            new_id=emitted_as,
        )

    def leave_all(self, tx: Transaction) -> int:
        """Move messages from UNREAD to LEFT for every task, so that none is emitted again. Return their number."""
        return tx.run("UPDATE mailbox SET status = 'LEFT' WHERE status = 'UNREAD'")

    def give_back(self, tx: Transaction, task_seq: int) -> int:
        """Move messages from LEFT to UNREAD for a task that lives again. Return their number.

        A message stays LEFT while its trigger is there: it was set aside as a dead letter, to be requeued. One that was
        withdrawn, and a mail whose payload is not JSON any more, stay LEFT, too.
        """
        return tx.run(
            """
            UPDATE mailbox
               SET status = 'UNREAD'
             WHERE task_seq = :task_seq
               AND status = 'LEFT'
               AND unanswered IS NULL
               AND json_valid(payload_json)
               AND NOT EXISTS (SELECT 1 FROM triggers WHERE triggers.id = mailbox.trigger_id)
            """,
            task_seq=task_seq,
        )

    def count_unread(self, tx: Reader, task_seq: int, limit: int) -> int:
        """Return how many messages of a task are unread, counted no further than `limit`."""
        unread = "SELECT 1 FROM mailbox WHERE task_seq = :seq AND status = 'UNREAD' LIMIT :limit"
        return int(tx.fetch_value(f"SELECT count(*) FROM ({unread})", seq=task_seq, limit=limit))  # noqa: S608 - static

    def list_unread(self, tx: Reader, task_seq: int, limit: int) -> list[Row]:
        """Return the unread messages, oldest first, as people see them."""
        return tx.fetch_all(
            """
            SELECT event, payload_json, trigger_id, sent_by, created_at
              FROM mailbox
             WHERE task_seq = :seq
               AND status = 'UNREAD'
             ORDER BY seq
             LIMIT :limit
            """,
            seq=task_seq,
            limit=limit,
        )


class EarlyMailStore:
    """Rows of `early_mail`: signals to a task whose first turn has not begun. Holds nothing."""

    def put(self, tx: Transaction, trigger_id: str, event: str, payload_json: str, sent_by: str | None) -> None:
        """Keep a signal for the task that this trigger will create."""
        tx.run(
            """
            INSERT INTO early_mail (trigger_id, event, payload_json, sent_by, created_at)
            VALUES (:trigger_id, :event, :payload, :sent_by, :now)
            """,
            trigger_id=trigger_id,
            event=event,
            payload=payload_json,
            sent_by=sent_by,
        )

    def count(self, tx: Reader, trigger_id: str) -> int:
        """Return how many signals are kept for this trigger."""
        return int(tx.fetch_value("SELECT count(*) FROM early_mail WHERE trigger_id = :id", id=trigger_id))

    def deliver(self, tx: Transaction, tasks: Sequence[tuple[int, str]]) -> None:
        """Put what is kept into the mailboxes of these new tasks (seq, id), in the order in which it came."""
        ids = canonicalize({task_id: seq for seq, task_id in tasks})
        tx.run(
            """
            INSERT INTO mailbox (task_seq, event, payload_json, sent_by, created_at)
            SELECT new.value, event, payload_json, sent_by, created_at
              FROM json_each(:ids) AS new
              JOIN early_mail ON early_mail.trigger_id = new.key
             ORDER BY early_mail.seq
            """,
            ids=ids,
        )
        tx.run("DELETE FROM early_mail WHERE trigger_id IN (SELECT key FROM json_each(:ids))", ids=ids)
