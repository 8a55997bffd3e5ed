"""`craftcore db gc`: what retention does, now and by hand."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from contextlib import nullcontext

import click

from craftcore.cli.base import OperatorCommand
from craftcore.cli.exit_codes import NO_SUCH, SETTINGS, TRY_LATER
from craftcore.cli.progress import Progress
from craftcore.cli.session import Session
from craftcore.daemon.lock import DaemonLock
from craftcore.operations import maintenance
from craftcore.retention.service import Retention
from craftcore.retention.size_store import TableSizes
from craftcore.serialization.plurals import format_count
from craftcore.services import Services
from craftcore.storage.files.file_size import can_shrink, count_free_pages, rebuild

NEEDS = "the settings have a mistake: by the default ages it might take what should stay"


@click.command(
    "gc",
    cls=OperatorCommand,
    touches=(
        "Writes in many small commits, beside a daemon or without one, and may be interrupted at any moment; "
        "recorded in "
        "`craftcore audit`. With --dry-run it only reads."
    ),
    exits={NO_SUCH: None, TRY_LATER: "with --vacuum: a daemon runs", SETTINGS: NEEDS},
    examples=("craftcore db gc --dry-run", "craftcore db gc"),
    see=("craftcore db stats", "docs/reference/configuration.md#retention"),
)
@click.option("--dry-run", is_flag=True, help="Only say what would go.")
@click.option("--vacuum", is_flag=True, help="Rewrite the file without its free pages. Refused beside a daemon.")
@click.pass_obj
def gc(session: Session, /, dry_run: bool, vacuum: bool) -> None:
    """Take what is older than [retention] of the settings allows.

    Now, and give free pages back to the file system; a daemon does the same every hour. Nothing goes that is live, in
    doubt or asked about. --vacuum is for a file that cannot give pages back, and needs room for two of it.
    """
    core = session.core(needs_settings=True)
    retention = Retention(core.config.retention)
    progress = Progress("looking for what is old" if dry_run else "taking what is old", quiet=session.json)
    if dry_run:
        try:
            with core.reading() as reader, reader.with_progress(progress):
                now = core.clock.now()
                due = retention.tighten(reader, now, beat=progress).count_due(reader, now, beat=progress)
        finally:
            progress.finish()
        if session.json:
            session.out.document({"dry_run": True, "tables": due.weight.tables, "due": due.kinds})
        else:
            _say_tables(session, "would take", due.weight)
        return
    with _lock_exclusively(core) if vacuum else nullcontext():
        with session.write(core) as (_, scope):
            scope.record(vacuum=vacuum)
        try:
            with core.reading() as reader, reader.with_progress(progress):
                retention = retention.tighten(reader, core.clock.now(), beat=progress)
            taken, weight = maintenance.take_old(core, retention, progress)
            given = maintenance.give_pages_back(core, progress)
            core.close()
            if vacuum:
                rebuild(core.database, on_progress=progress)
        finally:
            core.close()
            progress.finish()
    with core.reading() as reader:
        free, can = count_free_pages(reader), can_shrink(reader)
    removed, stripped = dict(+taken.removed), dict(+taken.stripped)
    if session.json:
        document = {"dry_run": False, "tables": weight.tables, "removed": removed, "stripped": stripped}
        document["pages_given_back"] = given
        session.out.document({**document, "free_pages": free, "gives_pages_back": can, "vacuumed": vacuum})
        return
    out = session.out
    _say_tables(session, "took", weight)
    out.line(f"{format_count(given, 'page')} given back, {free:,} {'is' if free == 1 else 'are'} free")
    if not can:
        out.line("this file cannot give pages back in steps; stop the daemon, then:", style="warn")
        session.suggest("db", "gc", "--vacuum")


def _say_tables(session: Session, verb: str, weight: TableSizes) -> None:
    for table, of_it in weight.tables.items():
        session.out.line(f"{verb} {of_it['rows']:,} of {table}, {of_it['bytes']:,} bytes")
    if not weight.tables:
        session.out.line("nothing is old enough to go")


def format_due_counts(due: Mapping[str, int]) -> Iterator[str]:
    """Yield `1,204 triggers`, for each kind of which there is any."""
    for kind, count in due.items():
        if count:
            yield f"{kind}: {count:,}"


def _lock_exclusively(core: Services) -> DaemonLock:
    with core.reading():
        pass  # nothing is made beside a file that is not there
    return DaemonLock.acquire(core.database.path, pid=os.getpid(), host=socket.gethostname(), now=core.clock.now())
