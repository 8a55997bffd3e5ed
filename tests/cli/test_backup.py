"""`craftcore db backup` and `craftcore db restore`: output, refusals, and the state of a restored database."""

from __future__ import annotations

import os
import shutil
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import apsw
import pytest

from craftcore.daemon.lock import DaemonLock
from craftcore.storage.backup.manifest import manifest_path
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import list_migrations
from tests.cli.conftest import NOON
from tests.support.backups import ask, change
from tests.support.fake_payments import LOST, Bank
from tests.support.fakes import VirtualClock
from tests.support.processes import DaemonProcess, a_daemon, a_python, craftcore, until

# db backup


def test_backup_prints_path_size_and_manifest(cli, here, tmp_path):
    done = cli("db", "backup", "-o", "backup.db")

    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == f"{tmp_path}/backup.db: {(tmp_path / 'backup.db').stat().st_size:,} bytes, checked"
    assert lines[2] == f"manifest: {tmp_path}/backup.db.manifest.json"


def test_backup_with_json_prints_a_single_document(cli, here, tmp_path, clock):
    made = []
    for _ in range(3):
        made.append(cli("--json", "db", "backup", "--dir", "kept", "--keep", "2").json)
        clock.advance(3600)

    last = made[-1]
    assert last["file"] == f"{tmp_path}/kept/agent-20261121T140000Z.db"
    assert last["manifest"] == f"{last['file']}.manifest.json"
    assert last["taken_at"] == NOON + 7200
    assert last["taken_at_iso"] == "2026-11-21T14:00:00.000Z"
    assert last["bytes"] == Path(last["file"]).stat().st_size
    assert last["rows"]["triggers"] > 5
    assert last["removed"] == [made[0]["file"]]
    assert here.rows() == [], "the database was changed"


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["-o", "a.db", "--dir", "kept", "--keep", "1"],
        ["-o", "a.db", "--keep", "1"],
        ["--dir", "kept"],
        ["--keep", "3"],
        ["--dir", "kept", "--keep", "0"],
        ["--dir", "kept", "--keep", "many"],
        ["-o", ""],
        ["--dir", "", "--keep", "1"],
    ],
    ids=" ".join,
)
def test_backup_with_contradictory_options_is_refused(cli, here, tmp_path, arguments):
    before = set(os.listdir(tmp_path))

    assert cli("db", "backup", *arguments).code == 64
    assert set(os.listdir(tmp_path)) == before


def test_backup_exits_with_documented_codes(cli, here, database, tmp_path):
    (tmp_path / "taken.db").write_text("mine")
    assert cli("db", "backup", "-o", "taken.db").code == 73
    assert cli("db", "backup", "-o", "agent.db").code == 73
    assert cli("db", "backup", "-o", "nowhere/backup.db").code == 73
    assert cli("db", "backup", "--dir", "taken.db", "--keep", "1").code == 73
    assert cli("--db", "nowhere.db", "db", "backup", "-o", "backup.db").code == 10
    here.core.close()
    change(database, "UPDATE triggers SET priority = 1000")
    refused = cli("db", "backup", "-o", "backup.db")
    assert (refused.code, f"craftcore --db {database} db check" in refused.err) == (65, True)
    assert (tmp_path / "taken.db").read_text() == "mine"
    assert not (tmp_path / "backup.db").exists()


# verify against its head


def test_backup_manifest_serves_as_head_for_verify(cli, database, clock):
    bank = Bank(database, clock)
    bank.pay()
    assert cli("db", "backup", "-o", "early.db").code == 0
    assert cli("verify", "--against", "early.db.manifest.json").code == 0
    bank.pay()
    assert cli("verify", "--against", "early.db.manifest.json").code == 0
    assert cli("db", "backup", "-o", "late.db").code == 0
    assert cli("--json", "verify").json["head"]["place"] > 0

    assert cli("db", "restore", "early.db", "--yes").code == 0

    assert cli("verify", "--against", "early.db.manifest.json").code == 0
    result = cli("verify", "--against", "late.db.manifest.json")
    assert result.code == 1
    assert "the last ones were cut off, or this is an older copy" in result.out


