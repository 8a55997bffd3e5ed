"""The integrity of the file: its pages, its foreign keys, and the schema that the migrations made.

Pages have no checksums. A flipped bit in a text or number without an index is found by no check of the file, only by a
hash of the content.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice

from craftcore.storage.migrations import Migration, connect_migrated, list_migrations
from craftcore.storage.transaction import Reader

MOST = 100
"""Faults of one kind that are reported."""

SCHEMA = """
SELECT type, name, tbl_name, sql
  FROM sqlite_schema
 WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!'
    OR name LIKE 'sqlite!_autoindex!_%' ESCAPE '!'
 ORDER BY type, name
"""

Thing = tuple[str, str]
"""The kind of a schema object and its name in lower case: SQLite ignores case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCheck:
    """The faults, as texts; three empty lists when there are none. `pages` and `keys`: the file is damaged. `schema`:
    it is not what the migrations made."""

    pages: list[str]
    keys: list[str]
    schema: list[str]

    @property
    def is_damaged(self) -> bool:
        return bool(self.pages or self.keys)

    @property
    def faults(self) -> list[str]:
        return [*self.pages, *self.keys, *self.schema]

    @property
    def is_sound(self) -> bool:
        return not self.faults


def check_file(reader: Reader, migrations: list[Migration] | None = None) -> FileCheck:
    """Read the whole file, by a reader that knows its CHECKs. `migrations`: what made its schema, if not all."""
    keys = list(islice(_key_faults(reader), MOST + 1))
    keys[MOST:] = ["and more of them"] * len(keys[MOST:])
    return FileCheck(pages=check_pages(reader), keys=keys, schema=schema_faults(reader, migrations))


def check_pages(reader: Reader) -> list[str]:
    """Return the faults of the pages alone, and of the constraints of the rows on them."""
    return _page_faults(reader, f"PRAGMA integrity_check({MOST})")


def quick_check(reader: Reader) -> list[str]:
    """Return what is wrong with the pages, without comparing them with the indexes; empty when nothing is."""
    return _page_faults(reader, "PRAGMA quick_check(10)")


def row_fault(reader: Reader) -> str | None:
    """Return the first page or row that breaks a rule of its table, or refers to a missing row. None: there is none."""
    return next(chain(quick_check(reader), _key_faults(reader)), None)


def _page_faults(reader: Reader, check: str) -> list[str]:
    faults = [str(fault) for (fault,) in reader.fetch_tuples(check)]
    return [] if faults == ["ok"] else faults


def _key_faults(reader: Reader) -> Iterator[str]:
    for table, rowid, parent, _ in reader.fetch_tuples("PRAGMA foreign_key_check"):
        yield f"{table}, row {rowid}: what it belongs to in {parent} is not there"


def schema_faults(reader: Reader, migrations: list[Migration] | None = None) -> list[str]:
    """Return the parts of the schema that are missing, changed, or attached to a table or view of craftcore by another
    program.

    The user's own tables are not checked, nor what is attached to them.
    """
    there = _schema_objects(reader)
    expected = _own_objects() if migrations is None else _schema_objects(Reader(connect_migrated(migrations)))
    faults = [
        f"the {kind} {name} is missing: {_object_purpose(kind)}" for kind, name in expected if (kind, name) not in there
    ]
    tables = {name for kind, name in expected if kind in ("table", "view")}
    for (kind, name), actual in there.items():
        table = actual[1].lower()
        if (kind, name) in expected:
            if expected[kind, name] != actual:
                faults.append(f"the {kind} {name} is not as the migrations made it")
        elif table in tables:
            faults.append(f"the {kind} {name} on {table} does not belong to craftcore: DROP {kind.upper()} {name}")
    return faults


@cache
def _own_objects() -> dict[Thing, tuple[str, str, str]]:
    """Return the schema that the migrations of this program make. To make it takes longer than to compare it."""
    return _schema_objects(Reader(connect_migrated(list_migrations())))


def _object_purpose(kind: str) -> str:
    match kind:
        case "trigger":
            return "nothing refuses a change of what it guarded. Run craftcore verify, and restore a backup"
        case "index":
            return (
                "values that it kept unique may be there twice, and queries that it sped up are slow. Restore a backup"
            )
        case "view":
            return "plain SQL that reads it fails, the engine does not. Restore a backup"
        case _:
            return "restore a backup"


def _schema_objects(reader: Reader) -> dict[Thing, tuple[str, str, str]]:
    """Name, table and SQL of each, to the letter."""
    rows = reader.fetch_tuples(SCHEMA)
    return {(kind, name.lower()): (name, table, sql) for kind, name, table, sql in rows}
