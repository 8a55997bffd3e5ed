"""The only SQL of what a turn has completed, and of a task's stream: events of its records."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple, cast

from craftcore.executions.chain.seal import DAMAGED, events_of
from craftcore.executions.model import EventType
from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import BulkStatement, Reader, Transaction
from craftcore.tasks.model import Resume
from craftcore.triggers.claim_store import HELD

NEWEST_RECORDS = """
SELECT id, turn, seq, first_events, last_events
  FROM executions
 WHERE task_id = ?1
   AND task_id IS NOT NULL
 ORDER BY seq DESC
"""

NEWEST_ROWS = """
SELECT seq, type, at, payload_json
  FROM event_rows
 WHERE execution_seq = ?1
 ORDER BY seq DESC
 LIMIT ?2
"""

TURN = """
SELECT memo, payload_json
  FROM event_rows
 WHERE task_seq = ?1
   AND turn = ?2
   AND memo IS NOT NULL
 UNION ALL
SELECT NULL, json_group_array(json_array(hex(name), hex(part)))
  FROM (SELECT DISTINCT name, coalesce(part, '') AS part
          FROM turn_streams
          LEFT JOIN stream_chunks ON stream_seq = turn_streams.seq AND cut_json IS NULL
         WHERE task_seq = ?1
           AND turn = ?2)
HAVING count(*)
"""

CONTINUES_ATTEMPT = (Resume.CRASH, Resume.RESUME)
"""The reasons of an entry that goes on with the attempt before it, which ended with its process."""

ATTEMPT_START = f"""
SELECT coalesce(max(CASE WHEN NOT goes_on THEN seq END), min(seq))
  FROM (SELECT seq,
               EXISTS (SELECT 1
                         FROM events
                        WHERE events.execution_seq = executions.seq
                          AND events.type = '{EventType.TURN_ENTERED}'
                          AND CASE WHEN json_valid(events.payload_json)
                                   THEN json_extract(events.payload_json, '$.resume')
                               END IN ('{"', '".join(CONTINUES_ATTEMPT)}')) AS goes_on
          FROM executions
         WHERE id >= 'exec-' || :trigger_id || '.'
           AND id < 'exec-' || :trigger_id || '/')
"""  # noqa: S608 - words of the models

SIZE_MAX = 4_000_000
"""Characters of payloads. Once the events of one look at a stream have as many, no more are read."""

FAILURE_MARK = "!"
"""A character of the identities of failed tries, and of no other: STEP!RECORD.NUMBER."""


class NewEvent(NamedTuple):
    """An event of a running turn. `memo` None: nothing that a re-entry needs to find. `activity_seq`: of the activity
    that it is about.

    `trigger_seq` and `lease_token` prove that the turn is still the one that holds its trigger.
    """

    trigger_seq: int
    lease_token: str
    execution_seq: int
    task_seq: int
    turn: int
    type: str
    payload_json: str
    memo: str | None
    activity_seq: int | None = None


_STORED = NewEvent._fields[NewEvent._fields.index("execution_seq") :]

ADD = BulkStatement(
    f"INSERT INTO event_rows (seq, at, {', '.join(_STORED)}) VALUES {{rows}}",  # noqa: S608 - the columns of the model
    width=len(_STORED) + 2,
)


class StreamRow(NamedTuple):
    """One event of a task's stream, over all its attempts."""

    execution_id: str
    turn: int | None
    seq: int
    type: str
    at: float
    payload_json: str


class NewestEvents(NamedTuple):
    """The end of a task's stream, the oldest event first. `has_more`: there are older ones."""

    rows: list[StreamRow]
    has_more: bool


