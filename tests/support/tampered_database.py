"""A database whose texts contain terminal escapes, line breaks and bidirectional controls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import apsw

FORGED = "craftcore: forged"
HOSTILE = (
    f"\x1b]0;owned\x07\x1b[2J\x1b[31m\r{FORGED}\n{FORGED}\r\n\u2028{FORGED}\u2029\x85\x9b31m\u202e\u2066\u200f\ufeff\x7f\x00"
    "\u00ad\U000e0041end"
)
"""Escapes of 7 and 8 bits, every kind of line break, bidirectional overrides, a NUL, invisible tags."""

COUNTED = {"schema_migrations", "record_chain", "facts", "workflows"}
"""Tables that stay unchanged, because the program depends on them. Some rows of `facts` are changed."""

NAMES = {
    "id", "trigger_id", "task_id", "idem_key", "schedule_id", "parent_id", "session_id", "lane", "workflow", "subject",
    "dedup_key", "superseded_by", "lease_token", "memo", "name",
}  # fmt: skip
"""Columns by which rows refer to each other, and commands find rows."""


CHECKED = {"tasks.workflow", "tasks.session_id", "tasks.agent", "tasks.agents_json"}
"""Columns of live tasks: a row with an invalid name in one of them is not read."""


def tamper(path: Path, *, names: bool) -> list[str]:
    """Drop the guards, change every text that the CHECKs permit, and return the changed columns.

    `names`: the names in NAMES are changed, too.
    """
    connection = apsw.Connection(str(path))
    connection.pragma("foreign_keys", False)
    for (guard,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'trigger'").fetchall():
        connection.execute(f"DROP TRIGGER {guard}")
    changed = []
    tables = connection.execute(
        "SELECT name FROM sqlite_schema WHERE type = 'table' AND sql LIKE '%STRICT%'"
    ).fetchall()
    for (table,) in tables:
        columns = connection.execute("SELECT name FROM pragma_table_info(?) WHERE type = 'TEXT'", (table,)).fetchall()
        for (column,) in columns:
            if table in COUNTED or f"{table}.{column}" in CHECKED:
                continue
            if column in NAMES and not names and (table, column) != ("audit_log", "name"):
                continue
            if _change(connection, str(table), str(column)):
                changed.append(f"{table}.{column}")
    connection.execute("UPDATE facts SET value = value || ?1 WHERE name IN ('held', 'safe_mode')", (HOSTILE,))
    connection.close()
    return changed


def _change(connection: apsw.Connection, table: str, column: str) -> bool:
    """Change a column; return whether its CHECKs permit this."""
    worse = _spoiled_text if column.endswith("_json") else _longer
    connection.create_scalar_function("hostile", worse, 1)
    try:
        connection.execute(f"UPDATE {table} SET {column} = hostile({column}) WHERE {column} IS NOT NULL")
    except apsw.ConstraintError:
        return False
    return bool(connection.changes())


def _longer(*text: Any) -> str:
    return f"{text[0]}{HOSTILE}"


def _spoiled_text(*text: Any) -> str:
    """Return JSON in which every text and every key has the hostile end, unescaped where JSON permits it."""
    try:
        return json.dumps(_spoiled(json.loads(text[0])), ensure_ascii=False)
    except ValueError:
        return _longer(*text)


def _spoiled(value: Any) -> Any:
    match value:
        case str():
            return value + HOSTILE
        case list():
            return [_spoiled(one) for one in value]
        case dict():
            return {**{name: _spoiled(one) for name, one in value.items()}, f"more{HOSTILE}": HOSTILE}
        case _:
            return value
