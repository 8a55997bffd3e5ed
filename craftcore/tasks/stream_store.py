"""The only SQL of streams and their chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from craftcore.errors import DatabaseInvalid
from craftcore.serialization.canonical import canonicalize, canonicalize_tree
from craftcore.storage.transaction import BulkStatement, Reader, Transaction
from craftcore.tasks.stream_chunks import Cut, KeptChunks, OpenStream, StreamChunk, StreamSummary, Written

OPEN = """
INSERT INTO turn_streams (task_seq, turn, name, after, created_at)
SELECT :task_seq,
       :turn,
       :name,
       coalesce((SELECT coalesce((SELECT max(last) FROM stream_chunks WHERE stream_seq = earlier.seq), after)
                   FROM turn_streams AS earlier
                  WHERE task_seq = :task_seq
                    AND name = :name
                  ORDER BY turn DESC
                  LIMIT 1),
                0),
       :now
 WHERE NOT EXISTS (SELECT 1 FROM turn_streams WHERE task_seq = :task_seq AND turn = :turn AND name = :name)
"""

OF_TURN = "SELECT seq, after FROM turn_streams WHERE task_seq = ?1 AND turn = ?2 AND name = ?3"

KEPT = """
SELECT first, last, CAST(part AS BLOB), CAST(texts_json AS BLOB), cut_json IS NOT NULL
  FROM stream_chunks
 WHERE stream_seq = ?1
 ORDER BY last
"""

ADD = BulkStatement(
    "INSERT INTO stream_chunks (stream_seq, first, last, part, texts_json, cut_json, at) VALUES {rows}", width=7
)

OF_PART = """
SELECT first, last, CAST(texts_json AS BLOB)
  FROM stream_chunks
 WHERE stream_seq = ?1
   AND last > ?2
   AND CAST(part AS BLOB) = CAST(?3 AS BLOB)
   AND cut_json IS NULL
 ORDER BY last
"""

NEXT = """
SELECT turn, first, last, CAST(texts_json AS BLOB), CAST(cut_json AS BLOB)
  FROM turn_streams
  JOIN stream_chunks ON stream_seq = turn_streams.seq
 WHERE task_seq = (SELECT seq FROM tasks WHERE id = ?1)
   AND name = ?2
   AND turn >= coalesce((SELECT turn
                           FROM turn_streams
                          WHERE task_seq = (SELECT seq FROM tasks WHERE id = ?1)
                            AND name = ?2
                            AND after <= ?3
                          ORDER BY turn DESC
                          LIMIT 1),
                        0)
   AND last > ?3
   AND (?4 IS NULL OR turn = ?4)
 ORDER BY turn, last
 LIMIT ?5
"""
"""The rows after a number. The turns before the one that has it are passed over, however many there are."""

LIST = """
SELECT CAST(name AS BLOB),
       turn,
       (SELECT coalesce(sum(CASE WHEN cut_json IS NULL THEN last - first + 1 ELSE 0 END), 0)
          FROM stream_chunks
         WHERE stream_seq = turn_streams.seq),
       coalesce((SELECT max(last) FROM stream_chunks WHERE stream_seq = turn_streams.seq), 0)
  FROM turn_streams
 WHERE task_seq = (SELECT seq FROM tasks WHERE id = ?1)
 ORDER BY turn DESC, seq DESC
 LIMIT ?2
"""

TEXTS = """
SELECT CAST(texts_json AS BLOB)
  FROM turn_streams
  JOIN stream_chunks ON stream_seq = turn_streams.seq
 WHERE task_seq = (SELECT seq FROM tasks WHERE id = ?1)
   AND name = ?2
   AND turn = ?3
   AND cut_json IS NULL
 ORDER BY last
"""

NAMES = """
SELECT name
  FROM turn_streams
 WHERE task_seq = (SELECT seq FROM tasks WHERE id = ?1)
   AND turn = ?2
 ORDER BY seq
