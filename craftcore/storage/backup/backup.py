"""A backup: a checked copy of one snapshot, whole under its name or not there, with its manifest beside it.

The manifest comes first: what a kill between the two leaves is small and says nothing that is not so. Without one, a
copy is large, and it cannot be shown to be complete.

The copy is made in one read transaction, for which no writer waits and which waits for none. Existing files are never
overwritten, and old backups are deleted only after the new one is complete and sound.
"""

from __future__ import annotations

import os
import re
import shlex
import stat
from collections.abc import Callable, Iterator
from hashlib import file_digest
from pathlib import Path
from typing import Any

from craftcore.errors import CannotCreate, DatabaseInvalid, InvalidInput, StorageError
from craftcore.files import NoRegularFile, open_regular
from craftcore.serialization.plurals import format_count
from craftcore.storage.backup.manifest import ENDS, Manifest, list_expired, manifest_from, manifest_path, manifest_text
from craftcore.storage.backup.staging_file import (
    SIDES,
    StagingFile,
    make_folder,
    refuse_taken,
    remove_stale,
    staging_file,
    staging_path,
    unused_name,
)
from craftcore.storage.database import Database
from craftcore.storage.epochs import newest_epoch
from craftcore.storage.facts import get_fact
from craftcore.storage.files.whole_file import write_whole
from craftcore.storage.integrity import check_file
from craftcore.storage.migrate import require_current
from craftcore.storage.sqlite_errors import translate_os
from craftcore.storage.transaction import Reader

MANIFEST_MAX_BYTES = 1 << 20
NAMED = re.compile(r"-[0-9]{8}T[0-9]{6}Z(-[0-9]+)?\.db\Z")

COUNTED = (
    *("triggers", "executions", "retained_records", "event_rows", "blobs", "tasks", "task_holds", "waits", "questions"),
    *(
        "turn_streams",
        "stream_chunks",
        "mailbox",
        "early_mail",
        "activity_log",
        "activity_decisions",
        "schedules",
        "schedule_occurrences",
    ),
    *("clock_events", "epochs", "audit_log", "notices", "notice_kinds", "limit_waits", "restored_work"),
    "session_messages",
)
"""The tables whose rows the manifest counts."""

Head = Callable[[Reader], dict[str, Any] | None]
"""Reads the ends of the chains, which storage knows nothing of."""


def back_up(database: Database, target: Path, version: str, head: Head) -> Manifest:
    """Put a checked copy under a name that nothing has yet, and its manifest beside it.

    Raises CannotCreate for a name that is taken, or the database's own. Raises DatabaseInvalid, and leaves no copy,
    when the copy is damaged or has another schema. Raises StorageFull, StorageError and PermissionRefused, the last
    also for a folder in which others may rename files.
    """
    _refuse(database.path, target)
    with database.reading() as reader:
        require_current(reader, database.path)
    taken_at = database.clock.now()
    with staging_file(target) as draft:
        draft.refuse_open_folder()
        refuse_taken(target)
        draft.copy(database)
        manifest = _check(database, draft, taken_at, version, head)
        _refuse(database.path, target)
        try:
            write_whole(manifest_path(target), manifest_text(manifest).encode())
            draft.publish()
        except BaseException:
            _remove(target)
            raise
    return manifest


def back_up_into(
    database: Database, folder: Path, keep: int, version: str, head: Head
) -> tuple[Path, Manifest, list[Path]]:
    """Put a checked copy into a folder, named after the current moment; create the folder when it is missing. Then
    remove the oldest backups of this database until `keep` are left. Return the new backup, and the removed ones."""
    make_folder(folder)
    remove_stale(folder)
    _sweep_manifests(folder)
    stem = Path(os.path.realpath(database.path)).stem
    target = unused_name(folder, f"{stem}-", database.clock.now(), ".db", [ENDS])
    manifest = back_up(database, target, version, head)
    others = [(file, other) for file, other in complete(folder) if file.name != target.name]
    gone = list_expired(others, manifest, keep)
    for file in gone:
        _remove(file)
    return target, manifest, gone


def _sweep_manifests(folder: Path) -> None:
    """Remove manifests of backups that a killed process never completed. A backup in the making has a draft."""
    for path, file in _list_rotated(folder):
        if os.path.lexists(staging_path(file)) or os.path.lexists(file):
            continue
        try:
            status = path.lstat()
            read_manifest(file)
            if stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid():
                path.unlink()
        except (OSError, StorageError, InvalidInput):
            continue


