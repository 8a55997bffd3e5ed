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
    connection has no lock. A reading that fails keeps none. Any thread may read.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._guard = threading.Lock()
        self._kept: list[apsw.Connection] = []
        self._file: FileId | None = None
        self._used: dict[apsw.Connection, FileId] = {}

    def close(self) -> None:
        """Close all connections that are not in use. The next reading opens one."""
        self.close_readers()
        super().close()

    def close_readers(self) -> None:
        """Close the connections that are kept."""
        with self._guard:
            kept, self._kept = self._kept, []
        for connection in kept:
            connection.close()

    def _open_reader(self, with_checks: bool, patience: float) -> apsw.Connection:
        file = self._stat()
        if file != self._file:
            self.close_readers()
            self._file = file
        connection = None if with_checks else self._take()
        if connection is None:
            connection = super()._open_reader(with_checks, patience)
        else:
            connection.set_busy_handler(busy_timeout_handler(patience))
        self._used[connection] = file
        return connection

    def _close_reader(self, connection: apsw.Connection, *, may_be_kept: bool) -> None:
        file = self._used.pop(connection)
        if may_be_kept and file == self._file:
            connection.set_progress_handler(None)
            connection.execute("ROLLBACK")
            with self._guard:
                if len(self._kept) < KEPT_MAX:
                    self._kept.append(connection)
                    return
        connection.close()

    def _take(self) -> apsw.Connection | None:
        with self._guard:
            return self._kept.pop() if self._kept else None

    def _stat(self) -> FileId:
        file = os.stat(self.path)
        return file.st_dev, file.st_ino
