"""The only SQL of a delivered message as its emitter knows it: where it is, and its reply."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader, Transaction

FIND = """
SELECT mailbox.seq, mailbox.task_seq, mailbox.status, waits.turn, mailbox.reply_json, mailbox.unanswered
  FROM mailbox
  LEFT JOIN waits ON waits.seq = mailbox.wait_seq
 WHERE mailbox.trigger_id = :id
 ORDER BY mailbox.seq DESC
 LIMIT 1
"""

NEWEST = """
WITH RECURSIVE copies (id) AS (
    VALUES (:id)
    UNION
    SELECT mailbox.emitted_as
      FROM copies
      JOIN mailbox ON mailbox.trigger_id = copies.id
     WHERE mailbox.emitted_as IS NOT NULL
)
SELECT id FROM copies
"""
"""A task that ends leaves what it did not read to others: each is emitted again, by another id."""

OF_WAITS = "wait_seq IN (SELECT value FROM json_each(:waits)) AND reply_json IS NULL"
ANSWER = f"UPDATE mailbox SET reply_json = :reply WHERE {OF_WAITS}"  # noqa: S608 - static
GIVE_UP = f"UPDATE mailbox SET unanswered = :why WHERE {OF_WAITS}"  # noqa: S608 - static


class Message(NamedTuple):
    """A trigger in the mailbox of a task. `turn`: the one that received it; None: none has. `unanswered`: why no reply
    comes; None: one may."""

    seq: int
    task_seq: int
    status: str
    turn: int | None
    reply_json: str | None
    unanswered: str | None


class MessageStore:
    """Messages and replies. Holds nothing."""

    def newest_id(self, tx: Reader, trigger_id: str) -> str:
        """Return the id by which a message goes on, once its task has ended without it; else its own."""
        *_, row = tx.fetch_all(NEWEST, id=trigger_id)
        newest: str = row["id"]
        return newest

    def find(self, tx: Reader, trigger_id: str) -> Message | None:
        """Return the message that this trigger is; None when it was delivered to no task, or is not kept."""
        row = tx.fetch_one(FIND, id=trigger_id)
        return None if row is None else Message(**row)

    def reply(self, tx: Transaction, task_seq: int, turn: int, wait_seqs: Sequence[int], reply_json: str) -> int:
        """Answer what a turn has received by these waits and has not answered. The first turn answers the trigger that
        created its task, too. Return how many it were."""
        count = 0
        if turn == 1:
            first = "UPDATE tasks SET reply_json = :reply WHERE seq = :seq AND reply_json IS NULL"
            count = tx.run(first, reply=reply_json, seq=task_seq)
        return count + tx.run(ANSWER, reply=reply_json, waits=canonicalize(list(wait_seqs)))

    def give_up(self, tx: Transaction, wait_seqs: Sequence[int], why: str) -> None:
        """Note that what was received by these waits gets no reply any more."""
        tx.run(GIVE_UP, why=why, waits=canonicalize(list(wait_seqs)))

    def withdraw(self, tx: Transaction, seq: int, why: str) -> bool:
        """Take back a message that no turn has received. False: one has, and nothing was written."""
        return tx.run_one(
            "UPDATE mailbox SET status = 'LEFT', unanswered = :why WHERE seq = :seq AND status = 'UNREAD'",
            seq=seq,
            why=why,
        )
