"""Migrations: numbered SQL files, each applied once, in one transaction with its row in `schema_migrations`. A new
file gets all in one transaction, so that no process sees half a schema.

A changed old migration, or a database that knows migrations this program does not, is refused: nothing is guessed.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

import apsw

from craftcore.clock import Clock
from craftcore.errors import DatabaseInvalid
from craftcore.storage.commit import begin, commit, roll_back
from craftcore.storage.connection import APPLICATION_ID
from craftcore.storage.database import Database
from craftcore.storage.integrity import check_pages
from craftcore.storage.migrations import LEDGER, Migration, list_migrations, write_schema
from craftcore.storage.sqlite_errors import translate
from craftcore.storage.transaction import Reader, Transaction

_whole_schemas: dict[tuple[Migration, ...], str] = {}
"""The SQL that makes the whole schema of these migrations, from the first new file that this process made with them.
An `ALTER TABLE` reads the whole schema again, so migrations one by one take about four times as long."""


def list_pending(reader: Reader, migrations: list[Migration], path: Path) -> list[Migration]:
    """Return which migrations the database still lacks. Raises DatabaseInvalid for the history of another program."""
    if reader.fetch_value("SELECT count(*) FROM sqlite_schema WHERE name = 'schema_migrations'") == 0:
        return migrations
    rows = reader.fetch_tuples("SELECT name, sha256 FROM schema_migrations ORDER BY name")
    applied: dict[str, str] = dict(tuple(row) for row in rows)
    known = {migration.name: migration for migration in migrations}
    for name, digest in applied.items():
        if name not in known:
            raise DatabaseInvalid(f"{path}: written by a newer craftcore (migration {name}). Install that version")
        if known[name].sha256 != digest:
            raise DatabaseInvalid(f"{path}: migration {name} was changed after it was applied. Install the original")
    return [migration for migration in migrations if migration.name not in applied]


def is_empty(reader: Reader) -> bool:
    """Return whether the file has no table yet."""
    return bool(reader.fetch_value("SELECT count(*) FROM sqlite_schema") == 0)


def require_current(reader: Reader, path: Path) -> None:
    """Raise DatabaseInvalid unless the schema is exactly this program's."""
    if missing := list_pending(reader, list_migrations(), path):
        run = f"craftcore --db {shlex.quote(str(path))} db migrate"
        raise DatabaseInvalid(f"{path}: lacks migration {missing[0].name}. Run: {run}")


def migrate(
    database: Database,
    clock: Clock,
    migrations: list[Migration] | None = None,
    *,
    also: Callable[[Transaction, list[str]], object] | None = None,
    keep_copy: bool = True,
) -> list[str]:
    """Bring the file up to date; the names of what was applied. Safe to run from several processes at once.

    Before a file that already has data is changed, a verified copy of it is kept beside it, unless `keep_copy` is
    False: who says so has another. `also(tx, names)` is called in the last of the transactions, in which the schema is
    whole; not when there is nothing to apply.
    """
    migrations = list_migrations() if migrations is None else migrations
    connection = database.connect()
    try:
        missing = list_pending(Reader(connection), migrations, database.path)
        if len(missing) == len(migrations):
            return _apply(connection, clock, database.path, missing, also=also)
        if missing and keep_copy:
            _keep_copy(database, missing[0])
        applied: list[str] = []
        for migration in missing:
            last = also if migration is missing[-1] else None
            applied += _apply(connection, clock, database.path, [migration], before=applied, also=last)
        return applied
    except apsw.Error as error:
        raise translate(error, database.path, connection) from error
    finally:
        connection.close()


def _apply(
    connection: apsw.Connection,
    clock: Clock,
    path: Path,
    migrations: list[Migration],
    *,
    before: Sequence[str] = (),
    also: Callable[[Transaction, list[str]], object] | None = None,
) -> list[str]:
    """Apply these in one transaction; the names of those that no other process had applied already."""
    begin(connection, path)
    tx = Transaction(connection, clock.now())
    applied: list[str] = []
    whole = tuple(migrations) if is_empty(tx) else ()
    is_made = whole in _whole_schemas
    try:
        connection.execute(LEDGER)
        connection.pragma("application_id", APPLICATION_ID)
        if is_made:
            connection.execute(_whole_schemas[whole])
        for migration in migrations:
            if tx.fetch_one("SELECT name FROM schema_migrations WHERE name = :name", name=migration.name):
                continue
            if not is_made:
                connection.execute(migration.sql)
            tx.run(
                "INSERT INTO schema_migrations (name, sha256, applied_at) VALUES (:name, :sha256, :now)",
                name=migration.name,
                sha256=migration.sha256,
            )
            applied.append(migration.name)
        if whole and not is_made:
            _whole_schemas[whole] = write_schema(connection)
        if also is not None and (names := [*before, *applied]):
            also(tx, names)
        commit(connection, path)
    except BaseException:
        roll_back(connection)
        raise
    return applied


def _keep_copy(database: Database, before: Migration) -> None:
    """Write a checked copy of the file, mode 0600, over an older copy. Its name says which migration follows."""
    from craftcore.storage.backup.staging_file import staging_file

    copy = database.path.with_name(f"{database.path.name}.before-{before.name}")
    with staging_file(copy) as draft:
        draft.copy(database)
        with draft.database(database.clock).reading(with_checks=True) as reader:
            if wrong := check_pages(reader):
                raise DatabaseInvalid(
                    f"{database.path}: the copy made before migrating is not intact ({wrong[0]}); nothing was migrated"
                )
        draft.publish()
