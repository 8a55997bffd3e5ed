"""A database file with the schema, created once for each test process and copied for each test."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.testing.virtual_clock import VirtualClock


def create_schema(path: Path) -> None:
    """Create a database with the schema and without rows. An existing file stays unchanged."""
    if path.exists() or path.is_symlink() or not path.parent.is_dir():
        return
    path.touch(mode=0o600)
    path.write_bytes(_schema())


@cache
def _schema() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        database = Database(Path(folder, "agent.db"), VirtualClock())
        migrate(database, database.clock)
        return database.path.read_bytes()
