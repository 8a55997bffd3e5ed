"""A pytest plugin that records every change of a state in the database during the tests.

    python -m pytest -p tests.support.transition_recorder tests/tasks      with STATES_SEEN=FILE in its environment

Each connection that writes gets temporary triggers, which change nothing in the file. Each line of FILE is
`table|from|to|test`, with an empty `from` for a new row. Changes by SQL of a test or by a migration are not counted:
the statement must belong to a store.
"""

from __future__ import annotations

import os
import sys
from types import FrameType
from typing import Any

import apsw
import pytest

from craftcore.storage.database import Database

STATES = {
    "triggers": "status",
    "tasks": "status",
    "waits": "status",
    "questions": "status",
    "mailbox": "status",
    "activity_log": "status",
    "executions": "status",
    "schedules": "status",
    "schedule_occurrences": "outcome",
}

_seen: dict[tuple[str, str, str], str] = {}


@pytest.fixture(autouse=True)
def _recorded(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    plain = Database.connect

    def connect(self: Database, *args: Any, **kwargs: Any) -> apsw.Connection:
        connection = plain(self, *args, **kwargs)
        watch(connection, request.node.nodeid)
        return connection

    monkeypatch.setattr(Database, "connect", connect)


def watch(connection: apsw.Connection, test: str) -> None:
    """Record the changes of this connection in the existing tables."""

    def record_change(*change: Any) -> None:
        if _sql_file(sys._getframe(1)).endswith("store.py"):
            table, *states = change
            before, after = (state.decode(errors="replace") for state in states)  # a corrupt state may not be text
            _seen.setdefault((table, before, after), test)

    connection.create_scalar_function("state_seen", record_change, 3)
    known = {name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    for table, column in STATES.items():
        if table in known:
            connection.execute(
                f"""
                CREATE TEMP TRIGGER watch_{table} AFTER UPDATE ON main.{table} WHEN OLD.{column} IS NOT NEW.{column}
                BEGIN SELECT state_seen('{table}', CAST(OLD.{column} AS BLOB), CAST(NEW.{column} AS BLOB)); END;
                CREATE TEMP TRIGGER watch_new_{table} AFTER INSERT ON main.{table}
                BEGIN SELECT state_seen('{table}', x'', CAST(NEW.{column} AS BLOB)); END;
                """
            )


def _sql_file(frame: FrameType | None) -> str:
    """Return the file that executes the SQL: the nearest caller outside of the storage layer."""
    while frame is not None and frame.f_code.co_filename.endswith(("storage/transaction.py", "storage/writer.py")):
        frame = frame.f_back
    return "" if frame is None else frame.f_code.co_filename


def pytest_sessionfinish() -> None:
    with open(os.environ["STATES_SEEN"], "w", encoding="utf-8") as file:
        file.writelines(f"{'|'.join(change)}|{test}\n" for change, test in sorted(_seen.items()))
