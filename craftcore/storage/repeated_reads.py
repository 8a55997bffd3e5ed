"""A database that one thread reads again and again: its snapshots share one connection."""

from __future__ import annotations

import os
from typing import Any

import apsw

from craftcore.storage.database import Database
from craftcore.storage.write_pacer import busy_timeout_handler


class RepeatedReads(Database):
    """Keeps the connection of a reading for the next one, until `close`, an error, or another file of that name.

    To open a connection takes longer than most readings: SQLite reads the whole schema. Between two readings the
    connection has no lock. One thread at a time may use it.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._kept: apsw.Connection | None = None
        self._file: tuple[int, int] | None = None

    def close(self) -> None:
        """Close all connections. The next reading opens one."""
        self._drop_kept()
        super().close()

    def _open_reader(self, with_checks: bool, patience: float) -> apsw.Connection:
        file = self._stat()
        if file != self._file:
            self._drop_kept()
            self._file = file
        kept, self._kept = self._kept, None  # a reading within a reading opens its own
        if kept is None or with_checks:
            self._kept = kept
            return super()._open_reader(with_checks, patience)
        kept.set_busy_handler(busy_timeout_handler(patience))
        return kept

    def _close_reader(self, connection: apsw.Connection, *, may_be_kept: bool) -> None:
        if self._kept is not None or not may_be_kept:
            connection.close()
            return
        connection.set_progress_handler(None)
        connection.execute("ROLLBACK")
        self._kept = connection

    def _drop_kept(self) -> None:
        if self._kept is not None:
            self._kept.close()
        self._kept = None

    def _stat(self) -> tuple[int, int]:
        file = os.stat(self.path)
        return file.st_dev, file.st_ino
