"""`craftcore export`: a record as one JSON document, to be carried elsewhere."""

from __future__ import annotations

import json
from pathlib import Path

import click

from craftcore.cli.base import Command
from craftcore.cli.lookup import find_record, refuse_database
from craftcore.cli.session import Session
from craftcore.serialization.plurals import format_count
from craftcore.storage.files.whole_file import write_whole


@click.command(
    cls=Command,
    touches="Only reads the database, and may run beside a daemon. Writes FILE, over one that is there.",
    examples=("craftcore export exec-01a1fdfa", "craftcore export exec-01a1fdfa -o record.json"),
    see=("craftcore replay", "craftcore diff", "docs/explanation/records-and-integrity.md"),
)
@click.argument("execution_id", metavar="ID")
@click.option("-o", "--output", metavar="FILE", help="Write it there, whole or not at all; without it, print it.")
@click.pass_obj
def export(session: Session, /, execution_id: str, output: str | None) -> None:
    """Write a record as one JSON document.

    It has the whole record, also one that is incomplete or damaged: envelope, routing, events, response, hashes.
    `craftcore replay` and `craftcore diff` read it again.
    """
    from craftcore.executions.document.export import document_of  # its library makes --help slow

    core = session.core()
    if output is not None:
        refuse_database(core.database.path, output)
    with core.reading() as reader:
        record = find_record(reader, execution_id)
    document = document_of(record)
    if output is None:
        session.out.document(document)
        return
    body = f"{json.dumps(document, indent=2)}\n".encode()
    write_whole(Path(output), body)
    if session.json:
        session.out.document({"execution_id": record.id, "file": output, "bytes": len(body)})
        return
    session.out.line(f"{record.id} is in {output}: {format_count(len(record.events), 'event')}, {len(body):,} bytes")
    if (reason := document["header"]["replayableReason"]) is not None:
        session.out.line(f"it cannot be replayed: {reason}", style="warn")