@pytest.mark.parametrize("text", ['{"craftcore_backup": 1}', '{"craftcore_backup": 1, "head": null}'])
def test_manifest_without_a_head_is_refused_by_verify(cli, here, tmp_path, text):
    (tmp_path / "it.manifest.json").write_text(text)

    refused = cli("verify", "--against", "it.manifest.json")

    assert refused.code == 64
    assert "not a chain head" in refused.err


def test_database_without_a_chain_head_is_backed_up_with_a_null_head(cli, here, database, tmp_path):
    here.core.close()
    change(database, "DELETE FROM record_chain")

    assert cli("db", "backup", "-o", "backup.db").code == 0
    assert '"head": null' in (tmp_path / "backup.db.manifest.json").read_text()


# db restore


def backed_up(cli: Any, here: Any) -> None:
    assert cli("release").code == 0
    assert cli("db", "backup", "-o", "backup.db").code == 0
    here.core.close()


def test_restore_prints_the_outcome_and_writes_an_audit_row_in_the_restored_file(cli, here, database, tmp_path, clock):
    backed_up(cli, here)
    assert cli("trigger", "cancel", here.world.waiting).code == 0

    done = cli("db", "restore", "backup.db", "--yes")

    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        f"{database} is the backup of 2026-11-21T12:00:00.000Z",
        f"the one before is kept: {database}.before-restore-20261121T120000Z",
        "everything is held. Look at what was done since, then:",
        "  craftcore release",
        "where nothing ran since the backup, this also ends all doubts:",
        "  craftcore release --complete",
    ]
    assert cli("--json", "trigger", "show", here.world.waiting).json["status"] == "PENDING"
    document = cli("--json", "status").json
    assert document["held"] == "it was restored from the backup of 2026-11-21T12:00:00.000Z"
    [row] = [row for row in cli("--json", "audit").json if row["action"] == "db restore"]
    assert row["uid"] == os.getuid()
    assert row["details"]["file"] == f"{tmp_path}/backup.db"
    assert row["details"]["sha256"] == sha256((tmp_path / "backup.db").read_bytes()).hexdigest()
    assert cli("verify").code == cli("db", "check").code == 0
    assert cli("release").code == 0
    assert cli("--json", "status").json["held"] is None


def test_restore_with_json_prints_a_single_document(cli, here, database, tmp_path):
    backed_up(cli, here)

    document = cli("--json", "db", "restore", "backup.db", "--yes").json

    assert document["database"] == str(database)
    assert document["restored_from"] == f"{tmp_path}/backup.db"
    assert document["kept"] == f"{database}.before-restore-20261121T120000Z"
    assert (document["taken_at"], document["taken_at_iso"]) == (NOON, "2026-11-21T12:00:00.000Z")
    assert (document["held"], document["migrated"], document["in_doubt"]) == (True, [], 0)
    assert document["epoch"] == cli("--json", "status").json["epoch"]


def test_restore_without_yes_or_a_terminal_replaces_nothing(cli, here, database):
    backed_up(cli, here)
    before = database.read_bytes()

    refused = cli("db", "restore", "backup.db")

    assert refused.code == 64
    assert "add --yes" in refused.err
    assert "ANOTHER" not in refused.err
    assert database.read_bytes() == before


def test_restore_over_another_database_warns_before_replacing(cli, here, database, tmp_path):
    backed_up(cli, here)
    change(database, "UPDATE facts SET value = 'another-one' WHERE name = 'database_id'")
    before = database.read_bytes()

    refused = cli("db", "restore", "backup.db")

    assert refused.code == 64
    assert "which is ANOTHER database than the one that the backup is of" in refused.err
    assert database.read_bytes() == before
    assert cli("db", "restore", "backup.db", "--yes").code == 0


def test_restore_is_refused_while_a_daemon_holds_the_database(cli, here, database):
    backed_up(cli, here)
    before = database.read_bytes()

    with DaemonLock.acquire(database, pid=4711, host="here", now=NOON):
        refused = cli("db", "restore", "backup.db", "--yes")

    assert refused.code == 75
    assert "pid 4711" in refused.err
    assert "Stop that one first" in refused.err
    assert database.read_bytes() == before


