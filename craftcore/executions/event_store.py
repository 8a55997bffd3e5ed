"""The only SQL of the events of records: the two texts in the row of a record, and the rows between them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from craftcore.executions.chain.seal import Event, Stream, events_of
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import BulkStatement, Reader, Row, Transaction

FIRST_EVENTS = """
SELECT seq, first_events, CASE WHEN json_valid('[' || first_events || ']')
                               THEN json_array_length('[' || first_events || ']') END
  FROM executions
 WHERE seq IN (SELECT value FROM json_each(?1))
   AND first_events IS NOT NULL
"""

EVENT_ROWS = """
SELECT execution_seq, seq, type, at, payload_json, task_seq, turn, memo, activity_seq
  FROM event_rows
 WHERE execution_seq IN (SELECT value FROM json_each(?1))
 ORDER BY execution_seq, seq
"""

NEWEST_NUMBERS = """
SELECT value,
       coalesce(
           (SELECT max(seq) FROM event_rows WHERE execution_seq = value),
           (SELECT CASE WHEN json_valid('[' || first_events || ']')
                        THEN json_array_length('[' || first_events || ']') END
              FROM executions
             WHERE seq = value),
           0
       )
  FROM json_each(?1)
"""

OF_RECORD = """
SELECT seq, type, at, payload_json, task_seq, turn, memo, activity_seq
  FROM event_rows
 WHERE execution_seq = ?1
"""
BETWEEN = f"{OF_RECORD} ORDER BY seq"
BEFORE = f"{OF_RECORD} AND seq < ?2 ORDER BY seq DESC LIMIT ?3"

TEXTS = "SELECT seq, first_events, last_events FROM executions WHERE id = ?1"

ADD_EVENT = BulkStatement("INSERT INTO event_rows (execution_seq, seq, type, at, payload_json) VALUES {rows}", width=5)

AS_EVENT: Callable[[Iterable[Any]], Event] = partial(tuple.__new__, Event)
"""The event of a row that has all its columns, without a Python call: a record has up to ten thousand."""

EventRow = tuple[int, int, str, float, str]
"""An event in the order of the columns: execution_seq, seq, type, at, payload_json."""


class EventStore:
    """Events of records. Holds nothing."""

    def add_all(self, tx: Transaction, events: Sequence[EventRow]) -> None:
        """Append rows to the streams of open records."""
        tx.execute_many(ADD_EVENT, events)

    def newest_numbers(self, tx: Reader, seqs: Sequence[int]) -> dict[int, int]:
        """Return the number of the newest event of each of these open records."""
        return dict(tx.fetch_tuples(NEWEST_NUMBERS, (canonicalize(list(seqs)),)))

    def streams(self, tx: Reader, seqs: Sequence[int]) -> dict[int, Stream]:
        """Return the streams of these open records as they are, by seq. One that has no event yet is missing. Raises
        ValueError when a text is damaged."""
        wanted = (canonicalize(list(seqs)),)
        streams: dict[int, Stream] = {}
        for seq, text, count in tx.fetch_tuples(FIRST_EVENTS, wanted):
            if not count:
                raise ValueError(f"the first events of record {seq} are damaged")
            streams[seq] = Stream(f"[{text}", count)
        for seq, *event in tx.fetch_tuples(EVENT_ROWS, wanted):
            stream = streams.get(seq)
            if stream is None:
                stream = streams[seq] = Stream()
            stream.add(Event._make(event))
        return streams

    def whole(self, tx: Reader, execution_seq: int, first: str | None, last: str | None) -> tuple[Event, ...]:
        """Return the stream of one record, whose row has these texts."""
        between = map(AS_EVENT, tx.fetch_tuples(BETWEEN, (execution_seq,)))
        return (*events_of(first or ""), *between, *events_of(last or ""))

    def list_before(self, tx: Reader, execution_id: str, before: int, limit: int) -> list[Event] | None:
        """Return the newest events of a record with a number below `before`, the oldest first; None when there is no
        such record. The cost does not grow with the events of the record."""
        for seq, first, last in tx.fetch_tuples(TEXTS, (execution_id,)):
            between = list(map(AS_EVENT, tx.fetch_tuples(BEFORE, (seq, before, limit))))[::-1]
            found = [*events_of(first or ""), *between, *events_of(last or "")]
            return [event for event in found if event.seq < before][-limit:]
        return None

    def list_of_record(self, tx: Reader, execution_seq: int) -> list[Row]:
        return tx.fetch_all(
            "SELECT seq, type, at, payload_json FROM events WHERE execution_seq = :seq ORDER BY seq", seq=execution_seq
        )
