"""A database with a user table, transactions on that table, and checks of their results."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from craftcore.errors import CraftcoreError
from craftcore.storage.database import Database
from craftcore.storage.facts import set_fact
from craftcore.storage.transaction import Transaction
from tests.support.made_schema import create_schema

NOTES = "CREATE TABLE notes (id INTEGER PRIMARY KEY, text TEXT UNIQUE, size INTEGER CHECK (size < 1000)) STRICT"


def a_database(path: Path, clock: Any) -> Database:
    """Create a database of craftcore, with a table of the user that has one row."""
    database = Database(path / "agent.db", clock)
    create_schema(database.path)
    with database.transaction() as tx:
        tx.run(NOTES)
        tx.run("INSERT INTO notes (id, text) VALUES (1, 'first')")
        set_fact(tx, "first", "ours")
    database.close()
    return database


def write(tx: Transaction, id: int) -> int:
    tx.run("INSERT INTO notes (id, text) VALUES (:id, :text)", id=id, text=f"note {id}")
    return id


def record(tx: Transaction, id: object) -> str:
    set_fact(tx, f"step {id}", "recorded")
    return f"recorded {id}"


def write_then(sql: str, *, caught: bool = False) -> Callable[[Transaction, int], int]:
    """Return a function that writes a row of the user's table and then runs this statement."""

    def user(tx: Transaction, id: int) -> int:
        write(tx, id)
        try:
            tx.run(sql)
        except CraftcoreError:
            if not caught:
                raise
        return id

    return user


def ask(database: Database, sql: str) -> list[tuple[Any, ...]]:
    """Query the file with plain SQL on the real disk, without faults and guards."""
    connection = apsw.Connection(str(database.path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def notes(database: Database) -> list[int]:
    return [id for (id,) in ask(database, "SELECT id FROM notes ORDER BY id")]


def records(database: Database) -> list[int]:
    names = ask(database, "SELECT name FROM facts WHERE name LIKE 'step %'")
    return sorted(int(name.removeprefix("step ")) for (name,) in names)


def everything(database: Database) -> dict[str, list[tuple[Any, ...]]]:
    """Return every row of every table, with the schema."""
    schema = "SELECT * FROM sqlite_schema ORDER BY name"
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    connection = apsw.Connection(str(database.path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix")
    try:
        rows = {
            table: connection.execute(f"SELECT * FROM {table}").fetchall() for (table,) in connection.execute(tables)
        }
        return {"schema": connection.execute(schema).fetchall(), **rows}
    finally:
        connection.close()