class MemoStore:
    """Events of tasks. Holds nothing."""

    def held_leases(self, tx: Reader, leases: Sequence[tuple[int, str]]) -> set[tuple[int, str]]:
        """Return the leases (trigger seq, token) among these that are still held."""
        seqs = sorted({seq for seq, _ in leases})
        return {(seq, token) for seq, token in tx.fetch_tuples(HELD, (canonicalize(seqs),))} & set(leases)

    def add_all(self, tx: Transaction, numbered: Sequence[tuple[int, NewEvent]]) -> None:
        """Append events with the numbers they have in their records."""
        tx.execute_many(ADD, [(number, tx.now, *new[-len(_STORED) :]) for number, new in numbered])

    def read_turn(self, tx: Reader, task_seq: int, turn: int) -> tuple[dict[str, str], dict[str, frozenset[str]]]:
        """Return what this turn completed, and the failed tries of its steps: memo -> the event's text. And its
        streams, with the parts that wrote each."""
        memo: dict[str | None, str] = dict(tx.fetch_tuples(TURN, (task_seq, turn)))
        streams: dict[str, frozenset[str]] = {}
        if None in memo:
            for name, part in (map(_text_of, row) for row in json.loads(memo.pop(None))):
                streams[name] = streams.get(name, frozenset()) | {part}
        return cast("dict[str, str]", memo), streams

    def list_steps_of_turn(self, tx: Reader, task_seq: int, turn: int) -> list[str]:
        """Return the identities of the steps that this turn completed, in their order; those of failed tries are left
        out."""
        rows = tx.fetch_tuples(
            """
            SELECT memo
              FROM event_rows
             WHERE task_seq = ?1
               AND turn = ?2
               AND memo >= 'step:'
               AND memo < 'step;'
               AND type = 'STEP_COMPLETED'
             ORDER BY execution_seq, seq
            """,
            (task_seq, turn),
        )
        return [memo for (memo,) in rows]

    def find_attempt_start(self, tx: Reader, trigger_id: str) -> int:
        """Return the record in which the attempt of a trigger began: the last one that did not go on after a crash or a
        shutdown, else its first."""
        return int(tx.fetch_value(ATTEMPT_START, trigger_id=trigger_id))

    def stream(self, tx: Reader, task_id: str, limit: int) -> list[StreamRow]:
        """Return the newest events of a task, oldest of them first."""
        rows = tx.fetch_tuples(
            """
            SELECT executions.id, executions.turn, events.seq, type, at, payload_json
              FROM executions
              JOIN events ON events.execution_seq = executions.seq
             WHERE task_id = ?1
               AND task_id IS NOT NULL
             ORDER BY executions.seq DESC, events.seq DESC
             LIMIT ?2
            """,
            (task_id, limit),
        )
        return [StreamRow._make(row) for row in rows][::-1]

    def list_newest(self, tx: Reader, task_id: str, limit: int) -> NewestEvents:
        """Return the same as `stream`, at a cost that does not grow with the events of a record: fewer than `limit`
        where their payloads have SIZE_MAX characters. Events of a text that is not as it was written are missing."""
        found: list[StreamRow] = []
        size = 0
        for row in self._walk_back(tx, task_id, limit + 1):
            if len(found) == limit or size >= SIZE_MAX:
                return NewestEvents(found[::-1], has_more=True)
            found.append(row)
            size += len(row.payload_json)
        return NewestEvents(found[::-1], has_more=False)

    def _walk_back(self, tx: Reader, task_id: str, limit: int) -> Iterator[StreamRow]:
        for id, turn, execution_seq, first, last in tx.fetch_tuples(NEWEST_RECORDS, (task_id,)):
            rows = tx.fetch_tuples(NEWEST_ROWS, (execution_seq, limit))
            for event in chain(_events_backwards(last), rows, _events_backwards(first)):
                yield StreamRow(id, turn, *event)


def _text_of(hexadecimal: str) -> str:
    return bytes.fromhex(hexadecimal).decode(errors="backslashreplace")


def split_failures(memo: Mapping[str, str], since: float) -> tuple[dict[str, str], dict[str, int]]:
    """Return what a turn completed, and how often each of its steps has failed in the records from `since` on, by its
    identity."""
    completed: dict[str, str] = {}
    failures: Counter[str] = Counter()
    for name, text in memo.items():
        step, mark, place = name.partition(FAILURE_MARK)
        if not mark:
            completed[name] = text
        elif int(place.partition(".")[0]) >= since:
            failures[step] += 1
    return completed, dict(failures)


def _events_backwards(text: str | None) -> list[tuple[Any, ...]]:
    """Return the events of a text, the newest first: number, type, moment and payload."""
    return [event[:4] for event in events_of(text or "") if event.type != DAMAGED][::-1]