def test_restore_exits_with_documented_codes(cli, here, database, tmp_path):
    backed_up(cli, here)
    before = database.read_bytes()
    shutil.copy("backup.db", "alone.db")
    shutil.copy("backup.db", "flipped.db")
    shutil.copy("backup.db.manifest.json", "flipped.db.manifest.json")
    with open("flipped.db", "r+b") as file:
        file.seek(70_000)
        byte = file.read(1)[0]
        file.seek(70_000)
        file.write(bytes([byte ^ 4]))

    assert cli("db", "restore", "nowhere.db", "--yes").code == 64
    assert cli("db", "restore", "agent.db", "--yes").code == 64
    assert cli("db", "restore", "--yes").code == 64
    assert cli("db", "restore", "alone.db", "--yes").code == 65
    manifest = cli("db", "restore", "backup.db.manifest.json", "--yes")
    assert (manifest.code, "Name the backup beside it: backup.db\n" in manifest.err) == (64, True)
    flipped = cli("db", "restore", "flipped.db", "--yes")
    assert (flipped.code, "It is damaged: take another one" in flipped.err) == (65, True)
    assert database.read_bytes() == before
    assert not [name for name in os.listdir(tmp_path) if "draft" in name or "before" in name]


def test_backup_may_be_named_by_a_symlink(cli, here, tmp_path):
    assert cli("db", "backup", "--dir", "kept", "--keep", "2").code == 0
    here.core.close()
    (tmp_path / "newest").symlink_to("kept/agent-20261121T120000Z.db")

    document = cli("--json", "db", "restore", "newest", "--yes").json

    assert document["restored_from"] == f"{tmp_path}/kept/agent-20261121T120000Z.db"


def test_old_schema_must_be_migrated_before_backup(cli, database, tmp_path):
    migrate(Database(database, VirtualClock()), VirtualClock(), list_migrations()[:-1])

    refused = cli("db", "backup", "-o", "backup.db")

    assert (refused.code, f"Run: craftcore --db {database} db migrate" in refused.err) == (65, True)
    assert not (tmp_path / "backup.db").exists()
    assert cli("db", "migrate").code == cli("db", "backup", "-o", "backup.db").code == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can restore for another user")
@pytest.mark.parametrize("is_there", [True, False])
def test_restored_files_keep_the_owner_of_the_database_when_run_by_root(cli, here, database, is_there):
    backed_up(cli, here)
    if is_there:
        os.chown(database, 65534, 65533)
    else:
        database.unlink()
        os.chown(database.parent, 65534, 65533)

    assert cli("db", "restore", "backup.db", "--yes").code == 0

    for path in (database, database.with_name("agent.db.lock")):
        found = path.stat()
        assert (found.st_uid, found.st_gid, found.st_mode & 0o777) == (65534, 65533, 0o600)


def test_symlink_to_the_database_survives_a_restore(cli, here, database, tmp_path):
    backed_up(cli, here)
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "link.db").symlink_to(database)

    assert cli("--db", "elsewhere/link.db", "db", "restore", "backup.db", "--yes").code == 0

    assert os.listdir(tmp_path / "elsewhere") == ["link.db"]
    assert (tmp_path / "elsewhere" / "link.db").is_symlink()
    assert "restored" in cli("--json", "status").json["held"]


# a restored database


def test_released_restore_is_not_held_again_at_the_next_start(cli, database, clock):
    """The lock file records the epochs after the backup."""
    bank = Bank(database, clock)
    bank.pay(LOST)
    assert cli("db", "backup", "-o", "backup.db").code == 0
    for _ in range(3):
        bank.go_on()
    last = cli("--json", "status").json["epoch"]

    assert cli("db", "restore", "backup.db", "--yes").code == 0
    assert cli("--json", "status").json["epoch"] == last + 1
    assert cli("release").code == 0
    bank.go_on()

    document = cli("--json", "status").json
    assert (document["epoch"], document["held"]) == (last + 2, None)


def test_release_of_a_complete_file_ends_its_doubt_once_and_is_audited(cli, database, clock):
    bank = Bank(database, clock)
    bank.pay(LOST)
    assert cli("db", "backup", "-o", "backup.db").code == 0
    assert cli("db", "restore", "backup.db", "--yes").code == 0
    assert cli("--json", "release").json["doubt_ended"] is False
    assert ask(database, "SELECT count(*) FROM facts WHERE name LIKE 'restored%'") == [(3,)]

    done = cli("release", "--complete")

    assert done.out.splitlines() == [
        "the restored file was complete: nothing more is in doubt because of the restore",
        "nothing was held",
    ]
    assert cli("--json", "audit").json[0]["details"] == {"complete": True}
    assert ask(database, "SELECT count(*) FROM facts WHERE name LIKE 'restored%'") == [(0,)]
    assert "nothing was in doubt because of a restore" in cli("release", "--complete").out
    assert cli("release", "--complete", "--workflow", "nap").code == 64


