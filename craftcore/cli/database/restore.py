"""`craftcore db restore`: a backup takes the place of the database, and nothing of it runs until a person says so."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import click

from craftcore.audit.caller import actor
from craftcore.cli.base import OperatorCommand, name_of
from craftcore.cli.confirm import confirm
from craftcore.cli.exit_codes import DATABASE, TRY_LATER
from craftcore.cli.session import Session, hint
from craftcore.clock import utc_iso
from craftcore.daemon.lock import DaemonLock
from craftcore.engine.boot import Process, RestoreMark
from craftcore.errors import InvalidInput
from craftcore.operations import maintenance
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import add_iso_times
from craftcore.services import Services
from craftcore.storage.backup.backup import read_manifest
from craftcore.storage.backup.manifest import manifest_path
from craftcore.storage.backup.restore import Origin, bring, give_to_owner, make_current, origin, present_id, replace
from craftcore.storage.backup.staging_file import StagingFile, make_folder, staging_file
from craftcore.storage.facts import LastSeen
from craftcore.version import installed_version

NO_MACHINE = ""
"""For the kernel's boot id: whatever ran in the file when it was copied is not blamed for a crash."""


@click.command(
    "restore",
    cls=OperatorCommand,
    touches="Replaces the database; recorded in its `craftcore audit`. Refused while a daemon, or anybody, "
    "has it open.",
    exits={
        DATABASE: "the backup is damaged, or not what its manifest says: nothing was changed",
        TRY_LATER: "a daemon runs, or another program has the file open",
    },
    examples=(
        "craftcore db restore backups/craftcore-20261122T031500Z.db",
        "craftcore db restore backup.db --yes",
    ),
    see=("craftcore db backup", "craftcore release", "docs/how-to/back-up-and-restore.md#restore"),
)
@click.argument("file", metavar="FILE")
@click.option("--yes", is_flag=True, help="Do not ask before a database is replaced; needed without a terminal.")
@click.option(
    "--no-manifest", is_flag=True, help="FILE was not made by `craftcore db backup`, but by Litestream, for example."
)
@click.pass_context
def restore(context: click.Context, /, file: str, yes: bool, no_manifest: bool) -> None:
    """Put a backup in the place of the database.

    It is checked from end to end first; the database that is there is kept beside it. Afterwards nothing starts until
    `craftcore release`: what was done since the backup is not in it, and might be done again. With --no-manifest the
    same is done with a whole database file that has no manifest.
    """
    session: Session = context.obj
    core = session.core()
    source, database = (
        Path(os.path.realpath(file)),
        core.database,
    )  # its manifest lies beside the file, not a link to it
    place = Path(os.path.realpath(database.path))
    if source == place:
        raise InvalidInput(f"{file}: is the database itself. Name a backup of it")
    manifest = None if no_manifest else read_manifest(source)
    if no_manifest and manifest_path(source).exists():
        raise InvalidInput(
            f"{file}: has a manifest, which tells a damaged file from a whole one. Leave out --no-manifest"
        )
    make_folder(place.parent)
    with DaemonLock.acquire(place, pid=os.getpid(), host=socket.gethostname(), now=core.clock.now()) as lock:
        try:
            give_to_owner(place, lock.fileno())
            is_there, id = present_id(database)
            seen = lock.previous.last_seen if lock.previous is not None else None
            with staging_file(place) as draft:
                sha256 = bring(source, manifest, draft)
                applied = make_current(draft, source, database)
                brought = origin(draft, database, sha256, manifest)
                if is_there:
                    confirm(yes, _summary(place, id, brought))
                done = _hold(session, draft, name_of(context), brought, source, seen)
                kept = replace(draft, database, patience=core.config.storage.busy_timeout)
            if done.database_id is not None:
                lock.write(database_id=done.database_id, epoch=done.epoch, call_mark=done.call_mark)
        except BaseException:
            if lock.previous is None and not os.path.lexists(place):
                lock.remove_file()
            raise
    _say(session, place, source, brought, kept, applied, done)


def _name_files(brought: Origin) -> str:
    if brought.has_manifest:
        return f"the backup of {utc_iso(brought.until)}"
    return f"a copy that goes up to {utc_iso(brought.until) or 'an unknown time'}"


def _summary(place: Path, id: str | None, brought: Origin) -> str:
    what = "backup" if brought.has_manifest else "copy"
    if id is None:
        which = f", which has no id yet or cannot be read, so it is unknown whether the {what} is of it,"
    elif id != brought.database_id:
        which = f", which is ANOTHER database than the one that the {what} is of,"
    else:
        which = ""
    return (
        f"replace {place}{which} by {_name_files(brought)}; what was done since is only in the "
        "file that is kept beside it"
    )


def _hold(
    session: Session,
    draft: StagingFile,
    command: str,
    brought: Origin,
    source: Path,
    seen: LastSeen | None,
) -> RestoreMark:
    """Apply the rules of a restore to the restored file, and note the operator, before the file gets its name."""
    core = Services(draft.path, session.settings(), vfs=draft.vfs)
    process = Process(
        boot_id=core.clock.new_id(),
        machine_boot_id=NO_MACHINE,
        pid=os.getpid(),
        host=socket.gethostname(),
        version=installed_version(),
    )
    why = f"it was restored from {_name_files(brought)}"
    return maintenance.hold_restored(core, actor(), command, process, str(source), brought, why, seen)


def _say(
    session: Session,
    place: Path,
    source: Path,
    brought: Origin,
    kept: Path | None,
    applied: list[str],
    done: RestoreMark,
) -> None:
    if session.json:
        document: dict[str, Any] = {
            "database": str(place),
            "restored_from": str(source),
            **add_iso_times({"taken_at": brought.until}),
            "database_id": done.database_id,
            "epoch": done.epoch,
            "migrated": applied,
            "in_doubt": done.in_doubt,
            "kept": None if kept is None else str(kept),
            "held": True,
        }
        session.out.document(document)
        return
    out = session.out
    out.line(f"{place} is {_name_files(brought)}", style="good")
    if kept is not None:
        out.line(f"the one before is kept: {kept}")
    if applied:
        out.line(f"applied {', '.join(applied)}")
    if done.in_doubt:
        which = format_count(done.in_doubt, "irreversible action is", "irreversible actions are")
        out.line(f"{which} in doubt: {hint('activity', 'list', '--status', 'UNKNOWN')}")
    out.line("everything is held. Look at what was done since, then:")
    session.suggest("release")
    out.line("where nothing ran since the backup, this also ends all doubts:")
    session.suggest("release", "--complete")
