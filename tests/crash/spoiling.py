"""Deliberate faults in the files of a campaign, for the tests of its checker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from tests.support.event_rows import prepare

Spoil = Callable[[Path], None]

SCHEMA = ("CREATE", "DROP", "ALTER")


def copy_files(sound: Path, tmp_path: Path) -> Path:
    """Copy the files of ended lives, for a test that changes them."""
    for path in sound.iterdir():
        if path.is_file() and not path.name.endswith((".lock", "-shm")):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def drop_guards(connection: apsw.Connection) -> list[str]:
    """Drop the SQL triggers that refuse changes of records, and return the statements that create them again."""
    guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER {name}")
    return [str(statement) for _, statement in guards]


@contextmanager
def unguarded(connection: apsw.Connection) -> Iterator[None]:
    """Drop the guards of records until the block ends."""
    guards = drop_guards(connection)
    yield
    for statement in guards:
        connection.execute(statement)


@contextmanager
def lax(connection: apsw.Connection, table: str) -> Iterator[None]:
    """Make a table accept values of the wrong type, as a damaged disk produces, until the block ends."""
    strict = ") STRICT"
    for before, after in ((strict, ")"), (")", strict)):
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute(
            "UPDATE sqlite_schema SET sql = substr(sql, 1, length(sql) - ?) || ? WHERE name = ?",
            (len(before), after, table),
        )
        connection.execute("PRAGMA writable_schema = RESET")
        if after != strict:
            yield


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
