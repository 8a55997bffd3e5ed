"""`craftcore verify` and `craftcore db check`: output as text and as JSON, and exit codes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import apsw
import pytest

from tests.support.damage import unguarded
from tests.support.recorded_executions import record_everything


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return record_everything(tmp_path_factory.mktemp("sound"))


@pytest.fixture
def database(tmp_path: Path, sound: Path) -> Path:
    shutil.copy(sound, tmp_path / "agent.db")
    return tmp_path / "agent.db"


def change(database: Path, *statements: str) -> None:
    connection = apsw.Connection(str(database))
    with unguarded(connection):
        for statement in statements:
            connection.execute(statement)
    connection.close()


WORKFLOW_OF_CLOSED_0 = "UPDATE executions SET workflow = 'other' WHERE id = 'exec-closed-0.1'"


def test_verify_of_a_sound_file_prints_counts_and_head(cli, clock):
    result = cli("verify")

    assert result.code == 0
    lines = result.out.splitlines()
    assert lines[0].startswith("records: ")
    assert lines[0].endswith("1 from before there was a chain, 3 open; 1 removed by retention")
    assert lines[1] == "operators' log: 3 rows"
    assert lines[2].startswith("head: place ")
    assert lines[3:] == ["all of it is what was written"]


def test_verify_with_json_prints_a_single_document(cli, clock):
    document = json.loads(cli("verify", "--json").out)

    assert document["ok"] is True
    assert document["faults"] == []
    assert document["checked"]["open"] == 3
    assert document["head"]["at_iso"] == "2026-11-21T12:00:00.000Z"
    assert document["head"]["place"] == document["checked"]["chained"] + document["checked"]["removed"]


def test_first_bad_record_is_named_with_place_and_advice(cli, clock, database):
    change(database, WORKFLOW_OF_CLOSED_0, "UPDATE audit_log SET name = 'eve' WHERE seq = 2")

    result = cli("verify")

    assert result.code == 1
    lines = result.out.splitlines()
    assert lines[3].startswith("the first bad record: exec-closed-0.1 at place ")
    assert lines[4].startswith("FAIL  exec-closed-0.1 at place ")
    assert lines[4].endswith("its header is not the one that the record's hash was made of")
    assert lines[5].strip().startswith("do not rely on what it says")
    assert lines[6].startswith("FAIL  operators' log, row 2: it is not the one that its hash was made of")
    document = json.loads(cli("verify", "--json").out)
    assert document["ok"] is False
    assert document["faults"][0]["id"] == "exec-closed-0.1"
    assert document["faults"][0]["area"] == "record"
    assert document["faults"][0]["advice"]


def test_missing_record_is_named_by_place(cli, clock, database):
    change(
        database,
        "DELETE FROM event_rows WHERE execution_seq = (SELECT seq FROM executions WHERE id = 'exec-closed-0.1')",
        "DELETE FROM executions WHERE id = 'exec-closed-0.1'",
    )

    result = cli("verify")

    assert result.code == 1
    assert "the first bad record: missing at place " in result.out
    assert "exec-closed-1.1 comes next" in result.out


def test_verify_cuts_and_counts_many_faults(cli, clock, database):
    connection = apsw.Connection(str(database))
    with unguarded(connection):
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 5 UNION ALL SELECT i + 1 FROM n WHERE i < 1500) "
            "INSERT INTO audit_log SELECT i, 1.0, 1, 'x', 'x', NULL, NULL, '{}', '', '' FROM n"
        )
    connection.close()

    printed, document = cli("verify"), json.loads(cli("verify", "--json").out)

    assert printed.code == 1
    assert len(printed.out.splitlines()) < 40
    assert printed.out.splitlines()[-1].endswith(" more problems")
    assert len(document["faults"]) == 1_000
    assert document["more_faults"] > 400


@pytest.mark.parametrize("id", ["exec-closed-0.1", "exec-closed-2.1"])
def test_single_record_can_be_verified(cli, clock, id):
    result = cli("verify", id)

    assert result.code == 0
    assert result.out.splitlines()[0].startswith(f"{id}: at place ")
    assert result.out.splitlines()[1:] == ["it is what was written"]
    assert json.loads(cli("verify", id, "--json").out)["ok"] is True


def test_record_open_or_older_than_the_chain_is_verified_only_in_part(cli, clock):
    assert "open, so only its envelope" in cli("verify", "exec-open-0.1").out
    assert "closed before there was a chain, so only its envelope" in cli("verify", "exec-before.1").out


@pytest.mark.parametrize(
    ("change_", "id"),
    [
        (WORKFLOW_OF_CLOSED_0, "exec-closed-0.1"),
        ("UPDATE executions SET envelope_json = '{}' WHERE id = 'exec-open-0.1'", "exec-open-0.1"),
        ("UPDATE executions SET envelope_json = '{}' WHERE id = 'exec-before.1'", "exec-before.1"),
        ("UPDATE executions SET workflow = CAST(x'ff' AS TEXT) WHERE id = 'exec-closed-0.1'", "exec-closed-0.1"),
    ],
)
def test_changed_single_record_is_reported(cli, clock, database, change_, id):
    change(database, change_)

    result = cli("verify", id)

    assert result.code == 1
    assert f"FAIL  {id}" in result.out
    assert json.loads(cli("verify", id, "--json").out)["ok"] is False


def test_unreadable_record_is_named_by_verify(cli, clock, database):
    change(database, "UPDATE executions SET workflow = CAST(x'ff' AS TEXT) WHERE id = 'exec-closed-0.1'")

    result = cli("verify")

    assert result.code == 1
    assert "the first bad record: exec-closed-0.1 at place " in result.out
    assert "it cannot be read: " in result.out


def test_verify_of_an_unknown_id_is_refused(cli, clock):
    result = cli("verify", "exec-nobody.1")

    assert result.code == 10
    assert "exec-nobody.1" in result.err


def test_head_file_is_written_privately_and_verifies_later(cli, clock, tmp_path):
    head = tmp_path / "head.json"

    assert cli("verify", "--write-head", str(head)).code == 0
    assert head.stat().st_mode & 0o777 == 0o600
    result = cli("verify", "--against", str(head), "--write-head", str(head))

    assert result.code == 0
    assert result.out.splitlines()[-1] == f"the head is in {head}: keep a copy on another machine"
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".craftcore-")] == []


def test_truncated_chain_is_detected_against_a_head_file(cli, clock, database, tmp_path):
    head = tmp_path / "head.json"
    cli("verify", "--write-head", str(head))
    change(
        database,
        "DELETE FROM blobs WHERE execution_seq >= (SELECT seq FROM executions WHERE id = 'exec-closed-2.1')",
        "DELETE FROM event_rows WHERE execution_seq >= (SELECT seq FROM executions WHERE id = 'exec-closed-2.1')",
        "DELETE FROM executions WHERE seq >= (SELECT seq FROM executions WHERE id = 'exec-closed-2.1')",
        "UPDATE record_chain SET (head_seq, head_hash) = "
        "(SELECT chain_seq, record_hash FROM executions WHERE id = 'exec-closed-1.1')",
    )

    assert cli("verify").code == 0
    result = cli("verify", "--against", str(head))

    assert result.code == 1
    assert "the last ones were cut off, or this is an older copy" in result.out


def test_head_file_is_not_written_for_a_faulty_database(cli, clock, database, tmp_path):
    head = tmp_path / "head.json"
    head.write_text("kept")
    change(database, WORKFLOW_OF_CLOSED_0)

    result = cli("verify", "--write-head", str(head))

    assert result.code == 1
    assert head.read_text() == "kept"
    assert f"{head} was left as it is" in result.out


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{}", "it is not one"),
        (b"\xff", "is not UTF-8 text"),
        (b"[" * 10_000, "recursion"),
        (b"{}" + b" " * (64 << 10), "has over 65,536 bytes"),
        (None, "cannot be read"),
    ],
    ids=["empty", "bytes", "deep", "large", "absent"],
)
def test_invalid_head_file_is_refused(cli, clock, tmp_path, text, message):
    head = tmp_path / "head.json"
    if text is not None:
        head.write_bytes(text)

    refused = cli("verify", "--against", str(head))

    assert refused.code == 64
    assert str(head) in refused.err
    assert message in refused.err


def test_head_option_for_a_single_record_is_refused(cli, clock):
    assert cli("verify", "exec-closed-0.1", "--against", "head.json").code == 64


def test_unwritable_head_file_exits_73(cli, clock, tmp_path):
    assert cli("verify", "--write-head", str(tmp_path)).code == 73
    assert cli("verify", "--write-head", str(tmp_path / "nowhere" / "head")).code == 73


@pytest.mark.parametrize("name", ["agent.db", "agent.db-wal", "agent.db-shm", "agent.db-journal", "agent.db.lock"])
def test_head_file_never_overwrites_the_database(cli, clock, database, name):
    before = database.read_bytes()

    refused = cli("verify", "--write-head", str(database.with_name(name)))

    assert refused.code == 64
    assert database.read_bytes() == before
    assert cli("verify").code == 0


def test_hostile_text_in_a_record_is_printed_escaped(cli, clock, database):
    change(database, "UPDATE executions SET id = 'exec-\x1b[31m' || char(10) || 'FAIL' WHERE id = 'exec-closed-0.1'")

    shown = cli("verify").out

    assert all(line.isprintable() for line in shown.splitlines()), shown
    assert "\\x1b" in shown


# The file itself


def test_db_check_of_a_sound_file_passes(cli, clock):
    result = cli("db", "check")

    assert result.code == 0
    assert result.out.splitlines() == ["ok    pages", "ok    keys", "ok    schema"]
    assert json.loads(cli("db", "check", "--json").out) == {"ok": True, "pages": [], "keys": [], "schema": []}


def test_dropped_guard_is_named_by_db_check(cli, clock, database):
    connection = apsw.Connection(str(database))
    connection.execute("DROP TRIGGER events_are_final")
    connection.close()

    result = cli("db", "check")

    assert result.code == 1
    assert "FAIL  schema: the trigger events_are_final is missing" in result.out


def test_damaged_file_is_reported_by_db_check_with_advice(cli, clock, database):
    connection = apsw.Connection(str(database))
    [page] = (connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'executions_id'").get,)
    connection.close()
    text = bytearray(database.read_bytes())
    text[(page - 1) * 4096 + 3 : (page - 1) * 4096 + 5] = b"\x00\x00"
    database.write_bytes(bytes(text))

    result = cli("db", "check")

    assert result.code == 65
    assert "FAIL  pages: " in result.out
    assert result.out.splitlines()[-1].startswith("the file is damaged: ")
    assert json.loads(cli("db", "check", "--json").out)["ok"] is False


@pytest.mark.parametrize("command", [("verify",), ("db", "check")])
def test_verify_and_db_check_write_nothing(cli, clock, database, command):
    before = database.read_bytes()

    assert cli(*command).code == 0

    assert database.read_bytes() == before


@pytest.mark.parametrize("command", [("verify",), ("db", "check")])
def test_verify_and_db_check_create_no_missing_file(cli, clock, database, command):
    database.unlink()

    assert cli(*command).code == 10
    assert not database.exists()


def test_record_id_may_be_shortened_while_unambiguous(cli, clock):
    assert json.loads(cli("verify", "exec-bef", "--json").out)["id"] == "exec-before.1"
    assert cli("verify", "exec-closed").code == 10
