"""`craftcore verify`: whether what was recorded is still what was written."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import click

from craftcore.cli.base import Command
from craftcore.cli.exit_codes import NO_SUCH, PROBLEM
from craftcore.cli.lookup import refuse_database, resolve_execution_id
from craftcore.cli.output import Output
from craftcore.cli.payload import read_text_file
from craftcore.cli.session import Session
from craftcore.errors import InvalidInput
from craftcore.executions.chain.head import Head, head_from, head_text
from craftcore.executions.chain.verify import Counts, Verification
from craftcore.executions.chain.verify_rules import Area, Fault
from craftcore.executions.record import ExecutionRecord
from craftcore.executions.record_store import RecordStore
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.files.whole_file import write_whole
from craftcore.storage.transaction import Reader

HEAD_MAX_BYTES = 64 << 10

SHOWN = 20
FAULTS_SHOWN = 1_000
"""Problems that are listed one by one; the others are counted."""


@click.command(
    cls=Command,
    touches="Only reads the database, and may run beside a daemon. Writes what --write-head names.",
    exits={PROBLEM: "something is not as it was; the first bad record is named, with what to do", NO_SUCH: None},
    examples=(
        "craftcore verify",
        "craftcore verify --write-head head.json",
        "craftcore verify exec-01a1fdfa",
    ),
    see=("craftcore db check", "craftcore audit", "docs/explanation/records-and-integrity.md#craftcore-verify"),
)
@click.argument("execution_id", metavar="[ID]", required=False)
@click.option(
    "--against", metavar="FILE", help="A head, or a backup's manifest, of an earlier day: it must still hold."
)
@click.option("--write-head", metavar="FILE", help="Write the head to FILE when all is well, for --against.")
@click.pass_obj
def verify(session: Session, /, execution_id: str | None, against: str | None, write_head: str | None) -> int:
    """Check that the records are as they were written.

    It checks every record, its place in the chain, and the audit log; with ID one record by itself. Records that are
    missing at the end show only --against a head that was kept elsewhere, as the manifest of a backup is.
    """
    if execution_id is not None:
        if against is not None or write_head is not None:
            raise click.UsageError("--against and --write-head are about all records; leave out the ID")
        return _verify_record(session, execution_id)
    before = None if against is None else _head_in(against)
    core = session.core()
    if write_head is not None:
        refuse_database(core.database.path, write_head)
    with core.reading() as reader:
        verification = Verification(reader, core.clock.now(), before)
        found = verification.faults()
        shown = list(islice(found, FAULTS_SHOWN))
        more = sum(1 for _ in found)
    written = write_head if not shown and verification.head is not None else None
    if written is not None and verification.head is not None:
        write_whole(Path(written), head_text(verification.head).encode())
    if session.json:
        head = None if verification.head is None else add_iso_times(asdict(verification.head))
        faults = [_fault_document(fault) for fault in shown]
        session.out.document(
            {
                "ok": not shown,
                "checked": asdict(verification.counts),
                "head": head,
                "head_written_to": written,
                "faults": faults,
                "more_faults": more,
            }
        )
    else:
        _say(session.out, verification.counts, verification.head)
        _say_faults(session.out, shown, len(shown) + more)
        if not shown:
            session.out.line("all of it is what was written", style="good")
        if written is not None:
            session.out.line(f"the head is in {written}: keep a copy on another machine")
        elif write_head is not None:
            session.out.line(f"{write_head} was left as it is: a head is written when all is well", style="warn")
    return 1 if shown else 0


def _verify_record(session: Session, execution_id: str) -> int:
    with session.core().reading() as reader:
        record, faults = _record(reader, execution_id)
    if session.json:
        place = None if record is None else record.chain_seq
        documents = [_fault_document(fault) for fault in faults]
        id = execution_id if record is None else record.id
        session.out.document({"ok": not faults, "id": id, "place": place, "faults": documents})
        return 1 if faults else 0
    if record is not None:
        session.out.line(f"{record.id}: {_status_text(record)}")
    _say_faults(session.out, faults, len(faults))
    if not faults:
        session.out.line("it is what was written", style="good")
    return 1 if faults else 0


def _record(reader: Reader, execution_id: str) -> tuple[ExecutionRecord | None, list[Fault]]:
    """Return the record, and what is wrong with it; None where it cannot even be read. Raises NotFound."""
    whole = resolve_execution_id(reader, execution_id)
    try:
        record = RecordStore().get(reader, whole)
        assert record is not None, whole
        return record, Verification(reader, 0.0).faults_of(record)
    except (ValueError, TypeError) as error:
        return None, [Fault(area=Area.RECORD, id=whole, wrong=f"it cannot be read: {error!s:.200}")]


def _head_in(file: str) -> Head:
    text = read_text_file(file, file, HEAD_MAX_BYTES)
    try:
        return head_from(text)
    except InvalidInput as error:
        raise InvalidInput(f"{file}: {error.message}") from error


def _status_text(record: ExecutionRecord) -> str:
    if record.ended_at is None:
        return "open, so only its envelope and the numbers of its events can be checked"
    if record.chain_seq is None:
        return "closed before there was a chain, so only its envelope and the numbers of its events can be checked"
    stripped = ", and retention took its bodies" if record.stripped_at is not None else ""
    return f"at place {record.chain_seq} of the chain{stripped}"


def _say(out: Output, counts: Counts, head: Head | None) -> None:
    before = f", {counts.before:,} from before there was a chain" if counts.before else ""
    gone = f"; {counts.removed:,} removed by retention"
    out.line(f"records: {counts.chained:,} in the chain{before}, {counts.open:,} open{gone}")
    out.line(f"operators' log: {format_count(counts.audit, 'row')}")
    if head is not None:
        out.line(f"head: place {head.place} {head.hash or '(nothing was closed yet)'}")


def _say_faults(out: Output, faults: Iterable[Fault], count: int) -> None:
    shown = list(islice(faults, SHOWN))
    if not shown:
        return
    if shown[0].area in (Area.RECORD, Area.MISSING):
        out.line(f"the first bad record: {_name_records(shown[0])}", style="bad")
    advised: set[Area] = set()
    for fault in shown:
        out.line(f"FAIL  {_name_records(fault)}: {fault.wrong}", style="bad")
        if fault.area not in advised:
            out.line(f"      {fault.advice}")
            advised.add(fault.area)
    if count > len(shown):
        out.line(f"and {format_count(count - len(shown), 'more problem')}")


def _name_records(fault: Fault) -> str:
    match fault.area:
        case Area.RECORD:
            return f"{fault.id} at place {fault.place}" if fault.place is not None else f"{fault.id}, in no chain"
        case Area.AUDIT:
            return f"operators' log, row {fault.place}"
        case Area.MISSING if fault.place is not None:
            return f"missing at place {fault.place}"
        case _:
            return fault.area.value


def _fault_document(fault: Fault) -> dict[str, Any]:
    return {**asdict(fault), "advice": fault.advice}