@pytest.mark.parametrize("lock", ["there", "gone", "of another database"])
def test_restored_database_is_held_for_every_state_of_the_lock_file(cli, database, clock, lock):
    bank = Bank(database, clock)
    bank.pay(LOST)
    assert cli("db", "backup", "-o", "backup.db").code == 0
    bank.go_on()
    note = database.with_name("agent.db.lock")
    if lock == "gone":
        note.unlink()
    elif lock == "of another database":
        note.write_text(note.read_text().replace('"database_id": "', '"database_id": "x'))

    assert cli("db", "restore", "backup.db", "--yes").code == 0
    bank.go_on()

    assert "it was restored from the backup" in cli("--json", "status").json["held"]
    assert ask(database, "SELECT count(*) FROM facts WHERE name = 'restored_at'") == [(1,)]


def test_restore_and_a_plain_file_copy_end_in_the_same_state(cli, database, clock, tmp_path):
    bank = Bank(database, clock)
    for answer in (LOST, "ref-1"):
        bank.pay(answer)
    assert cli("db", "backup", "-o", "backup.db").code == 0
    bank.pay()
    clock.advance(60)

    def then() -> list[Any]:
        bank.go_on()
        facts = "SELECT name FROM facts WHERE name <> 'released_epoch' ORDER BY name"
        tables = (facts, "SELECT seq, status FROM activity_log ORDER BY seq", "SELECT id, status, turn FROM tasks")
        return [ask(database, sql) for sql in (*tables, "SELECT id, status, reason FROM triggers ORDER BY seq")]

    assert cli("db", "restore", "backup.db", "--yes").code == 0
    by_us = then()
    shutil.copy("backup.db", database)

    assert then() == by_us


APP = """
import asyncio, os
from craftcore import App
from craftcore.engine import engine

engine.DRAIN_SECONDS = 120.0
app = App("test")

@app.action("pay", irreversible=True, timeout=600)
async def pay(call, *, who):
    with open("calls", "a") as file:
        file.write(who + "\\n")
    while who == "slow" and not os.path.exists("answer"):
        await asyncio.sleep(0.01)
    return who

@app.workflow("slow")
async def slow(ctx):
    return await ctx.act(pay, who="slow")

@app.workflow("late")
async def late(ctx):
    await ctx.wait_for("go")
    return await ctx.act(pay, who="late")

@app.workflow("count")
async def count(number: int = 0) -> int:
    return number
"""


def calls(folder: Path) -> list[str]:
    path = folder / "calls"
    return path.read_text().split() if path.exists() else []


@pytest.mark.parametrize("machine", ["the same", pytest.param("a new one", marks=pytest.mark.acceptance)])
def test_restored_database_runs_nothing_until_release_and_pays_nothing_twice(tmp_path, machine):
    """One payment was in flight during the backup, and another was made after it."""
    (tmp_path / "app.py").write_text(APP)
    with a_daemon(tmp_path, "app:app") as daemon:
        daemon.ready()
        slow = craftcore(tmp_path, "--json", "emit", "slow").json["id"]
        late = craftcore(tmp_path, "--json", "emit", "late").json["id"]
        until(lambda: calls(tmp_path) == ["slow"], "the call")
        until(lambda: craftcore(tmp_path, "--json", "task", "show", late).json["status"] == "WAITING", "the wait")
        assert craftcore(tmp_path, "db", "backup", "-o", "backup.db").code == 0
        assert craftcore(tmp_path, "task", "signal", late, "go").code == 0
        until(lambda: calls(tmp_path) == ["slow", "late"], "the call")
        assert craftcore(tmp_path, "db", "restore", "backup.db", "--yes").code == 75
        (tmp_path / "answer").touch()
        until(lambda: craftcore(tmp_path, "--json", "task", "show", late).json["status"] == "DONE", "its end")
        daemon.kill()
    home = tmp_path
    if machine == "a new one":
        home = tmp_path / "new"
        home.mkdir()
        for name in ("app.py", "calls", "backup.db", "backup.db.manifest.json"):
            shutil.copy(tmp_path / name, home / name)

    restored = craftcore(home, "--json", "db", "restore", "backup.db", "--yes").json

    assert restored["in_doubt"] == 1
    [doubt] = craftcore(home, "--json", "activity", "list").json
    assert (doubt["status"], doubt["task_id"]) == ("UNKNOWN", slow)
    assert craftcore(home, "verify").code == craftcore(home, "db", "check").code == 0
    number = craftcore(home, "--json", "emit", "count").json["id"]
    with a_daemon(home, "app:app") as daemon:
        daemon.ready()
        assert "it was restored" in craftcore(home, "status").out
        assert craftcore(home, "task", "signal", late, "go").code == 0
        assert craftcore(home, "--json", "trigger", "show", number).json["status"] == "PENDING"

        assert craftcore(home, "release").code == 0

        asked = until(lambda: list_two_questions(home), "the questions")
        until(lambda: craftcore(home, "--json", "trigger", "show", number).json["status"] == "DONE", "its turn")
    assert {question["task_id"] for question in asked} == {slow, late}
    assert calls(home) == ["slow", "late"], "a call was repeated"


