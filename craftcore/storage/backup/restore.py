"""Putting a backup in the place of a database: what is there is kept under another name, and then replaced at once.

At each instant there is a whole database under the name: the one before, or the new one. No process may have the
former file open: writes to a file that has lost its name are lost. The one before is kept by a second name for it, and
on a file system that has no such thing (vfat, some of the network) by a copy.
"""

from __future__ import annotations

import errno
import glob
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from shutil import copyfileobj

import apsw

from craftcore.errors import CannotCreate, DatabaseInvalid, InvalidInput, StorageBusy, StorageError
from craftcore.files import NoRegularFile, open_regular
from craftcore.storage.backup.manifest import Manifest
from craftcore.storage.backup.staging_file import SIDES, StagingFile, remove_stale, staging_file, unused_name
from craftcore.storage.connection import APPLICATION_ID, refuse_foreign, switch_journal
from craftcore.storage.database import Database
from craftcore.storage.facts import get_fact
from craftcore.storage.files.second_names import KEPT
from craftcore.storage.files.whole_file import flush_folder
from craftcore.storage.integrity import check_file
from craftcore.storage.migrate import list_pending, migrate
from craftcore.storage.migrations import list_migrations
from craftcore.storage.restored_work import find_latest
from craftcore.storage.sqlite_errors import translate, translate_os

READ_BYTES = 1 << 20
NO_SECOND_NAMES = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EXDEV, errno.EMLINK}
"""The errors of a file system that lacks the operation, or lacks it for this file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The file that replaces the database: `sha256` of the file; `database_id`: None when no daemon ever ran on it.

    `until`: the moment up to which it goes, epoch seconds. It is the time of the backup; for a file without a manifest
    the latest moment in it, None when it has none.
    """

    sha256: str
    database_id: str | None
    until: float | None
    has_manifest: bool


def bring(file: Path, manifest: Manifest | None, draft: StagingFile) -> str:
    """Copy a file into the draft; its sha256. Raises DatabaseInvalid when it is not what its manifest says, or has none
    and is not all of a database: what was written last is in a WAL beside it."""
    if manifest is None:
        _refuse_half(file)
    digest, size = sha256(), 0
    try:
        with open_regular(file) as opened, open(draft.descriptor, "wb", closefd=False) as copy:
            while piece := opened.read(READ_BYTES):
                digest.update(piece)
                size += copy.write(piece)
    except NoRegularFile as error:
        raise InvalidInput(f"{file}: cannot be read: {error.strerror}") from error
    except OSError as error:
        raise translate_os(error, file) from error
    if manifest is not None and (size, digest.hexdigest()) != (manifest.bytes, manifest.sha256):
        raise DatabaseInvalid(
            f"{file}: is not the backup that its manifest is of ({size:,} bytes, sha256 {digest.hexdigest()[:12]}…; "
            f"it was {manifest.bytes:,} bytes, {manifest.sha256[:12]}…). It is damaged: take another one"
        )
    return digest.hexdigest()


def make_current(draft: StagingFile, file: Path, database: Database) -> list[str]:
    """Check what was brought, all of it, and migrate it where it is older; what was applied. Raises DatabaseInvalid."""
    brought = draft.database(database.clock)
    with _with_original_path(file, draft), brought.reading(with_checks=True) as reader:
        if reader.fetch_value("PRAGMA application_id") != APPLICATION_ID:
            raise DatabaseInvalid(
                f"{file}: is empty, and not a database of craftcore. Nothing was restored: take another one"
            )
        missing = list_pending(reader, list_migrations(), file)
        check = check_file(reader, [one for one in list_migrations() if one not in missing])
        if wrong := check.faults:
            raise DatabaseInvalid(f"{file}: is not sound: {wrong[0]}. Nothing was restored: take another one")
    return migrate(brought, database.clock, keep_copy=False)


def origin(draft: StagingFile, database: Database, sha256: str, manifest: Manifest | None) -> Origin:
    """Return the origin of a file that was brought in and migrated."""
    if manifest is not None:
        return Origin(sha256=sha256, database_id=manifest.database_id, until=manifest.taken_at, has_manifest=True)
    with draft.database(database.clock).reading() as reader:
        return Origin(
            sha256=sha256, database_id=get_fact(reader, "database_id"), until=find_latest(reader), has_manifest=False
        )


def present_id(database: Database) -> tuple[bool, str | None]:
    """Return whether there is a database, and its id; None where it has none or cannot be read."""
    if not database.path.exists():
        return False, None
    try:
        with database.reading() as reader:
            return True, get_fact(reader, "database_id")
    except (StorageError, ValueError):
        return True, None


