"""The rules of verification: each record alone, and each in its position of the chain. Pure.

It receives the records one after the other and holds none of them, however many there are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from craftcore.executions.model import EventType, Reason, Status
from craftcore.executions.record import ExecutionRecord, faults
from craftcore.serialization.plurals import format_count

ALWAYS_WITH_A_MEMO = (EventType.STEP_COMPLETED, EventType.EMITTED, EventType.CHILD_STARTED)
"""Where a task writes them: a turn that is entered again finds them by it."""

SEALED = ("ended_at", "events_hash", "prev_hash", "record_hash")
"""The fields that each record of the chain has, whatever its outcome."""


class Area(StrEnum):
    """Where a fault lies."""

    RECORD = "record"
    MISSING = "missing"
    STRAY = "stray"
    CHAIN = "chain"
    AUDIT = "audit"


ADVICE = {
    Area.RECORD: "do not rely on what it says, and do not replay it; a backup from before has it as it was written",
    Area.MISSING: "a backup from before has what is missing; what the others say still holds",
    Area.STRAY: "it was left when its record was removed or changed by hand; a backup from before has the record",
    Area.CHAIN: "compare with a head that was written to another place (verify --against), or with a backup",
    Area.AUDIT: "do not rely on the operators' log from there on; a backup from before has it as it was written",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One thing that is not as it was written. `place`: in the chain, or in the operators' log."""

    area: Area
    wrong: str
    id: str | None = None
    place: int | None = None

    @property
    def advice(self) -> str:
        return ADVICE[self.area]


class ChainState(NamedTuple):
    """The row of `record_chain`."""

    head_seq: int
    head_hash: str
    unchained_to: int
    anchor_seq: int
    anchor_hash: str
    anchor_record: int
    removed: int
    audit_anchor_seq: int
    audit_anchor_hash: str


class Behind:
    """The records that retention kept behind the anchor: each is there, and is the one that the anchor passed.

    A record between two of them may be gone. So a kept one is held by the hash that was noted, and by its neighbours
    where those are kept, too.
    """

    def __init__(self, ends: ChainState) -> None:
        self._ends = ends
        self._last = 0
        self._hash: str | None = None

    def look(
        self, place: int, hash_: str, id: str, record: ExecutionRecord | None, wrong: list[str]
    ) -> Iterator[Fault]:
        """Yield what is wrong with the next one, in the order of the chain: it was noted at `place`, with `hash_`.
        `record` is None when it cannot be read: `wrong` says why."""
        found = [*wrong]
        if not 0 < place <= self._ends.anchor_seq:
            found.append(f"it is noted as kept behind the anchor, which is at place {self._ends.anchor_seq}")
        if record is not None:
            if record.chain_seq != place:
                found.append(f"it was kept at place {place}, and its own place is {record.chain_seq}")
            if record.record_hash != hash_:
                found.append("it is not the record that was kept when the anchor passed it")
            if place == self._last + 1 and self._hash is not None and record.prev_hash != self._hash:
                found.append("it does not follow the record before it in the chain")
            if place == self._ends.anchor_seq and record.record_hash != self._ends.anchor_hash:
                found.append("it is at the place of the anchor, and has another hash")
        self._last = place
        self._hash = None if record is None else record.record_hash
        yield from (Fault(area=Area.RECORD, id=id, place=place, wrong=text) for text in found)


