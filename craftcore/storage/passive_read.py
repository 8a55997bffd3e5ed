"""A read of the database that creates no file and waits for no lock. It may fail with NotFound."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

import apsw

from craftcore.errors import NotFound
from craftcore.storage.connection import refuse_foreign
from craftcore.storage.transaction import Reader


@contextmanager
def read_passively(path: Path) -> Iterator[Reader]:
    """Read what is there now. Raises NotFound, DatabaseInvalid or an apsw.Error; the caller goes on without the data.

    SQLite creates a `-shm` for every reader beside a `-wal`. Without a `-wal` the file is complete, and is read as
    immutable. With a `-wal` but no `-shm` the file is not read.
    """
    real = os.path.realpath(path)
    beside = [os.path.exists(f"{real}{end}") for end in ("-wal", "-shm", "-journal")]
    if not os.path.isfile(real) or beside not in ([True, True, False], [False, False, False]):
        raise NotFound(f"{path}: not a database that can be read without waiting")
    how = "" if beside[0] else "&immutable=1"
    connection = apsw.Connection(
        f"file:{quote(real)}?mode=ro{how}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    )
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        connection.pragma("query_only", True)
        connection.pragma("trusted_schema", False)
        refuse_foreign(connection, path)
        yield Reader(connection)
    finally:
        connection.close()
