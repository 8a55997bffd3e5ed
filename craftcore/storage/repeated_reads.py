"""A database that a process reads again and again: its snapshots take turns with a few connections."""

from __future__ import annotations

import os
import threading
from typing import Any

import apsw

from craftcore.storage.database import Database
from craftcore.storage.write_pacer import busy_timeout_handler

KEPT_MAX = 8
"""Connections that are kept between readings."""

FileId = tuple[int, int]


class RepeatedReads(Database):
    """Keeps the connection of a reading for a later one, until `close_readers`, `close`, or another file of that name.

    To open a connection takes longer than most readings: SQLite reads the whole schema. Between two readings the
    connection has no snapshot, so it delays no checkpoint. A reading that fails keeps none. Any thread may read.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = threading.Lock()
        self._kept: list[tuple[FileId, apsw.Connection]] = []
        self._used: dict[apsw.Connection, FileId | None] = {}

    def close(self) -> None:
        """Close all connections that are not in use. The next reading opens one."""
        self.close_readers()
        super().close()

    def close_readers(self) -> None:
        """Close the connections that are kept."""
        with self._guard:
            kept, self._kept = self._kept, []
        for _, connection in kept:
            connection.close()

    def _open_reader(self, with_checks: bool, patience: float) -> apsw.Connection:
        file = self._stat()
        connection = None if with_checks else self._take(file)
        if connection is None:
            connection = super()._open_reader(with_checks, patience)
        else:
            connection.set_busy_handler(busy_timeout_handler(patience))
        self._used[connection] = file
        return connection

    def _close_reader(self, connection: apsw.Connection, *, may_be_kept: bool) -> None:
        file = self._used.pop(connection)
        if may_be_kept and file is not None and file == self._stat() and connection.in_transaction:
            connection.set_progress_handler(None)
            connection.execute("ROLLBACK")
            with self._guard:
                if len(self._kept) < KEPT_MAX:
                    self._kept.append((file, connection))
                    return
        connection.close()

    def _take(self, file: FileId | None) -> apsw.Connection | None:
        """Return a connection to this file, which was kept. Those to another file are closed."""
        with self._guard:
            others = [one for known, one in self._kept if known != file]
            self._kept = [(known, one) for known, one in self._kept if known == file]
            taken = self._kept.pop()[1] if self._kept else None
        for one in others:
            one.close()
        return taken

    def _stat(self) -> FileId | None:
        try:
            file = os.stat(self.path)
        except OSError:
            return None
        return file.st_dev, file.st_ino
