"""Deliberate faults in the files of a campaign, for the tests of its checker."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import apsw

from tests.support.damage import unguarded
from tests.support.event_rows import prepare

Spoil = Callable[[Path], None]

SCHEMA = ("CREATE", "DROP", "ALTER")


def copy_files(sound: Path, tmp_path: Path) -> Path:
    """Copy the files of ended lives, for a test that changes them."""
    for path in sound.iterdir():
        if path.is_file() and not path.name.endswith((".lock", "-shm")):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def sql(*statements: str) -> Spoil:
    """Return a function that runs the statements on the folder's database. Each of them must change rows or schema."""

    def spoil(folder: Path) -> None:
        connection = apsw.Connection(str(folder / "agent.db"))
        with unguarded(connection):
            prepare(connection, *statements)
            for statement in statements:
                connection.execute(statement)
                assert connection.changes() > 0 or statement.startswith(SCHEMA), statement
        assert connection.changes() > 0, statements
        connection.close()

    return spoil
