"""Putting a backup in the place of a database: what is there is kept under another name, and then replaced at once.

At each instant there is a whole database under the name: the one before, or the new one. Nobody may have the one before
open: who writes to a file that has lost its name writes for nobody.
"""

from __future__ import annotations

import glob
import os
import time
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from pathlib import Path

import apsw

from craftcore.errors import CannotCreate, DatabaseInvalid, InvalidInput, StorageBusy, StorageError
from craftcore.regular_file import NoRegularFile, open_regular
from craftcore.storage.checking import check_file
from craftcore.storage.database import Database, refuse_foreign
from craftcore.storage.draft import SIDES, Draft
from craftcore.storage.facts import fact
from craftcore.storage.failures import translate, translate_os
from craftcore.storage.manifest import Manifest
from craftcore.storage.migrate import migrate, pending, shipped
from craftcore.storage.turns import nap
from craftcore.storage.whole_file import flush_folder

READ_BYTES = 1 << 20
KEPT = ".before-restore-"


def bring(file: Path, manifest: Manifest, draft: Draft) -> None:
    """Copy a backup into the draft. Raises DatabaseInvalid when it is not what its manifest says."""
    digest, size = sha256(), 0
    try:
        with open_regular(file) as opened:
            while piece := opened.read(READ_BYTES):
                digest.update(piece)
                size += len(piece)
                _write(draft.descriptor, piece)
    except NoRegularFile as error:
        raise InvalidInput(f"{file}: cannot be read: {error.strerror}") from error
    except OSError as error:
        raise translate_os(error, file) from error
    if (size, digest.hexdigest()) != (manifest.bytes, manifest.sha256):
        raise DatabaseInvalid(
            f"{file}: is not the backup that its manifest is of ({size:,} bytes, sha256 {digest.hexdigest()[:12]}…; "
            f"it was {manifest.bytes:,} bytes, {manifest.sha256[:12]}…). It is damaged: take another one"
        )


def make_current(draft: Draft, file: Path, database: Database) -> list[str]:
    """Check what was brought, all of it, and migrate it where it is older; what was applied. Raises DatabaseInvalid."""
    brought = Database(draft.path, database.clock)
    with brought.reading(with_checks=True) as reader:
        missing = pending(reader, shipped(), file)
        found = check_file(reader, [one for one in shipped() if one not in missing])
        if not found.is_sound:
            wrong = [*found.pages, *found.keys, *found.schema]
            raise DatabaseInvalid(f"{file}: is not sound: {wrong[0]}. Nothing was restored: take another one")
    return migrate(brought, database.clock, keep_copy=False)


def present_id(database: Database) -> tuple[bool, str | None]:
    """Whether there is a database, and its id; None where it has none or cannot be read."""
    if not database.path.exists():
        return False, None
    try:
        with database.reading() as reader:
            return True, fact(reader, "database_id")
    except (StorageError, ValueError):
        return True, None


def replace(draft: Draft, database: Database, *, patience: float) -> Path | None:
    """Keep the database that is there, and put the draft in its place; under which name it is kept, None if there was
    none. On disk when this returns.

    One that can be read is kept as a single file, with its WAL in it; a damaged one as it is, its WAL beside it. Raises
    StorageBusy, with nothing changed, when another process has it open for longer than `patience` (seconds);
    DatabaseInvalid when it is another program's.
    """
    place = draft.place
    if (sides := [side for side in SIDES if draft.path.with_name(draft.path.name + side).exists()]) != []:
        raise StorageError(f"{draft.path}{sides[0]}: was left behind; nothing was restored. Try again")
    alone = _alone(place, patience) if place.exists() else None
    try:
        give_to_owner(place, draft.descriptor)
        kept = _keep(place, database.clock.now())
        draft.put()
    except OSError as error:
        raise translate_os(error, place) from error
    finally:
        if alone is not None:
            alone.close()
    return kept


def give_to_owner(place: Path, file: int | str) -> None:
    """As root, let a file belong to whoever has the database, or the folder that it is to be in: their daemon has to
    open it."""
    if os.geteuid() == 0:
        whose = os.stat(place if place.exists() else place.parent)
        os.chown(file, whose.st_uid, whose.st_gid)


def _alone(path: Path, patience: float) -> apsw.Connection | None:
    """A connection beside which there is no other, to a file that has its WAL in it; None where it is too damaged.

    It is no WAL database any more: who waits for it meanwhile finds, when they would write to it, that its name is
    another file's by then, and does not.
    """
    if not path.is_file():
        raise CannotCreate(f"{path}: there is something else than a file, which is left as it is")
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)  # a damaged file is kept as it is
            refuse_foreign(connection, path)
            _leave_wal(connection, path, patience)
            connection.execute("BEGIN EXCLUSIVE")
        except BaseException:
            connection.close()
            raise
    except (apsw.CorruptError, apsw.NotADBError, apsw.IOError):
        return None
    except apsw.Error as error:
        raise translate(error, path) from error
    return connection


def _leave_wal(connection: apsw.Connection, path: Path, patience: float) -> None:
    """SQLite does so only for the one connection there is, and calls no busy handler for it."""
    deadline = time.monotonic() + patience
    while True:
        try:
            if connection.pragma("journal_mode", "delete") == "delete":
                return
        except apsw.BusyError:
            pass
        if time.monotonic() > deadline:
            raise StorageBusy(
                f"{path}: another process has it open, and would go on writing to the file that is replaced. "
                "Stop whatever emits or reads there; nothing was changed"
            )
        nap()


def _keep(place: Path, now: float) -> Path | None:
    """A second name for what is there and what lies beside it, which then goes from beside the place; None when there
    is nothing."""
    beside = [side for side in SIDES if place.with_name(place.name + side).exists()]
    if not place.exists() and not beside:
        return None
    _forget_second_names(place)
    kept = _free_name(place, now)
    for side in ("", *beside):
        if side != "-shm" and (path := place.with_name(place.name + side)).exists():
            os.link(path, kept.with_name(kept.name + side))
    flush_folder(place.parent)
    for side in beside:
        place.with_name(place.name + side).unlink()
    return kept


def _forget_second_names(place: Path) -> None:
    """Of a restore that was killed before it replaced what it had kept."""
    for path in place.parent.glob(f"{glob.escape(place.name)}{KEPT}*"):
        if place.exists() and path.samefile(place):
            path.unlink()


def _free_name(place: Path, now: float) -> Path:
    stem = f"{place.name}{KEPT}{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
    for number in count(1):
        name = place.with_name(stem if number == 1 else f"{stem}-{number}")
        if not any(os.path.lexists(name.with_name(name.name + side)) for side in ("", *SIDES)):
            return name
    raise AssertionError(stem)


def _write(descriptor: int, piece: bytes) -> None:
    rest = memoryview(piece)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
