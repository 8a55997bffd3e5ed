"""Walks over all that was recorded, in the order of the chain, and tells what is not as it was written.

A reader of one snapshot is enough, and nothing waits for it. Its memory does not grow with the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from craftcore.audit.model import AuditRow
from craftcore.audit.store import list_rows
from craftcore.audit.verify import AuditChain, audit_faults
from craftcore.executions.chain.head import Head, head_faults_since
from craftcore.executions.chain.verify_rules import (
    Area,
    Behind,
    Chain,
    ChainState,
    Fault,
    count_fault,
    record_faults,
    unchained_faults,
)
from craftcore.executions.chain.verify_store import VerifyingStore
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import RecordStore
from craftcore.serialization.plurals import format_count
from craftcore.storage.transaction import Reader

NOT_OURS = (ValueError, TypeError, AttributeError)
"""The exceptions of reading a row with bytes for text, text for a number, or an unknown word."""

KINDS = {name: str if name.endswith("_hash") else int for name in ChainState._fields}


@dataclass(slots=True)
class Counts:
    """The range of a verification. `chained`: records of the chain. `retained`: those of them that retention kept
    behind the anchor, for live turns. `before`: closed before there was a chain. `open`: without an end. `removed`: by
    retention, in all. `audit`: rows of the audit log."""

    chained: int = 0
    retained: int = 0
    before: int = 0
    open: int = 0
    removed: int = 0
    audit: int = 0


class Verification:
    """One walk over one snapshot. `counts` and `head` are right once `faults` was taken to its end.

    `before`: a head from an earlier day that must still be there. `head` is None when the file does not have it any
    more.
    """

    def __init__(self, reader: Reader, now: float, before: Head | None = None) -> None:
        self._reader = reader
        self._now = now
        self._before = before
        self._there: str | None = None
        self._audit_there: str | None = None
        self._store = VerifyingStore()
        self._records = RecordStore()
        self.counts = Counts()
        self.head: Head | None = None

    def faults(self) -> Iterator[Fault]:
        """Yield everything that is wrong, the first bad record of the chain first."""
        ends = self._read_chain_state()
        if isinstance(ends, str):
            yield Fault(area=Area.CHAIN, wrong=ends)
            return
        self.counts.removed = ends.removed
        yield from self._retention_faults(ends)
        chain = Chain(ends)
        yield from self._chain_faults(chain)
        yield from self._unchained_faults(ends)
        yield from self._count_faults(ends, chain)
        yield from self._orphan_faults()
        audit = AuditChain(ends.audit_anchor_seq, ends.audit_anchor_hash)
        yield from self._audit_faults(audit)
        self.head = self._store.head(self._reader, self._now, ends, audit_place=audit.last, audit_hash=audit.hash)
        if self._before is not None:
            yield from self._head_faults(self._before, self.head, ends)

    def faults_of(self, record: ExecutionRecord) -> list[Fault]:
        """Return what is wrong with one record, its neighbours in the chain left aside."""
        if record.chain_seq is not None:
            wrong = record_faults(record)
        else:
            ends = self._read_chain_state()
            wrong = [ends] if isinstance(ends, str) else unchained_faults(record, ends.unchained_to)
        return [Fault(area=Area.RECORD, id=record.id, place=record.chain_seq, wrong=text) for text in wrong]

    def _read_chain_state(self) -> ChainState | str:
        try:
            rows = self._store.chain_states(self._reader)
        except NOT_OURS as error:
            return f"the ends of the chain: {_unreadable_text(error)}"
        if len(rows) != 1:
            return f"the ends of the chain are {format_count(len(rows), 'row')}, and must be one"
        wrong = [f"{name} {value!r:.80}" for name, value in rows[0]._asdict().items() if type(value) is not KINDS[name]]
        return f"the ends of the chain are not valid: {', '.join(wrong)}" if wrong else rows[0]

    def _retention_faults(self, ends: ChainState) -> Iterator[Fault]:
        behind = Behind(ends)
        for place, seq, hash_, is_missing, is_flag in self._store.list_retained(self._reader):
            if is_missing:
                wrong = f"the record at place {place} of the chain, which retention kept, is missing"
                yield Fault(area=Area.MISSING, place=place, wrong=wrong)
                continue
            self.counts.chained += 1
            self.counts.retained += 1
            id, record, wrong_of_it = self._read(seq, is_flag, record_faults)
            yield from behind.look(place, hash_, id, record, wrong_of_it)
            if self._before is not None and place == self._before.place and record is not None:
                self._there = record.record_hash

    def _chain_faults(self, chain: Chain) -> Iterator[Fault]:
        yield from chain.begin()
        for place, seq, is_flag in self._store.list_chained(self._reader):
            self.counts.chained += 1
            id, record, wrong = self._read(seq, is_flag, record_faults)
            yield from chain.look(place, id, record, wrong)
            if self._before is not None and place == self._before.place:
                self._there = chain.hash
        yield from chain.end()

    def _unchained_faults(self, ends: ChainState) -> Iterator[Fault]:
        for seq, is_flag in self._store.list_unchained(self._reader):
            id, record, wrong = self._read(seq, is_flag, lambda record: unchained_faults(record, ends.unchained_to))
            if record is not None and record.ended_at is not None:
                self.counts.before += 1
            else:
                self.counts.open += 1
            yield from (Fault(area=Area.RECORD, id=id, wrong=text) for text in wrong)

    def _count_faults(self, ends: ChainState, chain: Chain) -> Iterator[Fault]:
        numbers = self._store.numbers(self._reader)
        absent = self._store.missing_numbers(self._reader) if numbers.there < numbers.newest else []
        fault = count_fault(
            newest=numbers.newest, there=numbers.there, removed=ends.removed, gaps=chain.missing, absent=absent
        )
        if fault is not None:
            yield fault

    def _orphan_faults(self) -> Iterator[Fault]:
        for seq, count in self._store.list_orphan_events(self._reader):
            events = format_count(count, "event is", "events are")
            yield Fault(area=Area.STRAY, wrong=f"{events} of record number {seq}, which is not there")
        for seq, part, is_missing, place in self._store.list_orphan_bodies(self._reader):
            body_id = (part or b"").decode(errors="backslashreplace")
            if is_missing:
                wrong = f"a body ({body_id:.40}) is of record number {seq}, which is not there"
                yield Fault(area=Area.STRAY, wrong=wrong)
            else:
                wrong = f"a body ({body_id:.40}) lies beside it, and its row does not say so"
                yield Fault(area=Area.RECORD, id=self._store.name(self._reader, seq), place=place, wrong=wrong)

    def _audit_faults(self, chain: AuditChain) -> Iterator[Fault]:
        for (seq,) in self._store.audit_rows(self._reader):
            self.counts.audit += 1
            row, wrong = self._audit_row(seq)
            for text in chain.look(seq, row, wrong):
                yield Fault(area=Area.AUDIT, place=seq, wrong=text)
            if self._before is not None and seq == self._before.audit_place:
                self._audit_there = chain.hash

    def _head_faults(self, before: Head, now: Head, ends: ChainState) -> Iterator[Fault]:
        there = ends.anchor_hash if before.place == ends.anchor_seq else self._there
        audit_there = ends.audit_anchor_hash if before.audit_place == ends.audit_anchor_seq else self._audit_there
        yield from head_faults_since(before, now, ends, there=there, audit_there=audit_there)

    def _read(
        self, seq: int, is_flag: bool, check: Callable[[ExecutionRecord], list[str]]
    ) -> tuple[str, ExecutionRecord | None, list[str]]:
        """Return the id, the record, and what is wrong with it by itself; None where it cannot be read."""
        try:
            record = self._records.get_by_seq(self._reader, seq)
            if record is not None:
                flagged = [] if is_flag else ["replayable is neither 0 nor 1"]
                return record.id, record, [*check(record), *flagged]
            wrong = "it cannot be found by its number, see craftcore db check"
        except NOT_OURS as error:
            wrong = _unreadable_text(error)
        return self._store.name(self._reader, seq), None, [wrong]

    def _audit_row(self, seq: int) -> tuple[AuditRow | None, list[str]]:
        try:
            row = next(list_rows(self._reader, seq - 1), None)
            if row is not None and row.seq == seq:
                return row, audit_faults(row)
            wrong = "it cannot be found by its number, see craftcore db check"
        except NOT_OURS as error:
            wrong = _unreadable_text(error)
        return None, [wrong]


def _unreadable_text(error: Exception) -> str:
    return f"it cannot be read: {error!s:.200}"
