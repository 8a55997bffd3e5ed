"""`craftcore db backup`: a checked copy of the database, while whatever runs on it goes on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from craftcore.cli.base import WriteCommand
from craftcore.cli.exit_codes import CANNOT_CREATE, DATABASE, NO_SUCH
from craftcore.cli.session import Session
from craftcore.executions.chain.head import head_document
from craftcore.executions.chain.verify_store import read_head
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import add_iso_times
from craftcore.storage.backup.backup import back_up, back_up_into
from craftcore.storage.backup.manifest import manifest_path
from craftcore.storage.transaction import Reader
from craftcore.version import installed_version


@click.command(
    "backup",
    cls=WriteCommand,
    touches="Reads one moment of the database, beside a daemon or without one; writes two files of mode 0600.",
    exits={
        NO_SUCH: None,
        DATABASE: "the copy is not sound: there is no backup, and the older ones stay",
        CANNOT_CREATE: "there is a file of that name, or no such directory",
    },
    examples=(
        "craftcore db backup -o backup.db",
        "craftcore db backup --dir backups --keep 14",
    ),
    see=("craftcore db restore", "craftcore systemd install", "docs/how-to/back-up-and-restore.md#back-up"),
)
@click.option("-o", "--output", metavar="FILE", help="Write it there; there must be no such file yet.")
@click.option("--dir", "folder", metavar="DIR", help="Write it into DIR, under a name with the moment.")
@click.option(
    "--keep", metavar="N", type=click.IntRange(1, 10_000), help="Keep the newest N backups in DIR; with --dir."
)
@click.pass_obj
def backup(session: Session, /, output: str | None, folder: str | None, keep: int | None) -> None:
    """Make a checked copy of the database, with a manifest.

    The daemon goes on meanwhile. The copy is read from end to end before it gets its name, and older ones go only after
    that. A copy on another machine is what survives this one.
    """
    if (output is None) == (folder is None) or "" in (output, folder):
        raise click.UsageError("give -o FILE, or --dir DIR with --keep N")
    if (folder is None) != (keep is None):
        raise click.UsageError("--dir and --keep belong together: how many of those in DIR are kept?")
    core = session.core()

    def head(reader: Reader) -> dict[str, Any] | None:
        found = read_head(reader, core.clock.now())
        return None if found is None else head_document(found)

    gone: list[Path] = []
    if folder is not None and keep is not None:
        file, manifest, gone = back_up_into(core.database, Path(folder).absolute(), keep, installed_version(), head)
    else:
        assert output is not None
        file = Path(output).absolute()
        manifest = back_up(core.database, file, installed_version(), head)
    if session.json:
        document = add_iso_times({"taken_at": manifest.taken_at})
        session.out.document(
            {
                "file": str(file),
                "manifest": str(manifest_path(file)),
                "sha256": manifest.sha256,
                "bytes": manifest.bytes,
                **document,
                "database_id": manifest.database_id,
                "epoch": manifest.epoch,
                "schema": manifest.schema,
                "rows": manifest.rows,
                "removed": [str(one) for one in gone],
            }
        )
        return
    rows = manifest.rows
    out = session.out
    out.line(f"{file}: {manifest.bytes:,} bytes, checked", style="good")
    out.line(", ".join(format_count(rows[f"{noun}s"], noun) for noun in ("trigger", "task", "execution")))
    out.line(f"manifest: {manifest_path(file)}")
    for one in gone:
        out.line(f"removed {one}")
