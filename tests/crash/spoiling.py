"""Deliberate faults in the files of a campaign, for the tests of its checker."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw

from tests.support.event_rows import prepare

Spoil = Callable[[Path], None]

SCHEMA = ("CREATE", "DROP", "ALTER")


def copy_of(sound: Path, tmp_path: Path) -> Path:
    """The files of lives that are over, to be spoiled."""
    for path in sound.iterdir():
        if path.is_file() and not path.name.endswith((".lock", "-shm")):
            (tmp_path / path.name).write_bytes(path.read_bytes())
    return tmp_path


def drop_guards(connection: apsw.Connection) -> list[str]:
    """Take away the SQL triggers, which refuse to have a record changed; what makes them again."""
    guards = connection.execute("SELECT name, sql FROM sqlite_schema WHERE type = 'trigger'").fetchall()
    for name, _ in guards:
        connection.execute(f"DROP TRIGGER {name}")
    return [str(made) for _, made in guards]


@contextmanager
def unguarded(connection: apsw.Connection) -> Iterator[None]:
    """In here nothing refuses to have a record changed."""
    guards = drop_guards(connection)
    yield
    for made in guards:
        connection.execute(made)


@contextmanager
def lax(connection: apsw.Connection, table: str) -> Iterator[None]:
    """In here a column of this table takes what is of another kind, as a bad disk makes it."""
    was = ") STRICT"
    for before, after in ((was, ")"), (")", was)):
        connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
        connection.execute("PRAGMA writable_schema = 1")
        connection.execute(
            "UPDATE sqlite_schema SET sql = substr(sql, 1, length(sql) - ?) || ? WHERE name = ?",
            (len(before), after, table),
        )
        connection.execute("PRAGMA writable_schema = RESET")
        if after != was:
            yield


def sql(*statements: str) -> Spoil:
    """Each of these that is about rows changes some."""

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
