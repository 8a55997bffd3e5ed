"""One column at a time is spoilt, in every row of its table: every reading command ends with a documented code, and
nothing that it prints can act on a terminal."""

from __future__ import annotations

import logging
import shutil
from contextlib import nullcontext

import apsw
import pytest
import structlog

from tests.cli.commands import READS, line
from tests.crash.spoiling import lax, unguarded

VALUES = {"escape": "\x1b[31mX\x07\r\x9b", "not UTF-8": b"\xff\x1b[", "infinite": float("inf"), "blob": b"\x00\xff\x1b"}
"""None of them is a value of any enumeration, a moment or JSON."""

RELEVANT = {
    "schedules": ("schedule",),
    "schedule_occurrences": ("schedule",),
    "triggers": ("trigger", "dead", "task show", "inspect exec", "top", "status"),
    "executions": ("inspect", "trigger show", "task show", "replay", "diff", "export", "task events"),
    "events": ("inspect", "trigger show", "task events", "replay", "diff", "export", "activity show"),
    "tasks": ("task", "inbox", "trigger", "top"),
    "waits": ("task", "trigger why"),
    "questions": ("inbox", "task show", "activity", "top"),
    "activity_log": ("activity", "task show", "inbox", "status"),
    "epochs": ("status", "top", "doctor", "trigger why"),
    "facts": ("status", "top", "doctor", "schedule", "trigger why"),
    "workflows": ("trigger why", "status"),
    "record_chain": ("status", "top", "doctor", "inspect"),
    "schema_migrations": ("status", "doctor"),
    "audit_log": ("audit",),
    "task_holds": ("task", "trigger why", "status", "top", "doctor"),
}
"""The commands that read a table, by how they begin."""

DOCUMENTED = {0, 1, 10, 11, 65}
BAD_ZONE = 64
"""What a schedule's preview says of a zone that this machine does not know, and of no cron."""


def calls(world) -> list[list[str]]:
    """One of each reading command, and more of those that show one row."""
    leave_out = {"completion", "systemd print", "check", "verify", "db check"}
    more = [
        ["inspect", "--list"],
        ["inspect", "--stats"],
        ["schedule", "list", "--all"],
        ["schedule", "show", "ahead"],
        ["schedule", "why", "paused"],
        ["trigger", "show", world.dead],
        ["trigger", "why", world.nap],
        ["task", "show", world.asks],
        ["task", "show", world.failed],
        ["task", "list", "--held"],
    ]
    return [*(line(name, call, world) for name, call in READS.items() if name not in leave_out), *more]


def columns(path, table) -> list[str]:
    connection = apsw.Connection(str(path))
    try:
        rows = connection.execute("SELECT name FROM pragma_table_info(?)", (table,)).fetchall()
        return [str(name) for (name,) in rows]
    finally:
        connection.close()


def spoil(path, table, column, value) -> bool:
    """In every row; where it must be unique, in one. False where no file can have that value there."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA ignore_check_constraints = 1")
    given = "CAST(? AS TEXT)" if value is VALUES["not UTF-8"] else "?"
    sql = str(connection.execute("SELECT sql FROM sqlite_schema WHERE name = ?", (table,)).fetchall()[0][0])
    try:
        with unguarded(connection), lax(connection, table) if sql.endswith(") STRICT") else nullcontext():
            connection.execute(f"UPDATE OR IGNORE {table} SET {column} = {given}", (value,))
    except (apsw.MismatchError, apsw.ConstraintError):  # the number of a row; a table without rowids stays STRICT
        return False
    finally:
        connection.close()
    return True


@pytest.mark.parametrize("table", RELEVANT)
def test_a_spoilt_column_ends_no_command_with_a_bug_and_prints_nothing_raw(cli, made, database, clock, table):
    world, sound = made
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    chosen = [words for words in calls(world) if " ".join(words).startswith(RELEVANT[table])]
    assert chosen, table
    wrong = []
    for column in columns(sound, table):
        for kind, value in VALUES.items():
            for path in database.parent.glob(f"{database.name}*"):
                path.unlink()
            shutil.copy(sound, database)
            if not spoil(database, table, column, value):
                continue
            for words in chosen:
                told = cli(*words)
                raw = [text for text in (told.out + told.err).split("\n") if not text.isprintable()]
                allowed = DOCUMENTED | ({BAD_ZONE} if column in ("timezone", "cron") else set())
                if raw or told.code not in allowed:
                    wrong.append((f"{table}.{column}", kind, words, told.code, raw[:1] or told.err[-200:]))
    structlog.reset_defaults()
    assert wrong == []


def test_every_table_that_a_command_reads_is_spoilt(made):
    connection = apsw.Connection(str(made[1]))
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = {str(name) for (name,) in connection.execute(sql).fetchall()}
    connection.close()
    empty = {"mailbox", "early_mail", "blobs", "clock_events", "activity_decisions", "retained_records"}
    assert tables - set(RELEVANT) <= empty, "nothing of these stands in the world"


def test_a_time_zone_in_a_header_is_shown_and_not_obeyed(cli, made, database, clock):
    shutil.copy(made[1], database)
    spoil(database, "schedules", "timezone", "\x1b[31mX")
    told = cli("schedule", "history", "nightly")
    assert "\x1b" not in told.out + told.err
