"""The only SQL of early mail: signals to a task whose first turn has not begun."""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader, Transaction


class EarlyMailStore:
    """Rows of `early_mail`. Holds nothing; every method runs on the transaction it is given."""

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
        count: int = tx.fetch_value("SELECT count(*) FROM early_mail WHERE trigger_id = :id", id=trigger_id)
        return count

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
