"""Damage of a database, as a bad disk, another program or an attacker may leave it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import apsw
import pytest

from craftcore.audit.model import Actor
from craftcore.audit.store import audit
from craftcore.tasks.stream_chunks import Cut, Written
from craftcore.tasks.stream_store import StreamStore
from craftcore.triggers.model import LIMITED_UNTIL
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.populated_database import NOON, World

NO_TEXT = "CAST(x'ff41' AS TEXT)"
"""The SQL of a text that is not UTF-8."""

_NOT_UTF8 = b"\xff\x1b["
VALUES = {
    "escape": "\x1b[31mX\x07\r\x9b",
    "not UTF-8": _NOT_UTF8,
    "infinite": float("inf"),
    "minus infinite": float("-inf"),
    "not a number": float("nan"),
    "beyond the calendar": 1e18,
    "negative": -1,
    "largest integer": 2**63 - 1,
    "blob": b"\x00\xff\x1b",
    "empty": "",
    "huge text": "A" * (1 << 20),
    "huge JSON": json.dumps(list(range(150_000))),
    "deep JSON": "[" * 100_000 + "]" * 100_000,
    "huge number": "1" * 5_000,
    "JSON of another kind": '{"a": {"\\ud800": [null, 1e999]}}',
}
"""Values that a bad disk, another program or an attacker may leave. SQLite keeps NaN as NULL."""
SAMPLED_KINDS = 2


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


def damage(path: Path, table: str, change: str, where: str, *values: object, any_type: bool = False) -> None:
    """Change one row past its guards and CHECKs. `any_type`: also past the types of its columns."""
    connection = apsw.Connection(str(path))
    connection.set_busy_timeout(60_000)
    connection.pragma("ignore_check_constraints", True)
    with connection, unguarded(connection), lax(connection, table) if any_type else nullcontext():
        connection.execute(f"UPDATE {table} SET {change} WHERE {where}", values)
        assert connection.changes() == 1, change
    connection.close()


def fill_empty_tables(path: Path, world: World) -> None:
    """Insert a row into each table that is empty in the populated database."""
    core = VirtualCore(path, VirtualClock(now=NOON, seed=2))
    with core.transaction() as tx:
        audit(tx, Actor(uid=1000, name="somebody"), "task cancel", world.nap, reason="why not", details={"n": 1})
        waits = tx.fetch_value("SELECT seq FROM tasks WHERE id = :id", id=world.waits)
        died = tx.fetch_value("SELECT seq FROM executions WHERE id = :id", id=world.died)
        activity = tx.fetch_value("SELECT seq FROM activity_log WHERE idem_key = :key", key=world.in_doubt)
        tx.run(
            "INSERT INTO mailbox (task_seq, event, payload_json, sent_by, created_at)"
            " VALUES (:task, 'other', '{\"n\": 1}', 'somebody', :now)",
            task=waits,
            now=tx.now,
        )
        tx.run(
            "INSERT INTO early_mail (trigger_id, event, payload_json, sent_by, created_at)"
            " VALUES (:id, 'early', 'true', 'somebody', :now)",
            id=world.waiting,
            now=tx.now,
        )
        tx.run(
            "INSERT INTO activity_decisions (activity_seq, decision, reference, note, decided_by, decided_at)"
            " VALUES (:seq, 'resend', 'ref', 'a note', 'somebody', :now)",
            seq=activity,
            now=tx.now,
        )
        nap = tx.fetch_value("SELECT seq FROM tasks WHERE id = :id", id=world.nap)
        opened = StreamStore().open(tx, nap, 1, "answer")
        StreamStore().add_all(
            tx, [Written(opened.seq, 1, "", ["la", " la"]), Written(opened.seq, 3, "step:sing", ["!"])]
        )
        StreamStore().cut(tx, Cut(opened.seq, 4, "step:sing", 0))
        for part in ("envelope", "response"):
            tx.run("INSERT INTO blobs (execution_seq, part, body) VALUES (:seq, :part, '{}')", seq=died, part=part)
        for kind in ("forward", "held", "trusted"):
            tx.run(
                "INSERT INTO clock_events (at, kind, seconds, epoch) VALUES (:now, :kind, 60.0, 1)",
                now=tx.now,
                kind=kind,
            )
        tx.run("INSERT INTO retained_records VALUES (1, :seq, 'a hash')", seq=died)
        tx.run(
            "INSERT INTO limit_waits (trigger_seq, workflow, limit_by, key, rank, priority, not_before)"
            " SELECT seq, 'greet', 'name', '1', due_at, priority, due_at FROM triggers WHERE id = :id",
            id=world.nap,
        )
        tx.run(
            "UPDATE triggers SET not_before = :until, due_at = :until WHERE id = :id AND status = 'PENDING'",
            until=LIMITED_UNTIL,
            id=world.nap,
        )
    core.close()


@pytest.fixture(scope="session")
def full(made: tuple[World, Path], tmp_path_factory: pytest.TempPathFactory) -> tuple[World, Path]:
    """Return the populated database and its file, with a row in every table."""
    world, sound = made
    path = tmp_path_factory.mktemp("full") / "agent.db"
    shutil.copy(sound, path)
    fill_empty_tables(path, world)
    return world, path


def columns(path: Path, table: str) -> list[str]:
    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        return [str(name) for (name,) in rows]
    finally:
        connection.close()


def spoil(path: Path, table: str, column: str, value: object) -> bool:
    """Change the column in every row, or in one if it is unique. Returns False for a value that no file can have."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA ignore_check_constraints = 1")
    given = "CAST(? AS TEXT)" if value is _NOT_UTF8 else "?"
    sql = str(connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchall()[0][0])
    try:
        with unguarded(connection), lax(connection, table) if sql.endswith(") STRICT") else nullcontext():
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = {given}", (value,))
    except (apsw.MismatchError, apsw.ConstraintError):  # a rowid, or a column of a STRICT table without rowids
        return False
    finally:
        connection.close()
    return True


def sampled(path: Path, table: str) -> list[tuple[str, str]]:
    """Return two kinds of values for each column of a table, and others for the next column."""
    kinds, sample = list(VALUES), []
    for turn, column in enumerate(columns(path, table)):
        sample += [(column, kinds[(number - turn) % len(kinds)]) for number in range(SAMPLED_KINDS)]
    return sample
