"""Damaged rows in lists: the damaged row is named, the other rows are shown, and the exit code reports the damage."""

from __future__ import annotations

import pytest

from tests.support.commands import short
from tests.support.damage import NO_TEXT, damage
from tests.support.fakes import a_trigger

TABLES = {
    "trigger list": ("triggers", "id", "dead"),
    "dead list": ("triggers", "id", "dead"),
    "task list": ("tasks", "id", "asks"),
    "inbox list": ("questions", "id", "question"),
    "activity list": ("activity_log", "idem_key", "in_doubt"),
    "inspect --list": ("executions", "id", "died"),
    "schedule list": ("schedules", "id", "nightly"),
}
"""Each list, the table of its rows, their key column, and the damaged row."""

COLUMNS = {
    "trigger list": ("reason", "payload_json", "workflow", "id"),
    "dead list": ("error_message", "session_id"),
    "task list": ("session_id", "state_json", "id"),
    "inbox list": ("question", "id"),
    "activity list": ("reason", "idem_key"),
    "inspect --list": ("workflow", "trigger_id", "id", "status", "error_code", "created_at", "latency_ms"),
    "schedule list": ("description", "payload_json", "id"),
}
INVALID = [
    ("trigger list", "created_at = 'soon'"),
    ("trigger list", "created_at = 9e999"),
    ("task list", "created_at = 'soon'"),
    ("task list", "session_id = char(27) || '[31m' || char(10) || 'forged'"),
    ("inbox list", "options_json = '[7]'"),
    ("inbox list", "created_at = 'soon'"),
    ("activity list", "last_call_at = 'soon'"),
    ("inspect --list", "created_at = 'soon'"),
    ("schedule list", "last_nominal_at = 'soon'"),
]
"""Values that are valid texts or numbers, and no moments or names."""


def victim(here, name):
    which = TABLES[name][2]
    return getattr(here.world, which, which)


def key_of(row):
    return row.get("id", row.get("key"))


@pytest.mark.parametrize(
    ("name", "column"), [(name, column) for name, columns in COLUMNS.items() for column in columns]
)
def test_damaged_row_is_named_and_hides_no_other_row(cli, here, database, name, column):
    here.core.close()
    table, key, _ = TABLES[name]
    id_ = victim(here, name)
    before = cli("--json", *name.split()).json
    damage(database, table, f"{column} = {NO_TEXT}", f"{key} = ?", id_, any_type=True)

    result = cli("--json", *name.split())
    shown = cli(*name.split())

    [damaged] = [row for row in result.json if "damaged" in row]
    named = r"\xffA" if column == key else id_
    assert damaged == {"id": named, "damaged": rf"{column} is not UTF-8: b'\xffA'"}
    if column != key:
        assert result.json.index(damaged) == [key_of(row) for row in before].index(id_)
    rest = [row for row in result.json if row != damaged]
    assert rest == [row for row in before if key_of(row) != id_]
    assert all(short(key_of(row)) in shown.out for row in rest)
    assert f"damaged: {damaged['damaged']}"[:60].replace("\\", "\\\\") in shown.out
    assert (result.code, shown.code) == (65, 65)
    for answer in (result, shown):
        sentence = f"a damaged row cannot be shown: {named}: {column} is not UTF-8"
        assert sentence.replace("\\", "\\\\") in answer.err


@pytest.mark.parametrize(("name", "change"), INVALID)
def test_row_with_an_invalid_value_counts_as_damaged(cli, here, database, name, change):
    here.core.close()
    table, key, _ = TABLES[name]
    id_ = victim(here, name)
    damage(database, table, change, f"{key} = ?", id_, any_type=True)

    result, shown = cli("--json", *name.split()), cli(*name.split())

    assert [row["id"] for row in result.json if "damaged" in row] == [id_]
    assert len(result.json) > 1 or name in ("activity list", "inbox list")
    assert (result.code, shown.code) == (65, 0 if "9e999" in change else 65), "JSON has no infinite number"
    assert all(text.isprintable() for text in (shown.out + shown.err).split("\n"))


def test_damaged_task_hides_no_triggers_of_that_task(cli, here, database):
    here.core.close()
    before = cli("--json", "trigger", "list").json
    damage(database, "tasks", f"session_id = {NO_TEXT}", "id = ?", here.world.nap, any_type=True)

    result = cli("--json", "trigger", "list")

    wrong = {"id": here.world.nap, "damaged": r"a text is not UTF-8: b'\xffA'"}
    of_it = [row["id"] for row in before if row["task"] is not None and row["task"]["id"] == here.world.nap]
    assert of_it
    assert result.json == [{**row, "task": wrong} if row["id"] in of_it else row for row in before]
    assert (result.code, result.err.count(here.world.nap)) == (65, 1)
    assert f"task {short(here.world.nap)} is damaged" in cli("trigger", "list").out


