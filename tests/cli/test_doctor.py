"""`craftcore doctor`: each check on a sound database, and on one with the fault that the check finds."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import apsw
import pytest

from craftcore.daemon.doorbell import Doorbell
from craftcore.daemon.doorbell_probe import answers_doorbell
from craftcore.daemon.lock import DaemonLock
from craftcore.daemon.lock_note import LockInfo
from craftcore.diagnostics.daemon import DaemonState, daemon_findings
from craftcore.diagnostics.disk_space import DiskSpace
from craftcore.diagnostics.environment import Place, Seen, configuration, disk, owner_findings, wal
from craftcore.diagnostics.file import ChainState, chain
from craftcore.diagnostics.finding import Level
from craftcore.diagnostics.work import (
    Work,
    claims,
    clock,
    doubt_finding,
    failure_finding,
    held_findings,
    held_tasks,
    size_of_file,
    zones,
)
from craftcore.engine.live_state import LiveState
from craftcore.retention.size_limit import Size
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.database import Database
from craftcore.storage.facts import set_fact
from craftcore.storage.migrate import migrate
from craftcore.storage.migrations import list_migrations
from craftcore.triggers.listing_store import FailedLately
from craftcore.triggers.start_holds import StartHolds
from tests.cli.conftest import NOON
from tests.support.fake_payments import LOST, NOTHING, Bank
from tests.support.processes import APP, a_daemon, a_reader, craftcore
from tests.support.trigger_steps import claim_one, emit, run_one

HOUR = 3600.0
EVERYTHING = {
    "machine zone",
    *(
        "durability",
        "directory",
        "name",
        "permissions",
        "owner",
        "disk",
        "WAL",
        "SQLite",
        "schema",
        "integrity",
        "records",
    ),
    *(
        "lock file",
        "daemon",
        "held",
        "claims",
        "held tasks",
        "states",
        "failed",
        "in doubt",
        "retention",
        "dead letters",
        "schedules",
        "time zones",
        "clock",
        "unit",
    ),
}


@pytest.fixture(autouse=True)
def _no_unit_of_this_machine(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setattr("craftcore.diagnostics.unit.SYSTEM_FOLDERS", ())


@pytest.fixture
def found(cli, database):
    """Return a function that checks the exit code and returns check -> (level, text, command), the worst of each."""

    def found(*options):
        done = cli("--json", "doctor", *options)
        document = done.json
        failed = [one for one in document["checks"] if one["level"] == "FAIL"]
        assert (done.code, document["ok"], document["failed"]) == (1 if failed else 0, not failed, len(failed)), done
        worst_last = sorted(document["checks"], key=lambda one: ["ok", "warn", "FAIL"].index(one["level"]))
        return {one["check"]: (one["level"], one["text"], one["do"]) for one in worst_last}

    return found


def levels(found):
    return {check: level for check, (level, _, _) in found.items() if level != "ok"}


# as a whole


def test_invariants_are_checked_on_demand_after_the_other_checks(core, found, database):
    assert "invariants" not in found()
    checks = found("--invariants")

    assert set(checks) == {*EVERYTHING, "invariants"}
    assert checks["invariants"][0] == "ok"


def test_violation_of_an_invariant_is_a_failure_with_its_name_and_row(core, found, database):
    trigger = emit(core).id
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET attempts = 2 WHERE id = :id", id=trigger)

    checks = found("--invariants")

    assert "invariants" not in checks
    level, text, _ = checks["attempts-are-starts"]
    assert level == "FAIL"
    assert text.startswith(f"{trigger}: it counts 2 attempts, 0 crashes and 0 starts. ")


def test_doctor_reports_every_check_on_a_sound_database(cli, core, found, database):
    checks = found()

    assert set(checks) == EVERYTHING
    assert levels(checks) == {"daemon": "warn"}
    assert checks["daemon"][1:] == ("none runs on this database", f"craftcore --db {database} run MODULE:APP")
    lines = cli("doctor").out.splitlines()
    assert "warn  daemon        none runs on this database" in lines
    assert f"      craftcore --db {database} run MODULE:APP" in lines
    assert lines[-1] == "0 FAIL, 1 warn"


def test_running_daemon_passes_every_doctor_check(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    folder = tmp_path / "state"
    folder.mkdir(0o700)
    shutil.copy(tmp_path / "app.py", folder)
    nowhere = {"XDG_CONFIG_HOME": str(tmp_path)}
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()

        result = craftcore(folder, "doctor", "--full", **nowhere)
        running = craftcore(folder, "--json", "doctor", **nowhere).json["checks"]

        assert result.code == 0, result
        assert {one["check"]: one["text"] for one in running}["doorbell"] == "is heard"
        assert f"ok    daemon        pid {daemon.pid} on " in result.out
        assert "every page, index and foreign key" in result.out
        daemon.signal(signal.SIGSTOP)
        assert not answers_doorbell(folder / "agent.db", 0.2)
        daemon.signal(signal.SIGCONT)
        assert answers_doorbell(folder / "agent.db", 60)


def test_doctor_works_read_only_and_creates_no_file(cli, core, database):
    core.close()
    before = database.read_bytes()

    for options in ((), ("--full",)):
        assert cli("--read-only", "doctor", *options).code == 0

    assert database.read_bytes() == before
    assert {path.name for path in database.parent.iterdir()} <= {"agent.db", "agent.db-wal", "agent.db-shm"}


def test_doctor_without_a_database_fails_and_creates_none(cli, database, found):
    checks = found()

    assert (checks["database"][0], checks["database"][2]) == ("FAIL", f"craftcore --db {database} run MODULE:APP")
    assert list(database.parent.iterdir()) == []


def test_failed_doctor_check_does_not_stop_the_others(cli, core, found):
    """One of the checks reads a row whose text is not valid UTF-8."""
    cli("schedule", "add", "tick", "every 1h", "--workflow", "greet")
    core.do(lambda tx: tx.run("UPDATE schedules SET timezone = CAST(x'ff' AS TEXT)"))

    checks = found()

    assert levels(checks) == {"daemon": "warn", "work": "FAIL"}
    assert "a damaged row cannot be read" in checks["work"][1]
    assert checks["integrity"][0] == "ok"


# settings and place


@pytest.mark.parametrize(
    ("text", "check", "level", "words"),
    [
        ("", "durability", "ok", "every commit is flushed"),
        ('[storage]\nsynchronous = "normal"\n', "durability", "warn", "lost with the power"),
        ("[log]\nlevle = 1\n", "settings", "FAIL", "did you mean 'level'"),
    ],
)
def test_doctor_reads_the_settings(core, found, tmp_path, monkeypatch, text, check, level, words):
    (tmp_path / "c.toml").write_text(text)
    monkeypatch.setenv("CRAFTCORE_CONFIG", str(tmp_path / "c.toml"))

    finding = found()[check]

    assert (finding[0], words in finding[1]) == (level, True)


@pytest.mark.parametrize(
    ("name", "mode", "check", "level"),
    [
        ("", 0o755, "directory", "warn"),
        ("", 0o770, "directory", "FAIL"),
        ("", 0o1777, "directory", "warn"),
        ("agent.db", 0o640, "permissions", "FAIL"),
        ("agent.db.lock", 0o604, "permissions", "FAIL"),
        ("agent.db.bell", 0o660, "permissions", "FAIL"),
        ("c.toml", 0o644, "settings", "ok"),
        ("c.toml", 0o664, "settings", "FAIL"),
    ],
)
def test_loose_file_permissions_are_reported_with_a_working_chmod(
    core, found, tmp_path, monkeypatch, name, mode, check, level
):
    (tmp_path / "c.toml").write_text("")
    (tmp_path / "c.toml").chmod(0o600)
    monkeypatch.setenv("CRAFTCORE_CONFIG", str(tmp_path / "c.toml"))
    monkeypatch.setattr("craftcore.diagnostics.daemon.ANSWER_SECONDS", 0.1)  # no daemon answers this doorbell
    with daemon_lock(tmp_path / "agent.db"), contextlib.closing(Doorbell.open(tmp_path / "agent.db")):
        path = tmp_path / name
        path.chmod(mode)

        checks = found()

        assert checks[check][0] == level
        if level != "ok":
            assert checks[check][2].startswith("chmod ")
            subprocess.run(found()[check][2].split(), check=True)
            assert found()[check][0] == "ok"


@contextlib.contextmanager
def daemon_lock(path):
    with DaemonLock.acquire(path, pid=os.getpid(), host="here", now=NOON):
        yield


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_created_by_root_is_reported_with_a_chown_command(core, found, database):
    core.close()
    for path in (database.parent, database):
        os.chown(path, 65_534, 65_534)
    with daemon_lock(database):
        pass

    checks = found()

    assert checks["owner"][0] == "FAIL"
    assert f"{database}.lock belongs to user id 0, the database to 65534" in checks["owner"][1]
    assert checks["owner"][2] == f"chown --reference={database} {database}.lock"
    os.chown(f"{database}.lock", 65_534, 65_534)
    assert found()["owner"] == ("ok", "all of it belongs to user id 65534", None)


DATABASE = Seen(path="/x/agent.db", mode=0o600, uid=7)
PLACE = Place(
    user=7,
    folder=Seen(path="/x", mode=0o700, uid=7),
    database=DATABASE,
    beside=[DATABASE],
    config=None,
    room=DiskSpace(bytes=10 << 30, inodes=None),
    bytes=1 << 20,
    wal_bytes=128 << 20,
    wal_in_use=64 << 20,
)


@pytest.mark.parametrize(
    ("rule", "change", "level"),
    [
        (disk, {}, "ok"),
        (disk, {"room": DiskSpace(bytes=(64 << 20) - 1, inodes=None)}, "FAIL"),
        (disk, {"room": DiskSpace(bytes=10 << 30, inodes=0)}, "FAIL"),
        (disk, {"room": DiskSpace(bytes=(512 << 20) - 1, inodes=None)}, "warn"),
        (disk, {"room": DiskSpace(bytes=10 << 30, inodes=999)}, "warn"),
        (disk, {"bytes": (10 << 30) + 1}, "warn"),
        (wal, {}, "ok"),
        (wal, {"wal_in_use": (64 << 20) + 1}, "warn"),
        (wal, {"wal_in_use": 32 << 20, "wal_readers": (4711,)}, "ok"),
        (wal, {"wal_readers": (4711,)}, "warn"),
        (owner_findings, {}, "ok"),
        (owner_findings, {"user": 8}, "warn"),
        (owner_findings, {"user": 0}, "ok"),
        (owner_findings, {"folder": Seen(path="/x", mode=0o700, uid=0)}, "warn"),
        (configuration, {"config": Seen(path="/c", mode=0o644, uid=0)}, "ok"),
        (configuration, {"config": Seen(path="/c", mode=0o600, uid=8)}, "FAIL"),
    ],
)
def test_doctor_rule_judges_states_a_test_disk_cannot_produce(rule, change, level):
    finding = rule(replace(PLACE, **change))

    assert [one.level.value for one in (finding if not hasattr(finding, "level") else [finding])] == [level]


# the file


def test_wal_pinned_by_a_reader_is_reported_with_the_process_id(core, found, database, monkeypatch):
    monkeypatch.setattr("craftcore.diagnostics.health.WAL_LONG", 1 << 20)
    with a_reader(database) as pid:
        for number in range(40):
            core.do(set_fact, f"large {number}", "x" * 50_000)
        level, text, do = found()["WAL"]
        assert (level, do) == ("warn", f"ps -fp {pid}")
        assert f"process {pid} keeps a snapshot open" in text

        monkeypatch.setattr("craftcore.storage.files.wal_locks.LOCKS", database.with_name("none"))
        assert found()["WAL"][0] == "ok", "the WAL is below its automatic limit"
        monkeypatch.setattr("craftcore.diagnostics.health.WAL_LARGE_BYTES", 1 << 20)
        assert found()["WAL"][::2] == ("warn", f"fuser -v {database}")
    core.close()
    assert found()["WAL"][0] == "ok"


def test_file_that_is_not_a_database_is_reported_without_guessing_the_rest(cli, found, database):
    database.write_text("This is not a database. " * 100)
    database.chmod(0o600)

    checks = found()

    assert levels(checks) == {"database": "FAIL", "work": "warn"}
    assert "not an SQLite database" in checks["database"][1]


@pytest.mark.parametrize("options", [(), ("--full",)])
def test_damaged_page_is_found_and_the_error_names_restore(core, found, database, cli, options):
    for _ in range(200):
        emit(core)
    root = core.rows("SELECT rootpage FROM sqlite_schema WHERE name = 'triggers_id'")[0]["rootpage"]
    core.close()
    with database.open("r+b") as file:
        file.seek((root - 1) * 4096)
        file.write(b"\xff" * 200)

    checks = found(*options)

    assert checks["integrity"][0] == "FAIL"
    assert levels(checks)["integrity"] == "FAIL"
    met = cli("trigger", "show", "0")
    assert met.code == 65
    assert met.err.endswith("Restore a backup: craftcore db restore FILE\n")


def test_index_mismatch_is_found_only_by_the_full_check(core, found, database):
    """A row was written while the index was hidden; the pages are intact."""
    core.close()
    connection = apsw.Connection(str(database))
    connection.pragma("writable_schema", True)
    [index] = connection.execute("SELECT * FROM sqlite_schema WHERE name = 'triggers_session'")
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'triggers_session'")
    connection.close()
    connection = apsw.Connection(str(database))
    connection.execute(
        "INSERT INTO triggers (id, source, session_id, fire_at, due_at, priority, payload_json, created_at, updated_at)"
        " VALUES ('t', 'IMMEDIATE', 's', 1, 1, 1, '{}', 1, 1)"
    )
    connection.pragma("writable_schema", True)
    connection.execute("INSERT INTO sqlite_schema VALUES (?, ?, ?, ?, ?)", index)
    connection.close()

    assert found()["integrity"][0] == "ok"
    checks = found("--full")

    assert checks["integrity"][0] == "FAIL"
    assert "missing from index triggers_session" in checks["integrity"][1]


def test_missing_index_is_reported(core, found):
    core.do(lambda tx: tx.run("DROP INDEX triggers_session"))

    assert found()["schema"][0] == "FAIL"
    assert "the index triggers_session is missing" in found()["schema"][1]


def test_old_schema_points_to_migrate_and_a_newer_schema_is_refused(cli, found, database, clock):
    migrate(Database(database, clock), clock, list_migrations()[:-1])
    checks = found()
    assert checks["schema"] == ("FAIL", checks["schema"][1], f"craftcore --db {database} db migrate")
    assert list_migrations()[-1].name in checks["schema"][1]

    assert cli("db", "migrate").code == 0
    assert found()["schema"][0] == "ok"

    connection = apsw.Connection(str(database))
    connection.execute("INSERT INTO schema_migrations VALUES ('9999_later', 'x', 1)")
    connection.close()
    assert "written by a newer craftcore" in found()["schema"][1]


def test_journal_mode_other_than_wal_is_reported(core, found, database):
    core.close()
    connection = apsw.Connection(str(database))
    connection.pragma("journal_mode", "delete")
    connection.close()

    assert found()["journal"][0] == "warn"


def test_chain_head_is_compared_with_the_last_record(cli, found, database, clock):
    bank = Bank(database, clock)
    bank.pay()
    bank.pay()
    assert found()["records"][:2] == (
        "ok",
        "the chain ends at place 2, with the record that was closed last. To check them all",
    )

    connection = apsw.Connection(str(database))
    connection.execute("UPDATE record_chain SET head_seq = 1")
    connection.close()

    check = found()["records"]
    assert (check[0], check[2]) == ("FAIL", f"craftcore --db {database} verify")
    connection = apsw.Connection(str(database))
    connection.execute("DELETE FROM record_chain")
    connection.close()
    assert "no one head" in found()["records"][1]


def test_older_copy_of_the_file_is_detected_by_the_lock_file(core, found, database):
    core.do(set_fact, "database_id", "d1")
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON) as lock:
        lock.write(database_id="d1", epoch=0, call_mark=0)
    assert found()["lock file"] == ("ok", "remembers this database, at epoch 0", None)

    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON) as lock:
        lock.write(database_id="d1", epoch=3, call_mark=0)
    assert "it is an older copy" in found()["lock file"][1]

    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON) as lock:
        lock.write(database_id="d2", epoch=3, call_mark=0)
    assert found()["lock file"][0] == "warn"
    assert "another database" in found()["lock file"][1]


def test_older_copy_of_the_same_epoch_is_detected_by_missing_calls(core, found, database):
    core.do(set_fact, "database_id", "d1")
    core.do(set_fact, "call_mark", "4")
    for mark, level in ((3, "ok"), (4, "ok"), (5, "warn")):
        with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON) as lock:
            lock.write(database_id="d1", epoch=0, call_mark=mark)
        assert found()["lock file"][0] == level
    assert "irreversible calls up to mark 5, and this file up to 4: it is an older copy" in found()["lock file"][1]


def test_records_removed_by_retention_are_not_missed():
    ends = ChainState(head=(7, "h"), removed_to=7, newest=[])

    assert chain(ends).level is Level.OK
    assert chain(replace(ends, removed_to=6)).level is Level.FAIL, "the last record is missing"
    assert chain(replace(ends, newest=[(7, "other")])).level is Level.FAIL


# the daemon

NOTE = LockInfo(pid=5, host="here", started_at=NOON)


@pytest.mark.parametrize(
    ("running", "booted_at", "levels"),
    [
        (DaemonState(note=NOTE, held=True, has_bell=True, is_heard=True), NOON, {"daemon": "ok", "doorbell": "ok"}),
        (DaemonState(note=NOTE, held=True, has_bell=True, is_heard=False), NOON, {"daemon": "FAIL"}),
        (DaemonState(note=NOTE, held=True, has_bell=True, is_heard=False), NOON - 1, {"daemon": "warn"}),
        (DaemonState(note=NOTE, held=True, has_bell=True, is_heard=False), None, {"daemon": "warn"}),
        (DaemonState(note=NOTE, held=True, has_bell=False, is_heard=False), NOON, {"doorbell": "FAIL"}),
        (DaemonState(note=NOTE, held=True, has_bell=False, is_heard=False), NOON - 1, {"daemon": "warn"}),
        (DaemonState(note=NOTE, held=True, has_bell=False, is_heard=False), None, {"daemon": "warn"}),
        (
            DaemonState(note=NOTE, held=True, has_bell=True, is_heard=True, replaced="/a/agent.db-wal"),
            NOON,
            {"open files": "FAIL", "daemon": "ok", "doorbell": "ok"},
        ),
        (DaemonState(note=None, held=True, has_bell=True, is_heard=True), None, {"daemon": "ok", "doorbell": "ok"}),
        (DaemonState(note=NOTE, held=False, has_bell=True, is_heard=False), NOON, {"daemon": "warn", "doorbell": "ok"}),
        (DaemonState(note=None, held=False, has_bell=False, is_heard=False), None, {"daemon": "warn"}),
    ],
)
def test_daemon_findings_match_the_state_of_the_daemon(running, booted_at, levels):
    assert {one.code: one.level.value for one in daemon_findings(running, booted_at, LiveState(epoch=1))} == levels


def test_daemon_that_holds_the_lock_and_ignores_the_doorbell_is_stuck(core, found, database, monkeypatch):
    monkeypatch.setattr("craftcore.diagnostics.daemon.ANSWER_SECONDS", 0.1)
    booted = "INSERT INTO epochs (epoch, boot_id, pid, host, version, started_at) VALUES (1, 'b', 1, 'h', '1', :at)"
    core.do(lambda tx: tx.run(booted, at=NOON))
    with daemon_lock(database), contextlib.closing(Doorbell.open(database)):
        check = found()["daemon"]

    assert check[0] == "FAIL"
    assert "does not answer, so its event loop is stuck" in check[1]


# its work


def test_hold_is_reported_until_release(cli, core, found, database):
    core.do(set_fact, "safe_mode", "6 unclean starts")
    core.do(set_fact, "held", "it was restored")
    assert found()["held"][0] == "warn"
    assert found()["held"][2] == f"craftcore --db {database} release"
    assert "everything is held: it was restored" in cli("doctor").out

    core.do(lambda tx: tx.run("DELETE FROM facts WHERE name = 'held'"))
    assert "6 unclean starts" in found()["held"][1]

    core.do(lambda tx: tx.run("DELETE FROM facts"))
    assert found()["held"] == ("ok", "nothing is", None)


def test_claims_of_a_dead_daemon_are_reported(core, found, database, clock):
    begun = "INSERT INTO epochs (epoch, boot_id, pid, host, version, started_at) VALUES (:epoch, 'b', 1, 'h', '1', :at)"
    emit(core)
    claim_one(core)
    [claimed] = core.rows("SELECT claimed_epoch FROM triggers")
    core.do(lambda tx: tx.run(begun, epoch=claimed["claimed_epoch"], at=NOON))
    assert found()["claims"][0] == "warn", "the finding does not depend on a running daemon"

    with daemon_lock(database):
        assert found()["claims"][0] == "ok"
        clock.advance(hours=1)
        assert "did not extend it" in found()["claims"][1]
        core.do(lambda tx: tx.run(begun, epoch=9, at=NOON))
        assert found()["claims"][0] == "FAIL"
        assert "took nothing back" in found()["claims"][1]


def test_actions_in_doubt_and_dead_letters_are_reported_with_commands(found, database, clock):
    bank = Bank(database, clock)
    bank.pay()
    assert {"in doubt", "dead letters"}.isdisjoint(levels(found()))
    unknown = bank.pay(LOST)
    bank.pay(NOTHING)

    checks = found()

    assert checks["in doubt"][::2] == ("warn", f"craftcore --db {database} activity show activity:{unknown}:1.1")
    assert checks["dead letters"][0] == "warn"
    assert checks["dead letters"][1].startswith("1, the newest 0.0 s ago")


def test_schedule_with_an_unknown_time_zone_is_reported(cli, core, found, database, clock):
    spec = ScheduleSpec(id="odd", when="@daily", workflow="greet", timezone="Europe/Berlin")
    core.do(core.schedules.put, spec, Origin.OPERATOR)
    assert {"schedules", "time zones"}.isdisjoint(levels(found()))
    core.do(lambda tx: tx.run("UPDATE schedules SET timezone = 'Mars/Olympus', next_at = :now", now=NOON))

    assert "does not know Mars/Olympus" in found()["time zones"][1]

    core.do(core.ticks.tick)
    checks = found()
    assert checks["schedules"][::2] == ("FAIL", f"craftcore --db {database} schedule why odd")
    assert checks["time zones"][0] == "ok", "a disabled schedule needs no zone"


def test_schedules_ahead_and_a_clock_behind_are_reported(cli, core, found, clock):
    core.do(core.schedules.put, ScheduleSpec(id="s", when="every 1h", workflow="greet"), Origin.OPERATOR)
    clock.advance(hours=2)
    core.do(core.ticks.tick)
    core.do(set_fact, "clock_seen_at", repr(clock.now()))
    clock.set_back(2 * HOUR)

    checks = found()
    assert "ahead of the clock, so they wait: s" in checks["schedules"][1]
    assert "it is 2 h behind the latest time" in checks["clock"][1]

    core.do(set_fact, "clock_held", repr(NOON + HOUR))
    assert "trust-clock" in found()["clock"][2]
    assert cli("schedule", "trust-clock").code == 0
    assert cli("schedule", "reanchor").code == 0
    assert {"schedules", "clock"}.isdisjoint(levels(found()))


def test_live_task_with_a_state_near_its_limit_is_reported(found, here, core):
    def leave(size: int) -> None:
        state = f'"{"x" * (size - 2)}"'
        core.do(
            lambda tx: tx.run("UPDATE tasks SET state_json = :state WHERE id = :id", state=state, id=here.world.nap)
        )

    leave(838_860)
    assert found()["states"][0] == "ok"
    leave(838_861)
    level, text, command = found()["states"]
    assert (level, command.split()[-1]) == ("warn", here.world.nap)
    assert "1 live task above 80 % of tasks.state_max_bytes. The largest has 838,861 of 1,048,576 bytes. Keep" in text
    leave(1_048_577)
    assert "of 1,048,576 bytes, so its next turn is refused. Keep" in found()["states"][1]


WORK = Work(
    now=NOON,
    daemon_runs=True,
    booting=False,
    lease_seconds=60.0,
    paused=False,
    holds=StartHolds(),
    claimed=0,
    of_earlier=0,
    lease_until=None,
    in_doubt=0,
    oldest_in_doubt=None,
    dead=0,
    poison=0,
    newest_dead_at=None,
    schedules=0,
    stopped=[],
    ahead=[],
    unknown_zones=[],
    zones=0,
    clock_held_until=None,
    stamped_ahead=0,
    delayed=[],
    last_seen=None,
    set_back=None,
    held_tasks=0,
    failed=FailedLately(0, None),
)


@pytest.mark.parametrize(
    ("rule", "change", "level"),
    [
        (claims, {}, "ok"),
        (lambda work: next(held_findings(work)), {"paused": True}, "warn"),
        (claims, {"claimed": 1, "lease_until": NOON - 600}, "ok"),
        (claims, {"claimed": 1, "lease_until": NOON - 601}, "FAIL"),
        (held_tasks, {}, "ok"),
        (held_tasks, {"held_tasks": 1}, "warn"),
        (failure_finding, {}, "ok"),
        (failure_finding, {"failed": FailedLately(2, "VALIDATION_ERROR")}, "warn"),
        (doubt_finding, {}, "ok"),
        (size_of_file, {}, "ok"),
        (size_of_file, {"size": Size(799, 1_000, None)}, "ok"),
        (size_of_file, {"size": Size(800, 1_000, 5_000)}, "warn"),
        (size_of_file, {"size": Size(10**15, 0, None)}, "ok"),
        (zones, {}, "ok"),
        (clock, {}, "ok"),
        (clock, {"last_seen": NOON + 5}, "ok"),
        (clock, {"last_seen": NOON + 6}, "warn"),
        (clock, {"set_back": (NOON - HOUR, 60.0)}, "warn"),
        (clock, {"set_back": (NOON - 8 * 24 * HOUR, 60.0)}, "ok"),
        (clock, {"clock_held_until": NOON}, "ok"),
        (clock, {"clock_held_until": NOON + 1}, "warn"),
    ],
)
def test_doctor_rules_change_level_at_the_limit(rule, change, level):
    assert rule(replace(WORK, **change)).level is Level(level)


def test_finished_trigger_causes_no_finding(core, found):
    emit(core)
    run_one(core)

    assert levels(found()) == {"daemon": "warn"}


# the unit


def install(tmp_path, text, *, enabled=True):
    folder = tmp_path / "config" / "systemd" / "user"
    (folder / "default.target.wants").mkdir(parents=True, exist_ok=True)
    (folder / "craftcore.service").write_text(text)
    link = folder / "default.target.wants" / "craftcore.service"
    link.unlink(missing_ok=True)
    if enabled:
        link.symlink_to(folder / "craftcore.service")
    return folder / "craftcore.service"


OURS = """
[Service]
Environment=CRAFTCORE_APP= "CRAFTCORE_DB={database}"
ExecStart=/usr/bin/env craftcore run $CRAFTCORE_APP
"""


def test_enabled_unit_for_this_database_passes(core, found, database, tmp_path):
    path = install(tmp_path, OURS.format(database=database))

    assert found()["unit"] == ("ok", f"{path} is ours, for this database, and enabled", None)


@pytest.mark.parametrize(
    "text",
    [
        "[Service]\nExecStart=craftcore --db {database} run app:app\n",
        "[Service]\nExecStart=craftcore run --db={database}\n",
        "[Service]\nEnvironmentFile=-{folder}/environment\nExecStart=craftcore run\nStateDirectory=elsewhere\n",
        "[Service]\nEnvironmentFile=-%h/environment\nExecStart=craftcore run\n",
        "[Service]\nExecStart=craftcore run\nStateDirectory=craftcore\n",
        "[Service]\nExecStart=craftcore run\n",
    ],
)
def test_unit_may_name_the_database_in_several_ways(core, cli, found, database, tmp_path, monkeypatch, text):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    there = tmp_path / ("elsewhere" if "environment" in text else "state/craftcore") / "craftcore.db"
    there.parent.mkdir(0o700, parents=True)
    core.close()
    shutil.copy(database, there)
    (tmp_path / "environment").write_text(f"# ours\nCRAFTCORE_DB={there}\n")
    install(tmp_path, text.format(database=there, folder=tmp_path))

    checks = cli("--db", str(there), "--json", "doctor").json["checks"]

    assert [one["level"] for one in checks if one["check"] == "unit"] == ["ok"], checks[-1]


@pytest.mark.parametrize(
    ("text", "enabled", "words"),
    [
        ("[Service]\nExecStart=/bin/true\n", True, "does not run craftcore"),
        (OURS.format(database="/elsewhere.db"), True, "runs on /elsewhere.db, not on this one"),
        ("[Service]\nExecStart=craftcore run\n", True, "/craftcore/craftcore.db, not on this one"),
        (OURS, False, "is not enabled"),
    ],
)
def test_unit_that_would_not_run_this_database_is_reported(core, found, database, tmp_path, text, enabled, words):
    install(tmp_path, text.format(database=database), enabled=enabled)

    check = found()["unit"]

    assert (check[0], words in check[1]) == ("warn", True), check
    assert (check[2] == "systemctl --user enable --now craftcore") == (not enabled)


@pytest.mark.parametrize(
    ("state", "owner", "level", "words"),
    [
        ("active", "another", "FAIL", "runs this database: end that one"),
        ("active", "mine", "ok", "is ours"),
        ("failed", "none", "FAIL", "systemd gave up on it"),
    ],
)
def test_unit_state_from_systemd_determines_the_level(
    core, found, database, tmp_path, monkeypatch, state, owner, level, words
):
    """A fake systemctl prints the output of systemd, because this machine may have no running systemd."""
    install(tmp_path, OURS.format(database=database))
    (tmp_path / "bin").mkdir()
    systemctl = tmp_path / "bin" / "systemctl"
    pid = {"mine": os.getpid(), "another": 1, "none": 0}[owner]
    systemctl.write_text(f"#!/bin/sh\necho ActiveState={state}\necho MainPID={pid}\n")
    systemctl.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"), prepend=os.pathsep)
    monkeypatch.setattr("craftcore.diagnostics.daemon.ANSWER_SECONDS", 0.1)

    with daemon_lock(database):
        check = found()["unit"]

    assert (check[0], words in check[1]) == (level, True), check


# progress


def test_doctor_at_a_terminal_shows_progress(cli, core, monkeypatch, capsys):
    monkeypatch.setattr("craftcore.cli.progress.EVERY_SECONDS", 0.0)
    for _ in range(500):
        emit(core)
    assert "\r" not in cli("doctor", "--full").err

    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)

    assert cli("doctor", "--full").err.startswith("\rreading the file, 0 s")
    assert cli("--json", "doctor", "--full").err == ""
