"""Every reading command on a database with one damaged column: a documented exit code and harmless output.

The default run uses a fixed part of the values. `pytest -m acceptance` uses two values in each column. `pytest -m
campaign` runs every value with every command, with and without `--json`.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.support.cells import some_cells
from tests.support.commands import READS, line
from tests.support.damage import VALUES, columns, damage, sampled, spoil
from tests.support.damage import full as full
from tests.support.log_capture import suppressed_logs
from tests.support.populated_database import World

RELEVANT = {
    "schedules": ("schedule",),
    "schedule_occurrences": ("schedule",),
    "triggers": ("trigger", "dead", "task show", "inspect exec", "top", "status"),
    "executions": ("inspect", "trigger show", "task show", "replay", "diff", "export", "task events"),
    "event_rows": ("inspect", "trigger show", "task events", "replay", "diff", "export", "activity show"),
    "tasks": ("task", "inbox", "trigger", "top"),
    "turn_streams": ("task stream", "task show"),
    "stream_chunks": ("task stream", "task show"),
    "waits": ("task", "trigger why"),
    "questions": ("inbox", "task show", "activity", "top"),
    "activity_log": ("activity", "task show", "inbox", "status"),
    "activity_decisions": ("activity",),
    "session_messages": ("session",),
    "mailbox": ("task", "trigger why", "trigger show", "doctor"),
    "early_mail": ("task", "trigger why", "trigger show", "status", "doctor"),
    "blobs": ("inspect", "replay", "diff", "export", "trigger show"),
    "clock_events": ("schedule", "doctor", "status", "trigger why"),
    "retained_records": ("doctor", "db stats", "inspect", "status"),
    "epochs": ("status", "top", "doctor", "trigger why"),
    "facts": ("status", "top", "doctor", "schedule", "trigger why"),
    "workflows": ("trigger why", "status"),
    "record_chain": ("status", "top", "doctor", "inspect", "db stats"),
    "schema_migrations": ("status", "doctor"),
    "audit_log": ("audit",),
    "limit_waits": ("trigger why", "status", "top"),
    "task_holds": ("task", "trigger why", "status", "top", "doctor"),
}
"""The commands that read a table, by their first words."""

DOCUMENTED = {0, 1, 10, 11, 65}
SAMPLED_COMMANDS = 1


@pytest.fixture
def quiet() -> Iterator[None]:
    with suppressed_logs():
        yield


def calls(world: World) -> list[list[str]]:
    """Return a call of each reading command, and further calls of those that show one row."""
    leave_out = {"completion", "systemd print", "check", "verify", "db check"}
    more = [
        ["inspect", "--list"],
        ["inspect", "--stats"],
        ["schedule", "list", "--all"],
        ["schedule", "show", "ahead"],
        ["schedule", "why", "paused"],
        ["trigger", "show", world.dead],
        ["trigger", "why", world.nap],
        ["trigger", "why", world.waits],
        ["task", "show", world.asks],
        ["task", "show", world.failed],
        ["task", "show", world.waits],
        ["task", "list", "--held"],
    ]
    return [*(line(name, call, world) for name, call in READS.items() if name not in leave_out), *more]


def faults(
    cli, full, database: Path, table: str, sample: list[tuple[str, str]], *, whole: bool
) -> list[tuple[object, ...]]:
    """Return the commands that end with an undocumented code or print raw text, with these values in these columns."""
    world, sound = full
    chosen = [words for words in calls(world) if " ".join(words).startswith(RELEVANT[table])]
    assert chosen, table
    wrong: list[tuple[object, ...]] = []
    turn = 0
    for column in columns(sound, table):
        for number, (kind, value) in enumerate(VALUES.items()):
            if (column, kind) not in sample:
                continue
            for path in database.parent.glob(f"{database.name}*"):
                path.unlink()
            shutil.copy(sound, database)
            if not spoil(database, table, column, value):
                continue
            some = range(len(chosen)) if whole else range(turn, turn + SAMPLED_COMMANDS)
            for place in some:
                for as_json in (False, True) if whole else (bool((place + number) % 2),):
                    words = ["--json"] * as_json + chosen[place % len(chosen)]
                    result = cli(*words)
                    raw = [text for text in (result.out + result.err).split("\n") if not text.isprintable()]
                    if raw or result.code not in DOCUMENTED or (as_json and not is_document(result.out)):
                        wrong.append((f"{table}.{column}", kind, words, result.code, raw[:1] or result.err[-300:]))
        turn += SAMPLED_COMMANDS
    return wrong


def is_document(text: str) -> bool:
    """Return whether the text is exactly one JSON document, without NaN and infinities."""
    try:
        json.loads(text, parse_constant=lambda name: 1 // 0)
    except (ValueError, ZeroDivisionError):
        return False
    return True


@pytest.mark.parametrize("table", RELEVANT)
def test_damaged_column_causes_no_bug_and_no_raw_output(cli, full, database, clock, quiet, table):
    sample = some_cells(sampled(full[1], table))

    assert faults(cli, full, database, table, sample, whole=False) == []


@pytest.mark.acceptance
@pytest.mark.parametrize("table", RELEVANT)
def test_damaged_column_causes_no_bug_with_two_values_in_each_column(cli, full, database, clock, quiet, table):
    assert faults(cli, full, database, table, sampled(full[1], table), whole=False) == []


@pytest.mark.campaign
@pytest.mark.parametrize("table", RELEVANT)
def test_damaged_column_causes_no_bug_with_every_value_and_command(cli, full, database, clock, quiet, table):
    every = [(column, kind) for column in columns(full[1], table) for kind in VALUES]

    assert faults(cli, full, database, table, every, whole=True) == []


@pytest.mark.parametrize(
    "kinds",
    [
        pytest.param({*some_cells(list(VALUES)), "infinite"}, id="some"),
        pytest.param(set(VALUES), id="every", marks=pytest.mark.acceptance),
    ],
)
@pytest.mark.parametrize("column", ["anchor_seq", "passed_seq", "anchor_record", "head_seq", "removed"])
@pytest.mark.parametrize(
    "words",
    [
        ("db", "stats"),
        pytest.param(("--json", "db", "stats"), marks=pytest.mark.acceptance),
        ("db", "gc", "--dry-run"),
    ],
)
def test_damaged_chain_end_exits_65_when_records_are_due_for_retention(
    cli, full, database, clock, quiet, column, words, kinds
):
    """Retention looks for due records from the end of the chain."""
    clock.advance(hours=400 * 24)
    for kind, value in VALUES.items():
        if kind not in kinds:
            continue
        for path in database.parent.glob(f"{database.name}*"):
            path.unlink()
        shutil.copy(full[1], database)
        spoil(database, "record_chain", column, value)

        result = cli(*words)

        assert result.code in (0, 65), (kind, result)
        assert "a bug" not in result.err
        if kind == "infinite" and column in ("anchor_seq", "passed_seq"):
            assert (result.code, column in result.err) == (65, True), result


@pytest.mark.parametrize(("column", "value"), [("timezone", "Mars/Olympus"), ("cron", "never")])
def test_preview_of_a_damaged_schedule_exits_65_instead_of_64(cli, full, database, clock, quiet, column, value):
    """The exit code 64 is for usage, and the typed command is correct."""
    shutil.copy(full[1], database)
    spoil(database, "schedules", column, value)

    result = cli("schedule", "preview", "nightly")

    assert result.code == 65, result
    assert "cannot be" in result.err


def test_infinite_number_in_a_row_is_reported_as_damage(cli, full, database, clock, quiet):
    shutil.copy(full[1], database)
    damage(database, "triggers", "created_at = 9e999", "id = ?", full[0].dead)

    shown = cli("--json", "trigger", "show", full[0].dead)

    assert (shown.code, shown.json["error"]["code"]) == (65, "ROW_INVALID")


def test_tested_tables_cover_the_schema_and_have_rows(full):
    connection = apsw.Connection(str(full[1]))
    sql = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    tables = {str(name) for (name,) in connection.execute(sql).fetchall()}
    empty = {name for name in tables if not connection.execute(f"SELECT count(*) FROM {name}").fetchall()[0][0]}
    connection.close()
    unread = {"notices", "notice_kinds", "restored_work"}  # tables that no command reads
    assert tables - unread == set(RELEVANT)
    assert empty - unread == set()


def test_hostile_time_zone_in_a_header_is_printed_escaped(cli, made, database, clock):
    shutil.copy(made[1], database)
    spoil(database, "schedules", "timezone", "\x1b[31mX")
    result = cli("schedule", "history", "nightly")
    assert "\x1b" not in result.out + result.err