def list_two_questions(home: Path) -> list[Any] | None:
    asked = craftcore(home, "--json", "inbox", "list").json
    return asked if len(asked) == 2 else None


WRITER = """
from craftcore import Producer
with Producer("agent.db") as producer, open("accepted", "a", buffering=1) as accepted:
    number = 0
    while True:
        number += 1
        accepted.write(producer.emit("count", {"number": number}).id + "\\n")
"""


@pytest.mark.parametrize("count_of_backups", [2, pytest.param(4, marks=pytest.mark.acceptance)])
def test_backup_beside_a_daemon_and_a_producer_is_consistent(tmp_path, count_of_backups):
    (tmp_path / "app.py").write_text(APP)

    def accepted() -> list[str]:
        path = tmp_path / "accepted"
        return path.read_text().split("\n")[:-1] if path.exists() else []

    def is_working(daemon: DaemonProcess, count: int) -> bool:
        assert daemon.process.poll() is None
        return len(accepted()) > count

    backups: list[tuple[Path, int]] = []
    with a_daemon(tmp_path, "app:app") as daemon:
        daemon.ready()
        with a_python(["-c", WRITER], tmp_path):
            for _ in range(count_of_backups):
                count = len(accepted())
                until(partial(is_working, daemon, count + 50), "the producer")
                before = len(accepted())
                made = craftcore(tmp_path, "--json", "db", "backup", "-o", f"{before}.db")
                assert made.code == 0, made
                backups.append((tmp_path / f"{before}.db", before))
        daemon.kill()
    ids = [id for (id,) in ask(tmp_path / "agent.db", "SELECT id FROM triggers ORDER BY seq")]
    for file, before in backups:
        there = [id for (id,) in ask(file, "SELECT id FROM triggers ORDER BY seq")]
        assert there == ids[: len(there)]
        assert set(accepted()[:before]) <= set(there)
        assert manifest_path(file).exists()
        connection = apsw.Connection(str(file), flags=apsw.SQLITE_OPEN_READONLY)
        assert connection.pragma("integrity_check") == "ok"
        connection.close()
    assert craftcore(tmp_path, "db", "restore", backups[-1][0].name, "--yes").code == 0
    assert craftcore(tmp_path, "verify").code == 0


def test_refused_restore_of_a_new_database_leaves_no_file(cli, here, tmp_path):
    cli("db", "backup", "-o", "good.db")
    here.core.close()
    (tmp_path / "good.db").chmod(0o600)
    with (tmp_path / "good.db").open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")
    folder = tmp_path / "new"
    folder.mkdir(mode=0o700)

    refused = cli("--db", str(folder / "r2.db"), "db", "restore", "good.db", "--yes")

    assert refused.code == 65
    assert list(folder.iterdir()) == []


def test_refused_restore_keeps_the_lock_file_of_a_database(cli, here, tmp_path, database):
    cli("db", "backup", "-o", "good.db")
    here.core.close()
    with (tmp_path / "good.db").open("r+b") as file:
        file.seek(5000)
        file.write(b"damage")

    refused = cli("db", "restore", "good.db", "--yes")

    assert refused.code == 65
    assert Path(f"{database}.lock").exists()