def replace(draft: StagingFile, database: Database, *, patience: float) -> Path | None:
    """Keep the database that is there, and put the draft in its place; under which name it is kept, None if there was
    none. On disk when this returns.

    One that can be read is kept as a single file, with its WAL in it; a damaged one as it is, its WAL beside it. Raises
    StorageBusy, with nothing changed, when another process has it open for longer than `patience` (seconds);
    DatabaseInvalid when it is another program's.
    """
    place = draft.place
    if sides := draft.leftover_files():
        raise StorageError(f"{draft.path}{sides[0]}: was left behind; nothing was restored. Try again")
    with ExitStack() as opened:
        alone = _connect_exclusively(place, patience) if place.exists() else None
        try:
            give_to_owner(place, draft.descriptor)
            kept = _keep(place, database.clock.now(), opened)
            draft.publish()
        except OSError as error:
            raise translate_os(error, place) from error
        finally:
            if alone is not None:
                alone.close()
    return kept


def give_to_owner(place: Path, descriptor: int) -> None:
    """Give an open file, as root, to the owner of the database or of its folder, whose daemon has to open it. Use the
    descriptor: the owner may have put a link under its name."""
    if os.geteuid() == 0:
        whose = os.lstat(place if os.path.lexists(place) else place.parent)
        os.fchown(descriptor, whose.st_uid, whose.st_gid)


def _refuse_half(file: Path) -> None:
    """Raise InvalidInput when there is no such file; DatabaseInvalid when a part of it is beside it."""
    if not file.exists():
        raise InvalidInput(f"{file}: there is no such file")
    for side in ("-wal", "-journal"):
        beside = file.with_name(file.name + side)
        if beside.exists() and beside.stat().st_size > 0:
            raise DatabaseInvalid(
                f"{file}: is not all of it: {beside.name} beside it is not empty, as with a database that is in use. "
                f"Copy it with: craftcore --db {file} db backup"
            )


@contextmanager
def _with_original_path(file: Path, draft: StagingFile) -> Iterator[None]:
    """Replace the name of the draft in errors by that of the file, which the operator knows."""
    try:
        yield
    except DatabaseInvalid as error:
        raise DatabaseInvalid(error.message.replace(str(draft.path), str(file))) from error


def _connect_exclusively(path: Path, patience: float) -> apsw.Connection | None:
    """Return a connection beside which there is no other, to a file that has its WAL in it; None where it is too
    damaged.

    The file leaves WAL mode. A process that waits for it finds that the name belongs to another file, and does not
    write.
    """
    if not path.is_file():
        raise CannotCreate(f"{path}: there is something else than a file, which is left as it is")
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a damaged file is kept as it is
            refuse_foreign(connection, path)
            if not switch_journal(connection, "delete", patience):  # SQLite does so only for the single connection
                raise StorageBusy(
                    f"{path}: another process has it open, and would go on writing to the file that is replaced. "
                    "Stop whatever emits or reads there; nothing was changed"
                )
            connection.execute("BEGIN EXCLUSIVE")
        except BaseException:
            connection.close()
            raise
    except (apsw.CorruptError, apsw.NotADBError, apsw.IOError):
        return None
    except apsw.Error as error:
        raise translate(error, path) from error
    return connection


def _keep(place: Path, now: float, opened: ExitStack) -> Path | None:
    """Give the existing file and the files beside it a second name, and remove the files beside it. Return None when
    there is no file. `opened` is closed when no lock is held any more: closing a file drops SQLite's locks."""
    beside = [side for side in SIDES if place.with_name(place.name + side).exists()]
    if not place.exists() and not beside:
        return None
    _forget_second_names(place)
    kept = unused_name(place.parent, f"{place.name}{KEPT}", now, "", SIDES)
    for side in ("", *beside):
        if side != "-shm" and (path := place.with_name(place.name + side)).exists():
            _name_again(path, kept.with_name(kept.name + side), opened)
    flush_folder(place.parent)
    for side in beside:
        place.with_name(place.name + side).unlink()
    return kept


def _name_again(path: Path, name: Path, opened: ExitStack) -> None:
    """Link the file under a second name. Where links are refused, write a whole copy to disk and give it that name."""
    try:
        os.link(path, name)
    except OSError as error:
        if error.errno not in NO_SECOND_NAMES:
            raise
        source = opened.enter_context(os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC), "rb"))
        with staging_file(name) as draft:
            give_to_owner(path, draft.descriptor)
            with open(draft.descriptor, "wb", closefd=False) as copy:
                copyfileobj(source, copy, READ_BYTES)
            draft.publish()


def _forget_second_names(place: Path) -> None:
    """Remove the second names that a killed restore left. A whole copy stays."""
    remove_stale(place.parent)
    for path in place.parent.glob(f"{glob.escape(place.name)}{KEPT}*"):
        if place.exists() and path.samefile(place):
            path.unlink()
