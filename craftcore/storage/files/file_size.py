"""The size of the file and of its WAL, and how free pages go back to the file system."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from craftcore.storage.database import Database
from craftcore.storage.sqlite_errors import translate
from craftcore.storage.transaction import Reader, Transaction

KEPT_FREE = 256
"""Free pages that stay in the file, a mebibyte: what is written next takes them."""

WAL_LONG = 32 << 20
"""Bytes in use. A checkpoint keeps it at half of this; only a reader that stays on an old snapshot makes it longer."""

STEP = "PRAGMA incremental_vacuum(64)"
"""Few pages at a time: each page that moves is written, and other writers wait meanwhile."""

WAL_HEADER, FRAME_HEADER = 32, 24
"""Bytes at the beginning of a WAL, and before each page in it."""


def wal_bytes(path: Path) -> int:
    """Return how long the WAL of this database is; 0 when there is none, or when the system does not say."""
    try:
        return path.with_name(f"{path.name}-wal").stat().st_size
    except OSError:  # a folder that cannot be entered just now says nothing about the file in it
        return 0


def wal_in_use(path: Path) -> int:
    """Return how many of those bytes count. SQLite may restart the WAL and leave the file as long as it was, as beside
    Litestream. All of them count when SQLite cannot read it.

    Only a reader keeps the WAL from restarting, so only a reader makes this grow.
    """
    if (size := wal_bytes(path)) == 0:
        return 0
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
            connection.pragma("data_version")  # reads the index of the WAL, and not the schema
            frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
            return 0 if frames <= 0 else WAL_HEADER + frames * (FRAME_HEADER + connection.pragma("page_size"))
        finally:
            connection.close()
    except apsw.Error:
        return size


def can_shrink(reader: Reader) -> bool:
    """Return whether this file can give pages back in small steps; one that was made otherwise only grows."""
    return bool(reader.fetch_value("PRAGMA auto_vacuum") == 2)


def count_free_pages(reader: Reader) -> int:
    """Return how many pages of the file hold nothing."""
    count: int = reader.fetch_value("PRAGMA freelist_count")
    return count


def give_back(tx: Transaction) -> int:
    """Give some free pages back; how many are left to give. 0 for a file that cannot."""
    if not can_shrink(tx) or (spare := count_free_pages(tx) - KEPT_FREE) <= 0:
        return 0
    for _ in tx.fetch_tuples(STEP):
        pass
    left = count_free_pages(tx) - KEPT_FREE
    return max(0, left) if left < spare else 0


def rebuild(database: Database, *, on_progress: Callable[[], object] = lambda: None) -> None:
    """Rewrite the whole file without free pages. From then on the file returns free pages in small steps.

    No other process may use it meanwhile, and the disk needs twice its size. `on_progress` is called now and then.
    Raises StorageFull and StorageBusy: the file is as it was.
    """
    connection = database.connect()
    try:
        connection.pragma("auto_vacuum", "incremental")
        with Reader(connection).with_progress(on_progress):
            connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        raise translate(error, database.path, connection) from error
    finally:
        connection.close()
