"""A cheap test for commits of other connections and processes: `PRAGMA data_version`, which reads no table."""

from __future__ import annotations

import os

import apsw

from craftcore.storage.database import Database
from craftcore.storage.sqlite_errors import translate


class ChangeCounter:
    """Detects commits to a database since the last look. One thread may use it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: apsw.Connection | None = None
        self._opened: tuple[int, int] | None = None
        self._seen: int | None = None

    def has_changed(self) -> bool:
        """Return whether something was committed since the last call, or the file was replaced; True the first time.

        Raises NotFound when the file is missing, and another StorageError when it cannot be read.
        """
        file = self._stat()
        if self._connection is None:
            self._opened = file
            self._connection = self._connect()
        try:
            now: int = self._connection.pragma("data_version")
        except apsw.Error as error:
            raise translate(error, self._database.path) from error
        changed = now != self._seen
        self._seen = now
        if self._stat() != self._opened:
            self.close()  # the next look opens the file of that name
            return True
        return changed

    def close(self) -> None:
        """Close its connection, if it has one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = self._seen = None

    def _connect(self) -> apsw.Connection:
        try:
            return self._database.connect_to_read()
        except apsw.Error as error:
            with self._database.reading():  # says what is wrong with a file that cannot be read
                raise translate(error, self._database.path) from error

    def _stat(self) -> tuple[int, int] | None:
        try:
            file = os.stat(self._database.path)
        except OSError:
            return None
        return file.st_dev, file.st_ino