"""

ROWS_READ = 200
"""Rows that one look at a stream reads."""


class StreamStore:
    """Rows of `turn_streams` and `stream_chunks`. Holds nothing."""

    def open(self, tx: Transaction, task_seq: int, turn: int, name: str) -> OpenStream:
        """Return a stream of a turn, which is made when there is none, and what it kept. A damaged row has no
        texts."""
        tx.run(OPEN, task_seq=task_seq, turn=turn, name=name)
        [(seq, after)] = tx.fetch_tuples(OF_TURN, (task_seq, turn, name))
        newest, kept = after, []
        for first, last, part, texts, is_cut in tx.fetch_tuples(KEPT, (seq,)):
            newest = max(newest, last)
            if not is_cut:
                kept.append(KeptChunks(first, last, part.decode(errors="backslashreplace"), _read_texts(texts)))
        return OpenStream(seq, newest + 1, kept)

    def add_all(self, tx: Transaction, written: Sequence[Written]) -> None:
        """Append chunks, a row for each group."""
        rows = [(*_numbers(one), one.part, canonicalize_tree(one.texts), None, tx.now) for one in written]
        tx.execute_many(ADD, rows)

    def cut(self, tx: Transaction, cut: Cut) -> None:
        """Delete the chunks of a part after a number, and note at which place. Nothing is noted when there are
        none."""
        numbers: list[tuple[int, int]] = []
        for first, last, texts in list(tx.fetch_tuples(OF_PART, (cut.stream_seq, cut.after, cut.part))):
            numbers.append((max(first, cut.after + 1), last))
            kept = (_read_texts(texts) or [])[: cut.after - first + 1] if first <= cut.after else []
            self._shorten(tx, cut.stream_seq, last, first, kept)
        if numbers:
            row = (cut.stream_seq, cut.number, cut.number, cut.part, "[]", canonicalize(_join(numbers)), tx.now)
            tx.execute_many(ADD, [row])

    def _shorten(self, tx: Transaction, stream_seq: int, last: int, first: int, kept: list[str]) -> None:
        if not kept:
            tx.run("DELETE FROM stream_chunks WHERE stream_seq = :seq AND last = :last", seq=stream_seq, last=last)
            return
        tx.run(
            """
            UPDATE stream_chunks
               SET last = :new_last,
                   texts_json = :texts_json
             WHERE stream_seq = :seq
               AND last = :last
            """,
            seq=stream_seq,
            last=last,
            new_last=first + len(kept) - 1,
            texts_json=canonicalize(kept),
        )

    def list_after(
        self, tx: Reader, task_id: str, name: str, after: int, only_turn: int | None = None
    ) -> tuple[list[StreamChunk], bool]:
        """Return the next chunks of a stream of a task after a number, and whether there may be more. `only_turn` None:
        those of all turns.

        Raises DatabaseInvalid for a damaged row.
        """
        chunks: list[StreamChunk] = []
        rows = list(tx.fetch_tuples(NEXT, (task_id, name, after, only_turn, ROWS_READ)))
        for turn, first, last, texts_json, cut_json in rows:
            try:
                if cut_json is not None:
                    cut = tuple(range(start, end + 1) for start, end in json.loads(cut_json))
                    chunks.append(StreamChunk(last, "", turn, cut))
                    continue
                texts = _read_texts(texts_json)
            except (ValueError, TypeError):
                texts = None
            if texts is None or len(texts) != last - first + 1:
                raise DatabaseInvalid(
                    f"chunks {first} to {last} of stream {name} are damaged; read on with after={last}"
                )
            numbered = enumerate(texts, first)
            chunks += [StreamChunk(number, text, turn) for number, text in numbered if number > after]
        return chunks, len(rows) == ROWS_READ

    def read_texts(self, tx: Reader, task_id: str, name: str, turn: int) -> list[str] | None:
        """Return the chunks of a stream of one turn that count; None: some are damaged."""
        texts: list[str] | None = []
        for (text_json,) in tx.fetch_tuples(TEXTS, (task_id, name, turn)):
            found = _read_texts(text_json)
            texts = None if texts is None or found is None else texts + found
        return texts

    def read_turn(self, tx: Reader, task_id: str, turn: int) -> dict[str, str]:
        """Return the text of each stream of a turn, by name. A damaged one is left out."""
        names = tx.fetch_tuples(NAMES, (task_id, turn))
        known = {name: self.read_texts(tx, task_id, name, turn) for (name,) in list(names)}
        return {name: "".join(texts) for name, texts in known.items() if texts is not None}

    def list_of_task(self, tx: Reader, task_id: str, limit: int) -> list[StreamSummary]:
        """Return the newest streams of a task, the newest first."""
        rows = tx.fetch_tuples(LIST, (task_id, limit))
        return [StreamSummary(name.decode(errors="backslashreplace"), *rest) for name, *rest in rows]


def _numbers(written: Written) -> tuple[int, int, int]:
    return written.stream_seq, written.first, written.first + len(written.texts) - 1


def _read_texts(texts: bytes) -> list[str] | None:
    """Return the texts of a row; None: it is damaged."""
    try:
        found: Any = json.loads(texts.decode())
    except ValueError:
        return None
    return found if isinstance(found, list) and all(isinstance(text, str) for text in found) else None


def _join(numbers: Iterable[tuple[int, int]]) -> list[list[int]]:
    """Return the ranges with those that follow each other as one.

    >>> _join([(1, 2), (3, 5), (9, 9)])
    [[1, 5], [9, 9]]
    """
    joined: list[list[int]] = []
    for first, last in numbers:
        if joined and joined[-1][1] + 1 == first:
            joined[-1][1] = last
        else:
            joined.append([first, last])
    return joined
