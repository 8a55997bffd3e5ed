"""`craftcore db`: the file itself."""

from __future__ import annotations

import os
import socket
from dataclasses import asdict

import click

from craftcore.audit.caller import actor
from craftcore.cli.base import CommandGroup, OperatorCommand, name_of
from craftcore.cli.database.backup import backup
from craftcore.cli.database.gc import format_due_counts, gc
from craftcore.cli.database.restore import restore
from craftcore.cli.exit_codes import DATABASE, NO_SUCH, PROBLEM, TRY_LATER
from craftcore.cli.session import Session
from craftcore.clock import utc_iso
from craftcore.daemon.lock import DaemonLock
from craftcore.diagnostics.database_size import OLDEST, PAGES, ROWS, SIZES
from craftcore.errors import DatabaseInvalid
from craftcore.operations.audit_scope import AuditScope
from craftcore.retention.service import Retention
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time
from craftcore.storage.files.file_size import wal_bytes
from craftcore.storage.integrity import check_file
from craftcore.storage.migrate import list_pending, require_current
from craftcore.storage.migrate import migrate as migrate_file
from craftcore.storage.migrations import list_migrations
from craftcore.storage.transaction import Transaction


@click.group(cls=CommandGroup, verbs=("migrate", "backup", "restore", "check", "stats", "gc"))
def db() -> None:
    """The database file: backup, restore, check, gc, stats."""


db.add_command(backup)
db.add_command(restore)
db.add_command(gc)


@db.command(
    "migrate",
    cls=OperatorCommand,
    touches="Writes each migration in one commit of its own; recorded in `craftcore audit`. Refused while a "
    "daemon runs.",
    exits={NO_SUCH: None, TRY_LATER: "a daemon runs, or another program has the file"},
    examples=("craftcore db migrate",),
    see=("craftcore db backup", "craftcore db check", "docs/reference/schema.md"),
)
@click.pass_context
def migrate(context: click.Context, /) -> None:
    """Bring the schema up to date.

    The daemon does it itself when it starts. A checked copy of the file as it was is kept beside it first.
    """
    session: Session = context.obj
    core = session.core()

    def note(tx: Transaction, applied: list[str]) -> None:
        AuditScope(tx, actor(), name_of(context)).record(applied=applied)

    with core.database.reading() as reader:  # refuses what is not there or not ours before anything is made beside it
        list_pending(reader, list_migrations(), core.database.path)
    with DaemonLock.acquire(core.database.path, pid=os.getpid(), host=socket.gethostname(), now=core.clock.now()):
        applied = migrate_file(core.database, core.clock, also=note)
    if session.json:
        session.out.document({"applied": applied})
    else:
        session.out.line(f"applied {', '.join(applied)}" if applied else "up to date: nothing to apply")


@db.command(
    "check",
    exits={
        PROBLEM: "only its schema is not what the migrations made",
        NO_SUCH: None,
        DATABASE: "it is damaged: keep the file, and restore a backup",
    },
    examples=("craftcore db check",),
    see=(
        "craftcore verify",
        "craftcore doctor",
        "craftcore db restore",
        "docs/explanation/records-and-integrity.md#craftcore-db-check",
    ),
)
@click.pass_obj
def check(session: Session, /) -> int:
    """Check the file: pages, foreign keys, schema.

    It reads the whole file. To check that the records are as written, run `craftcore verify`.
    """
    database = session.core().database
    with database.reading(with_checks=True) as reader:
        require_current(reader, database.path)
        found = check_file(reader)
    if session.json:
        session.out.document({"ok": found.is_sound, **asdict(found)})
    else:
        for area, wrong in asdict(found).items():
            for text in wrong:
                session.out.line(f"FAIL  {area}: {text}", style="bad")
            if not wrong:
                session.out.line(f"ok    {area}", style="good")
        if found.is_damaged:
            session.out.line("the file is damaged: stop the daemon, keep the file as it is, and restore a backup")
    if found.is_damaged:
        return DatabaseInvalid.exit_code
    return 0 if found.is_sound else 1


@db.command(
    "stats",
    examples=("craftcore db stats",),
    see=("craftcore db gc", "craftcore status", "docs/reference/configuration.md#retention"),
)
@click.pass_obj
def stats(session: Session, /) -> None:
    """Show bytes and rows per table, and the oldest row of each.

    Also what retention would take now, bytes per index, free pages, and the WAL. Reads the whole file, and takes
    nothing: that is `craftcore db gc`.
    """
    core = session.core()
    with core.reading() as reader:
        has_dbstat = reader.fetch_value("SELECT sqlite_compileoption_used('ENABLE_DBSTAT_VTAB')")
        sizes = reader.fetch_all(SIZES) if has_dbstat else []
        rows, pages = reader.fetch_one(ROWS) or {}, reader.fetch_one(PAGES) or {}
        oldest = reader.fetch_one(OLDEST) or {}
        now = core.clock.now()
        due = Retention(core.config.retention).tighten(reader, now).count_due(reader, now).kinds
    wal = wal_bytes(core.database.path)
    if session.json:
        moments = {table: {"at": at, "at_iso": utc_iso(at)} for table, at in oldest.items()}
        document = {**pages, "wal_bytes": wal, "rows": rows, "sizes": sizes, "oldest": moments, "due": due}
        session.out.document(document)
        return
    out = session.out
    total = pages["pages"] * pages["page_size"]
    out.line(
        f"{total:,} bytes in {format_count(pages['pages'], 'page')}, {pages['free_pages']:,} of them free; WAL {wal:,}"
    )
    out.line("rows: " + ", ".join(f"{name} {count:,}" for name, count in rows.items()))
    for line in format_due_counts(due):
        out.line(f"retention would take {line}")
    out.table(("table", "oldest row"), [(table, clock_time(at)) for table, at in oldest.items() if at is not None])
    if sizes:
        out.table(("name", "type", "bytes"), [(row["name"], row["type"], f"{row['bytes']:,}") for row in sizes])
    else:
        out.line("bytes per table are not known: this build of SQLite has no dbstat")