def test_damaged_wait_hides_nothing_else_of_the_task(cli, here, database):
    here.core.close()
    before = cli("--json", "task", "list").json
    wait = next(row["wait"]["id"] for row in before if row["id"] == here.world.nap)
    damage(database, "waits", f"name = {NO_TEXT}", "id = ?", wait, any_type=True)

    result = cli("--json", "task", "list")

    wrong = {"id": wait, "damaged": r"name is not UTF-8: b'\xffA'"}
    assert result.json == [{**row, "wait": wrong} if row["id"] == here.world.nap else row for row in before]
    assert result.code == 65
    assert wait in result.err


OLDEST_DUE = "seq = (SELECT seq FROM triggers WHERE status = 'PENDING' ORDER BY due_at, seq LIMIT 1)"


@pytest.mark.parametrize(
    ("table", "change", "where"),
    [
        ("schedules", f"description = {NO_TEXT}", "id = 'ahead'"),
        ("triggers", f"workflow = {NO_TEXT}", OLDEST_DUE),
    ],
)
def test_damaged_row_does_not_change_the_status(cli, here, database, table, change, where):
    here.core.close()
    before = cli("--json", "status").json
    damage(database, table, change, where)

    after = cli("--json", "status")

    assert (after.code, after.json["schedules"], after.json["behind"]) == (0, before["schedules"], before["behind"])


def test_question_of_a_damaged_task_is_shown_without_an_answer_command(cli, here, database):
    here.core.close()
    before = cli("--json", "inbox", "list").json
    damage(database, "tasks", "session_id = 'no name'", "id = ?", here.world.asks, any_type=True)

    document, shown = cli("--json", "inbox", "list"), cli("inbox", "list")

    assert document.json == before
    assert (document.code, shown.code) == (65, 65)
    assert "its task is damaged" in shown.out
    assert f"inbox answer {here.world.question}" not in shown.out
    assert f"{here.world.asks}: session_id 'no name' is not a name" in document.err


def test_statistics_count_only_undamaged_records(cli, here, database):
    here.core.close()
    records = cli("--json", "inspect", "--stats").json["records"]
    damage(database, "executions", f"workflow = {NO_TEXT}", "id = ?", here.world.died, any_type=True)

    result = cli("--json", "inspect", "--stats")

    assert (result.code, result.json["records"]) == (65, records - 1)
    assert here.world.died in result.err


def test_damaged_rows_are_capped_on_stderr_and_complete_in_the_list(cli, core):
    for _ in range(25):
        core.do(core.triggers.emit, a_trigger())
    core.do(lambda tx: tx.run(f"UPDATE triggers SET description = {NO_TEXT}"))

    result = cli("--json", "trigger", "list")

    assert (len(result.json), result.err.count("cannot be shown")) == (25, 20)
    assert "and 5 more" in result.err


@pytest.mark.parametrize(
    ("table", "column", "section"),
    [
        ("questions", "question", "inbox"),
        ("questions", "id", "inbox"),
        ("triggers", "error_code", "dead_letters"),
        ("schedules", "workflow", "due_next"),
        ("activity_log", "reason", "in_doubt"),
    ],
)
def test_top_shows_every_undamaged_section(cli, here, database, table, column, section):
    here.core.close()
    before = cli("--json", "top").json
    key, victim_of = {one: (key, victim_wait) for one, key, victim_wait in TABLES.values()}[table]
    id_ = getattr(here.world, victim_of, victim_of)
    damage(database, table, f"{column} = {NO_TEXT}", f"{key} = ?", id_, any_type=True)

    result = cli("--json", "top")
    shown = cli("top", "--once")

    changed = (section, "verdict", "reasons", "bytes")  # the damage may need one more page
    rest = {name: value for name, value in result.json.items() if name not in changed}
    assert rest == {name: before[name] for name in rest}
    assert result.json["bytes"] - before["bytes"] in (0, 4096)
    if section == "in_doubt":
        damaged = result.json["in_doubt"]["oldest"]
        assert result.json["in_doubt"]["count"] == before["in_doubt"]["count"]
        assert "the oldest is damaged (see: craftcore activity list)" in cli("status").out
        assert cli("doctor").code in (0, 1)
    else:
        [damaged] = [row for row in result.json[section] if "damaged" in row]
        assert [row for row in result.json[section] if row != damaged] == [
            row for row in before[section] if row.get("id", row.get("error")) not in (id_, "AGENT_UNAVAILABLE")
        ]
        assert (result.code, shown.code) == (65, 65)
        assert "a damaged row cannot be shown" in shown.err
    assert damaged["damaged"] == rf"{column if section != 'dead_letters' else 'error'} is not UTF-8: b'\xffA'"
    assert "damaged  " in shown.out
    assert "due next" in shown.out
