"""The catalogue of migrations: the numbered SQL files that this program ships, and the names that they make."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw

from craftcore.errors import DatabaseInvalid

LEDGER = """
CREATE TABLE IF NOT EXISTS schema_migrations (
    name       TEXT NOT NULL PRIMARY KEY,
    sha256     TEXT NOT NULL,
    applied_at REAL NOT NULL
) STRICT
"""


@dataclass(frozen=True, kw_only=True)
class Migration:
    """One numbered file."""

    name: str
    sql: str

    @cached_property
    def sha256(self) -> str:
        return sha256(self.sql.encode()).hexdigest()


def list_migrations() -> list[Migration]:
    """Return the migrations of this program, in order. They are read once: a process goes on with those of its code."""
    return list(_load_own())


@cache
def _load_own() -> tuple[Migration, ...]:
    """Return the migrations beside the package in a checkout, or inside it in a wheel."""
    here = Path(__file__).resolve()
    for folder in (here.parents[1] / "migrations", here.parents[2] / "migrations"):
        if folder.is_dir():
            return tuple(load(folder))
    raise DatabaseInvalid("the migrations are missing from this installation; install craftcore again")


def load(folder: Path) -> list[Migration]:
    """Return the migrations of a folder, in order of their numbers."""
    files = sorted(folder.glob("[0-9][0-9][0-9][0-9]_*.sql"))
    return [Migration(name=file.stem, sql=file.read_text(encoding="utf-8")) for file in files]


def object_names_of(migrations: list[Migration]) -> frozenset[str]:
    """Return the tables, indexes, views and triggers of a database with these, in lower case: to SQLite it is the same
    name.

    Asked of an empty database, because a real one holds tables of its user's, too.
    """
    schema = connect_migrated(migrations).execute("SELECT name FROM sqlite_schema")
    return frozenset(name.lower() for (name,) in schema)


def connect_migrated(migrations: list[Migration]) -> apsw.Connection:
    """Return a connection to an empty database in memory with these."""
    connection = apsw.Connection(":memory:")
    with connection:
        for sql in (LEDGER, *(migration.sql for migration in migrations)):
            connection.execute(sql)
    return connection


def write_schema(connection: apsw.Connection) -> str:
    """Return the SQL that makes, in an empty database, all that migrations have made here, with their rows."""
    own = "FROM sqlite_schema WHERE name != 'schema_migrations' AND name NOT GLOB 'sqlite_*' AND type"
    statements: list[Any] = []
    for table, sql in connection.execute(f"SELECT name, sql {own} = 'table' ORDER BY rowid").fetchall():
        statements.append(sql)
        for row in connection.execute(f'SELECT * FROM "{table}"'):  # noqa: S608 - the name is of the schema
            values = ", ".join(map(apsw.format_sql_value, row))
            statements.append(f'INSERT INTO "{table}" VALUES ({values})')  # noqa: S608 - as above
    others = connection.execute(f"SELECT sql {own} != 'table' ORDER BY rowid")  # a trigger sees no row that is there
    statements += [sql for (sql,) in others]
    return ";\n".join(statements)
