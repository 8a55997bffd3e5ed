"""Backups for tests, made without the command."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import apsw

from craftcore.executions.chain.head import head_document
from craftcore.executions.chain.verify_store import read_head
from craftcore.storage.backup.backup import back_up, back_up_into
from craftcore.storage.backup.manifest import Manifest
from craftcore.storage.database import Database
from craftcore.storage.transaction import Reader
from craftcore.triggers.model import TriggerSpec
from tests.support.fakes import VirtualCore


def head(reader: Reader) -> dict[str, Any] | None:
    found = read_head(reader, 1.0)
    return None if found is None else head_document(found)


def take_backup(database: Database, target: Path) -> Manifest:
    return back_up(database, target, "1.2.3", head)


def rotate(database: Database, folder: Path, keep: int) -> tuple[Path, list[Path]]:
    """Write a new backup and rotate; return the new one and the removed ones."""
    new, _, removed = back_up_into(database, folder, keep, "1.2.3", head)
    return new, removed


def ask(path: Path, sql: str) -> list[tuple[Any, ...]]:
    """Query the file with plain SQL while no process writes to it."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY, vfs="unix")
    try:
        return connection.execute(sql).fetchall()
    finally:
        connection.close()


def change(path: Path, *statements: str) -> None:
    """Change the file as a foreign program does, past every CHECK."""
    connection = apsw.Connection(str(path))
    connection.pragma("foreign_keys", False)
    connection.pragma("ignore_check_constraints", True)
    for statement in statements:
        connection.execute(statement)
    connection.close()


def emit(core: VirtualCore, count: int = 1) -> list[str]:
    with core.transaction() as tx:
        return [core.triggers.emit(tx, TriggerSpec(workflow="greet")).id for _ in range(count)]


def set_database_id(database: Database, id: str) -> None:
    """Store an id of the database, as its first daemon does."""
    with database.transaction() as tx:
        tx.run("INSERT OR REPLACE INTO facts (name, value) VALUES ('database_id', :id)", id=id)
    database.close()


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() or path.is_symlink()}
