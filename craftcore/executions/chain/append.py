"""Closing records: each is sealed, and chained to the one that was closed before it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from craftcore.executions.chain.seal import Header, Stream, record_hash
from craftcore.executions.event_store import EventStore
from craftcore.executions.model import milliseconds
from craftcore.executions.store import ExecutionStore, OpenHeader, SealedRecord
from craftcore.serialization.canonical import sha256_of
from craftcore.storage.transaction import Transaction


class KnownRecord(NamedTuple):
    """A record as its opener knows it: its events, as a Stream has them, their number, and the number of the newest
    row among them; None: there is no row. More may have been added meanwhile."""

    header: OpenHeader
    text: str
    events: int
    newest_row: int | None = None


class RecordEnd(NamedTuple):
    """The end of one record: its last events, as (type, text), and its outcome. `replayable_reason`: why it cannot be
    replayed; None: it can. `known`: what need not be read again; None: nothing."""

    execution_seq: int
    events: tuple[tuple[str, str], ...]
    status: str
    replayable_reason: str | None
    response_json: str | None
    error_code: str | None
    known: KnownRecord | None = None


class ChainWriter:
    """Seals. Each method is a rule over a transaction it is given."""

    def __init__(self) -> None:
        self._store = ExecutionStore()
        self._events = EventStore()

    def close_all(self, tx: Transaction, ends: Sequence[RecordEnd]) -> None:
        """Append the last events and close each record that is still open, as the next ones of the chain.

        A record that cannot be read is left open, and does not stop the others; `verify` names it.
        """
        headers, streams = self._read_open(tx, ends)
        place, before = self._store.head(tx)
        now = tx.now
        closings: list[SealedRecord] = []
        ends_of_streams: dict[Hashable, tuple[str, str]] = {}
        for end in ends:
            header = headers.pop(end.execution_seq, None)
            if header is None:
                continue  # it has its end, or cannot be read
            stream = streams.get(end.execution_seq) or Stream()
            alike = (stream.identity, end.events)
            if alike not in ends_of_streams:
                last = ",".join([stream.append(type_, now, text) for type_, text in end.events])
                ends_of_streams[alike] = last, stream.hash
            last, events_hash = ends_of_streams[alike]
            place += 1
            sealed = _closing_header(header, end, place, before, events_hash, now)
            before = record_hash(sealed)
            closings.append(SealedRecord(sealed, before, end.response_json, last))
        if closings:
            self._store.close_all(tx, closings)

    def _read_open(self, tx: Transaction, ends: Sequence[RecordEnd]) -> tuple[dict[int, OpenHeader], dict[int, Stream]]:
        """Return the header and the stream of each record that is still open, read from the table where more has
        happened to it than its opener knows."""
        newest = self._store.list_open(tx, [end.execution_seq for end in ends])
        headers: dict[int, OpenHeader] = {}
        streams: dict[int, Stream] = {}
        changed: list[int] = []
        for end in ends:
            seq, known = end.execution_seq, end.known
            if known is not None and newest.get(seq, 0) == known.newest_row:
                headers[seq], streams[seq] = known.header, Stream(known.text, known.events)
            elif seq in newest:
                changed.append(seq)
        for header, stream in self._read(tx, changed) if changed else ():
            streams |= stream
            headers |= {seq: one for seq, one in header.items() if _is_consistent(one, stream.get(seq), newest[seq])}
        return headers, streams

    def _read(self, tx: Transaction, seqs: Sequence[int]) -> Iterator[tuple[dict[int, OpenHeader], dict[int, Stream]]]:
        """Yield all of them at once; one by one, without the damaged ones, when a text is invalid."""
        try:
            yield self._store.open_headers(tx, seqs), self._events.streams(tx, seqs)
        except ValueError:
            for seq in seqs if len(seqs) > 1 else ():
                yield from self._read(tx, [seq])


def _is_consistent(header: OpenHeader, stream: Stream | None, newest_row: int | None) -> bool:
    """Return whether what was read goes on where it ends: a bad disk may have changed a number of it."""
    count = 0 if stream is None else stream.count
    return type(header.created_at) is float and newest_row in (None, count)


def _closing_header(header: OpenHeader, end: RecordEnd, place: int, before: str, events: str, now: float) -> Header:
    return Header(
        header.attempt, place, header.created_at, now, header.envelope_hash, header.epoch, end.error_code, events,
        header.id, milliseconds(header.created_at, now), before, int(end.replayable_reason is None),
        end.replayable_reason, None if end.response_json is None else sha256_of(end.response_json),
        header.routing_json, header.seq, end.status, header.task_id, header.trigger_id, header.turn, header.workflow,
    )  # fmt: skip