class Chain:
    """Follows the chain from its anchor to its head. `last` and `hash`: of the record that was seen last."""

    def __init__(self, ends: ChainState) -> None:
        self._ends = ends
        self.last = ends.anchor_seq
        self.hash = ends.anchor_hash
        self.missing = 0

    def begin(self) -> Iterator[Fault]:
        """Yield what is wrong with the ends, before any record is looked at."""
        if self._ends.anchor_seq == 0 and self._ends.anchor_hash:
            yield Fault(area=Area.CHAIN, wrong="retention removed nothing, and the hash of what it removed is there")

    def look(self, place: object, id: str, record: ExecutionRecord | None, wrong: list[str]) -> Iterator[Fault]:
        """Yield what is wrong with the next one: before it, with its place, and what it is by itself (`wrong`).
        `record` is None when it cannot be read."""
        if not isinstance(place, int):
            yield Fault(area=Area.RECORD, id=id, wrong=f"its place in the chain is {place!r:.80}, and no number")
            return
        if place <= self.last:
            why = "retention has removed what" if place <= self._ends.anchor_seq else "another record"
            yield Fault(area=Area.RECORD, id=id, place=place, wrong=f"{why} stood at its place in the chain, {place}")
            return
        follows = place == self.last + 1
        if not follows:
            yield self._gap(place, f"{id} comes next")
        if record is not None and follows and record.prev_hash != self.hash:
            wrong = [*wrong, "it does not follow the record before it in the chain"]
        self.last = place
        self.hash = record.record_hash if record is not None and record.record_hash is not None else ""
        yield from (Fault(area=Area.RECORD, id=id, place=place, wrong=text) for text in wrong)

    def end(self) -> Iterator[Fault]:
        """Yield what is wrong with the head, once every record was seen."""
        if self._ends.head_seq > self.last:
            yield self._gap(self._ends.head_seq + 1, "nothing comes after that")
        elif self._ends.head_seq < self.last:
            wrong = f"the chain is said to end at place {self._ends.head_seq}, and goes on to place {self.last}"
            yield Fault(area=Area.CHAIN, place=self.last, wrong=wrong)
        elif self._ends.head_hash != self.hash:
            wrong = f"the last record of the chain, at place {self.last}, is not the one that was closed last"
            yield Fault(area=Area.CHAIN, place=self.last, wrong=wrong)

    def _gap(self, place: int, then: str) -> Fault:
        first, last = self.last + 1, place - 1
        self.missing += last - first + 1
        what = f"the record at place {first}" if first == last else f"the records at places {first} to {last}"
        wrong = f"{what} of the chain {'is' if first == last else 'are'} missing; {then}"
        return Fault(area=Area.MISSING, place=first, wrong=wrong)


def record_faults(record: ExecutionRecord) -> list[str]:
    """Return the parts of one record that are not as written, wherever it is; [] when all are. A value that its CHECK
    forbids may pass here for another: the check of the file finds it."""
    wrong = faults(record)
    if record.chain_seq is not None and (lacks := [name for name in SEALED if getattr(record, name) is None]):
        wrong.append(f"it is in the chain and lacks what every record there has: {', '.join(lacks)}")
    if forgotten := [
        str(event.seq)
        for event in record.events
        if event.memo is None and event.task_seq is not None and event.type in ALWAYS_WITH_A_MEMO
    ]:
        wrong.append(
            f"event {', '.join(forgotten)} has lost its memo, as when a daemon could not read it and set it aside"
        )
    if record.stripped_at is not None and _is_whole(record):
        wrong.append("it says that retention took its bodies, and they are all there")
    return wrong


def unchained_faults(record: ExecutionRecord, unchained_to: int) -> list[str]:
    """Return the same for a record outside the chain: it is open, or was closed before there was a chain."""
    wrong = record_faults(record)
    sealed = (record.events_hash, record.response_hash, record.prev_hash, record.record_hash)
    if any(hash_ is not None for hash_ in sealed):
        wrong.append("it has the hashes of a closed record, and no place in the chain")
    elif record.ended_at is not None:
        if record.seq > unchained_to:
            wrong.append("it is closed, and is not in the chain")
    elif not _is_open(record):
        wrong.append("it has no end, and says what only a record with an end can say")
    if not record.events:
        wrong.append("it has no events")
    if not record.id.startswith(f"exec-{record.trigger_id}."):
        wrong.append(f"its id is not of its trigger, {record.trigger_id}")
    return wrong


def count_fault(*, newest: int, there: int, removed: int, gaps: int, absent: list[int]) -> Fault | None:
    """Return the fault of missing records outside the chain, each of which leaves a gap in the numbers. Every number
    from 1 to `newest` exists, but for those that retention `removed` and the `gaps` of the chain. `absent`: the first
    missing numbers.
    """
    lost = newest - there - removed - gaps
    if lost == 0:
        return None
    if lost < 0:
        wrong = f"retention is said to have removed {removed:,}, and only {newest - there - gaps:,} are not there"
        return Fault(area=Area.CHAIN, wrong=wrong)
    which = "" if removed or gaps else f": number {', '.join(map(str, absent[:10]))}"
    records = format_count(lost, "record is", "records are")
    wrong = f"{records} missing that retention did not remove, open or from before the chain{which}"
    return Fault(area=Area.MISSING, wrong=wrong)


def _is_open(record: ExecutionRecord) -> bool:
    nothing = (record.response_json, record.error_code, record.latency_ms)
    return (
        record.status is Status.INCOMPLETE
        and not record.replayable
        and record.replayable_reason == Reason.EXECUTION_INCOMPLETE
        and all(value is None for value in nothing)
    )


def _is_whole(record: ExecutionRecord) -> bool:
    """Return whether nothing of the record is missing."""
    return (
        record.envelope_json is not None
        and (record.response_json is not None or record.response_hash is None)
        and all(event.payload_json != "" for event in record.events)
    )
