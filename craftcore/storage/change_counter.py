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
        self._seen: tuple[int, int, int] | None = None

    def has_changed(self) -> bool:
        """Return whether something was committed since the last call, or the file was replaced; True the first time.

        Raises NotFound when the file is missing, and another StorageError when it cannot be read.
        """
        if self._connection is None:
            with self._database.reading():  # says what is wrong with a file that cannot be opened
                self._connection = self._database.connect_to_read()
        try:
            file = os.stat(self._database.path)
            now = (file.st_dev, file.st_ino, self._connection.pragma("data_version"))
        except FileNotFoundError:
            now = None
        except apsw.Error as error:
            raise translate(error, self._database.path) from error
        changed, before, self._seen = now != self._seen, self._seen, now
        if now is None or (before is not None and before[:2] != now[:2]):
            self.close()  # the next look opens the file of that name
        return changed

    def close(self) -> None:
        """Close its connection, if it has one."""
        if self._connection is not None:
            self._connection.close()
        self._connection = None
