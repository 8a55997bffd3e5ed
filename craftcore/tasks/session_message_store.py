"""The only SQL of `session_messages`: what was said in a session, in order.

A message begins a unit, or continues that of the message before it. A window and what is kept begin with a unit.
"""

from __future__ import annotations

from collections.abc import Sequence

from craftcore.storage.damaged_rows import Damaged, read_rows
from craftcore.storage.transaction import BulkStatement, Reader, Transaction
from craftcore.tasks.session_message import NewMessage, StoredMessage, Window

ADD = BulkStatement(
    """
    INSERT INTO session_messages
           (session_id, number, begins, group_key, task_id, turn, message_json, created_at)
    VALUES {rows}
    """,
    width=8,
)

COLUMNS = ", ".join(StoredMessage._fields)

NEWEST = "SELECT coalesce(max(number), 0) FROM session_messages WHERE session_id = :session_id"

UNIT_BEGIN = """
SELECT number
  FROM session_messages
 WHERE session_id = :session_id
   AND number <= :number
   AND begins
 ORDER BY number DESC
 LIMIT 1
"""
"""The unit that a message belongs to."""

UNIT_FROM = """
SELECT number
  FROM session_messages
 WHERE session_id = :session_id
   AND number BETWEEN :first AND :last
   AND begins
 ORDER BY number
 LIMIT 1
"""
"""The first unit that begins between two messages."""

LIST = f"""
SELECT {COLUMNS}
  FROM session_messages
 WHERE session_id = :session_id
   AND number > :after
   AND (:before IS NULL OR number < :before)
   AND json_valid(message_json)
 ORDER BY number DESC
 LIMIT :limit
"""  # noqa: S608 - the columns of the model

TRIMMED_MAX = 1_000
"""Messages that one turn removes at most, where the limit of a session was lowered by many."""


class SessionMessageStore:
    """Rows of `session_messages`. Holds nothing."""

    def append_all(
        self,
        tx: Transaction,
        session_id: str,
        task_id: str,
        turn: int,
        messages: Sequence[NewMessage],
        *,
        kept: int,
    ) -> None:
        """Append messages to a session, and remove its oldest units beyond the newest `kept` messages."""
        newest: int = tx.fetch_value(NEWEST, session_id=session_id)
        begins, joined = self._join(tx, session_id, messages, newest)
        if joined is not None:
            tx.run(
                "UPDATE session_messages SET begins = 0 WHERE session_id = :session_id AND number > :joined AND begins",
                session_id=session_id,
                joined=joined,
            )
        rows = [
            (session_id, number, int(is_first), new.group, task_id, turn, new.message_json, tx.now)
            for number, (new, is_first) in enumerate(zip(messages, begins, strict=True), newest + 1)
        ]
        tx.execute_many(ADD, rows)
        if (most := newest + len(rows) - kept) > 0:
            self._trim(tx, session_id, most)

    def read_window(self, tx: Reader, session_id: str, limit: int, own: Sequence[NewMessage]) -> Window:
        """Return the newest messages, at most `limit` with those that the turn has appended itself: whole units, and
        the newest one in any case."""
        newest: int = tx.fetch_value(NEWEST, session_id=session_id)
        begins, joined = self._join(tx, session_id, own, newest)
        lowest = newest + len(own) - limit + 1
        free = newest if joined is None else joined
        units = [number for number, is_first in enumerate(begins, newest + 1) if is_first]
        start = (
            self._find_unit_from(tx, session_id, max(lowest, 1), free)
            or next((unit for unit in units if unit >= lowest), None)
            or max(units, default=None)
            or self._find_unit(tx, session_id, free)
            or 1
        )
        stored = self.list_between(tx, session_id, start, newest) if start <= newest else []
        return Window(stored, newest + len(own) - max(start, newest + 1) + 1)

    def list_between(self, tx: Reader, session_id: str, first: int, last: int) -> list[StoredMessage]:
        """Return the messages with these numbers, in their order. Damaged ones are left out."""
        rows = tx.fetch_tuples(
            f"""
            SELECT {COLUMNS}
              FROM session_messages
             WHERE session_id = ?1
               AND number BETWEEN ?2 AND ?3
               AND json_valid(message_json)
             ORDER BY number
            """,  # noqa: S608 - the columns of the model
            (session_id, first, last),
        )
        return [StoredMessage._make(row) for row in rows]

    def list_newest(
        self, tx: Reader, session_id: str, limit: int, after: int, before: int | None
    ) -> list[StoredMessage | Damaged]:
        """Return the newest messages with numbers between these two, at most `limit`, the oldest of them first. None:
        up to the newest one."""
        found = read_rows(
            tx,
            LIST,
            lambda row: StoredMessage(**row),
            key="number",
            session_id=session_id,
            limit=limit,
            after=after,
            before=before,
        )
        return found[::-1]

    def remove_all(self, tx: Transaction, session_id: str) -> int:
        """Remove the messages of a session. Return their number."""
        return tx.run("DELETE FROM session_messages WHERE session_id = :session_id", session_id=session_id)

    def _join(
        self, tx: Reader, session_id: str, messages: Sequence[NewMessage], newest: int
    ) -> tuple[list[bool], int | None]:
        """Return which of these new messages begin a unit, and the stored message after which none does any more,
        because a new one joins its group; None: there is none."""
        begins = [message.begins for message in messages]
        joined: int | None = None
        seen: dict[str, int] = {}
        for place, message in enumerate(messages):
            if message.group is None:
                continue
            if (first := seen.get(message.group)) is not None:
                begins[first + 1 : place + 1] = [False] * (place - first)
                seen[message.group] = place
                continue
            seen[message.group] = place
            partner = self._find_newest_of_group(tx, session_id, message.group)
            if partner is not None:
                begins[: place + 1] = [False] * (place + 1)
                joined = partner if joined is None else min(joined, partner)
        if newest == 0 and begins:
            begins[0] = True
        return begins, joined

    def _find_newest_of_group(self, tx: Reader, session_id: str, group: str) -> int | None:
        partner: int | None = tx.fetch_value(
            "SELECT max(number) FROM session_messages WHERE session_id = :session_id AND group_key = :group_key",
            session_id=session_id,
            group_key=group,
        )
        return partner

    def _find_unit_from(self, tx: Reader, session_id: str, first: int, last: int) -> int | None:
        unit: int | None = tx.fetch_value(UNIT_FROM, session_id=session_id, first=first, last=last)
        return unit

    def _find_unit(self, tx: Reader, session_id: str, number: int) -> int | None:
        unit: int | None = tx.fetch_value(UNIT_BEGIN, session_id=session_id, number=number)
        return unit

    def _trim(self, tx: Transaction, session_id: str, most: int) -> None:
        """Remove whole units whose numbers are up to `most`."""
        unit = self._find_unit(tx, session_id, most + 1)
        if unit is not None:
            tx.run(
                """
                DELETE FROM session_messages
                 WHERE seq IN (SELECT seq
                                 FROM session_messages
                                WHERE session_id = :session_id
                                  AND number < :unit
                                ORDER BY number
                                LIMIT :most)
                """,
                session_id=session_id,
                unit=unit,
                most=TRIMMED_MAX,
            )