def _list_rotated(folder: Path) -> Iterator[tuple[Path, Path]]:
    """Yield each manifest with its backup. A backup with a name that a person gave is left out: it is to be kept."""
    for path in sorted(folder.glob(f"*{ENDS}")):
        file = path.with_name(path.name.removesuffix(ENDS))
        if NAMED.search(file.name) is not None:
            yield path, file


def complete(folder: Path) -> Iterator[tuple[Path, Manifest]]:
    """Yield the backups under names that `back_up_into` gives, with a manifest and the size that the manifest says.

    They belong to this user or to the owner of the folder: others may put files into a folder with the sticky bit.
    """
    owners = {os.geteuid(), folder.stat().st_uid}
    for path, file in _list_rotated(folder):
        try:
            manifest = read_manifest(file)
            beside, copy = path.lstat(), file.lstat()
        except (OSError, StorageError):
            continue
        files = stat.S_ISREG(beside.st_mode) and stat.S_ISREG(copy.st_mode)
        if files and beside.st_uid == copy.st_uid and copy.st_uid in owners and copy.st_size == manifest.bytes:
            yield file, manifest


def read_manifest(file: Path) -> Manifest:
    """Read the manifest of a backup. Raises InvalidInput when there is no such file, or the file is a manifest itself;
    DatabaseInvalid when the backup has no manifest."""
    path = manifest_path(file)
    try:
        with open_regular(path) as opened:
            text = opened.read(MANIFEST_MAX_BYTES).decode()
    except FileNotFoundError:
        if not file.exists():
            raise InvalidInput(f"{file}: there is no such file") from None
        if file.name.endswith(ENDS):
            raise InvalidInput(
                f"{file}: is a manifest. Name the backup beside it: {file.name.removesuffix(ENDS)}"
            ) from None
        raise DatabaseInvalid(
            f"{file}: has no manifest beside it ({path.name}), so it cannot be checked. Bring both; "
            "where there never was one, say --no-manifest"
        ) from None
    except UnicodeDecodeError as error:
        raise DatabaseInvalid(f"{path}: not the manifest of a backup: it is not text") from error
    except NoRegularFile as error:
        raise DatabaseInvalid(f"{path}: not the manifest of a backup: {error.strerror}") from error
    except OSError as error:
        raise translate_os(error, path) from error
    return manifest_from(text, path)


def _check(database: Database, draft: StagingFile, taken_at: float, version: str, head: Head) -> Manifest:
    with draft.database(database.clock).reading(with_checks=True) as reader:
        check = check_file(reader)
        if wrong := check.faults:
            more = f" (and {format_count(len(wrong) - 1, 'more fault')})" if len(wrong) > 1 else ""
            raise DatabaseInvalid(
                f"{database.path}: a copy of it is not sound: {wrong[0]}{more}. No backup was made, and those from "
                f"before are kept. See: craftcore --db {shlex.quote(str(database.path))} db check"
            )
        facts: dict[str, Any] = {
            "database_id": get_fact(reader, "database_id"),
            "epoch": newest_epoch(reader) or 0,
            "schema": reader.fetch_value("SELECT max(name) FROM schema_migrations"),
            "rows": {table: reader.fetch_value(f"SELECT count(*) FROM {table}") for table in COUNTED},  # noqa: S608
            "head": head(reader),
        }
    with open(draft.descriptor, "rb", closefd=False) as file:
        digest, size = file_digest(file, "sha256").hexdigest(), file.tell()
    return Manifest(sha256=digest, bytes=size, taken_at=taken_at, version=version, **facts)


def _refuse(database: Path, target: Path) -> None:
    """Raise CannotCreate for a name that is taken or kept for the database itself."""
    real = os.path.realpath(database)
    beside = {real, *(real + side for side in SIDES), f"{real}.lock", f"{real}.bell"}
    for name in (target, manifest_path(target)):
        if os.path.realpath(name) in beside:
            raise CannotCreate(f"{name}: belongs to the database itself. Give another name")
        refuse_taken(name)


def _remove(file: Path) -> None:
    """Remove a backup, then its manifest: a manifest without a backup does no harm."""
    try:
        file.unlink(missing_ok=True)
        manifest_path(file).unlink(missing_ok=True)
    except OSError as error:
        raise translate_os(error, file) from error
