"""Recovery from a Litestream replica after the disk of the database is lost."""

from __future__ import annotations

import os
import random
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from tests.support.backups import ask
from tests.support.litestream_replica import RESTORE, TRIAL, UNIT, Place, count, ids, now
from tests.support.processes import PATIENCE, a_daemon, craftcore

KILLS = ("daemon", "litestream", "both")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "here", tmp_path / "replica")


@pytest.mark.parametrize(
    "kill",
    [
        *(pytest.param(kill, marks=pytest.mark.campaign) for kill in KILLS[:2]),
        pytest.param("both", marks=pytest.mark.acceptance),
    ],
)
def test_replica_is_a_moment_of_the_database_after_any_kill_and_nothing_repeats(place, kill):
    run_recovery_case(place, kill, random.Random(kill))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(30))
def test_replica_is_sound_at_thirty_other_moments(place, seed):
    run_recovery_case(place, KILLS[seed % 3], random.Random(seed))


def run_recovery_case(place: Place, kill: str, chance: random.Random) -> None:
    """Run emitters, a daemon and Litestream, kill some, and lose the database.

    Then restore the replica, and continue with the same replica.
    """
    folder = place.folder
    place.start_replication()
    with a_daemon(folder, "app:app") as daemon, place.emitters() as emitters:
        daemon.ready()
        with place.litestream() as litestream:
            place.until_accepted(chance.randint(50, 500))
            assert craftcore(folder, "db", "backup", "-o", "backup.db").code == 0
            safe = place.accepted()
            place.sync()
            place.until_accepted(chance.randint(20, 600))
            if kill != "litestream":
                daemon.kill()
            if kill != "daemon":
                litestream.kill()
            killed_at = now()
            place.until_accepted(chance.randint(1, 500))  # by the emitters, which survive both kills
            if kill == "litestream":
                place.wait_for_wal_restart()
            if kill == "daemon":
                kill_all(emitters)
                safe = place.accepted()
                place.sync()
        if kill == "litestream":
            with place.litestream():
                safe = place.accepted()
                place.sync()
                place.until_accepted(chance.randint(1, 200))
                killed_at = now()
        kill_all(emitters)
        daemon.kill()
    lost = place.remove_database()
    assert craftcore(lost.parent, "verify", "--write-head", "head").code == 0

    restored = place.shell(RESTORE)

    is_whole = restored.code == 0
    if not is_whole:  # Litestream lost its position in the WAL; a damaged copy never replaces the database
        assert restored.code in (1, 65), restored  # the refusal of Litestream or of craftcore
        assert not place.db.exists()
        restored = craftcore(folder, "db", "restore", "backup.db")
        shutil.copy(folder / "backup.db", folder / "restored.db")
        safe = {}
    assert (restored.code, "everything is held" in restored.out) == (0, True), restored
    restored_ids, lost_ids = ids(place.db), ids(lost)
    unconfirmed = [id for id in restored_ids if id not in set(lost_ids)]  # the kill hit the commit
    known = restored_ids[: len(restored_ids) - len(unconfirmed)]
    assert (known, restored_ids[len(known) :]) == (lost_ids[: len(known)], unconfirmed), (
        "the copy is not the state of one moment"
    )
    assert set(safe) <= set(restored_ids), "a trigger accepted before a completed sync is missing"
    accepted = place.accepted()
    assert set(accepted) <= set(lost_ids)
    assert set(unconfirmed).isdisjoint(accepted)
    last_accepted_at = max(accepted[id] for id in restored_ids if id in accepted)
    late = [id for id, when in accepted.items() if when <= killed_at and id not in set(restored_ids)]
    how = "whole" if is_whole else "REFUSED, a backup was restored"
    gap = max(0.0, killed_at - last_accepted_at)
    print(f"{kill}: {how}; {len(accepted)} accepted, {len(late)} lost, the last {gap:.2f} s")
    require_whole_and_held(place)
    compared = craftcore(folder, "verify", "--against", "lost/head")
    records = "SELECT count(*) FROM executions WHERE ended_at IS NOT NULL"
    is_cut = count(place.db, records) < count(lost, records)
    assert (compared.code, "the last ones were cut off" in compared.out) == (int(is_cut), is_cut), compared

    release_and_run(place)

    assert ids(place.db)[: len(restored_ids)] == restored_ids
    with a_daemon(folder, "app:app") as daemon, place.litestream():
        daemon.ready()
        with place.emitters(1) as emitters:
            place.until_accepted(20)
            place.stop_emitters(emitters)
        place.sync()
    again = place.folder / "again"
    again.mkdir()
    second = Place(again, place.replica)
    shutil.copy(folder / "litestream.yml", again)  # it names the database of the replica
    later = second.shell(f"litestream restore -config litestream.yml -integrity-check full -o agent.db {place.db}")
    assert later.code == 0, later
    assert ids(second.db) == ids(place.db), "the replica does not continue"


def kill_all(emitters: list[subprocess.Popen[bytes]]) -> None:
    for emitter in emitters:
        emitter.kill()
        emitter.wait()


def require_whole_and_held(place: Place) -> None:
    """Compare the file from Litestream with the database that `db restore` made of it."""
    folder = place.folder
    download = folder / "restored.db"
    assert craftcore(folder, "db", "check").code == craftcore(folder, "verify").code == 0
    assert stat.S_IMODE(download.stat().st_mode) == stat.S_IMODE(place.db.stat().st_mode) == 0o600, (
        "the page sets the umask"
    )
    assert count(download, "SELECT count(*) FROM sqlite_schema WHERE name LIKE '!_litestream!_%' ESCAPE '!'") == 2
    intents = count(download, "SELECT count(*) FROM activity_log WHERE status = 'INTENT'")
    assert count(place.db, "SELECT count(*) FROM activity_log WHERE status = 'INTENT'") == 0
    unknown = count(place.db, "SELECT count(*) FROM activity_log WHERE status = 'UNKNOWN'")
    assert unknown == intents + count(download, "SELECT count(*) FROM activity_log WHERE status = 'UNKNOWN'")
    status = craftcore(folder, "--json", "status").json
    assert "it was restored from " in status["held"]
    before = place.paid()
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        emitted = craftcore(folder, "--json", "emit", "count", "--payload", '{"who": "held"}')
        assert emitted.code == 0, emitted.err
        number = emitted.json["id"]
        assert craftcore(folder, "--json", "trigger", "show", number).json["status"] == "PENDING"
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
    assert place.paid() == before, "work ran before the release"


def release_and_run(place: Place) -> None:
    """Release the database: each trigger settles once, and each payment in doubt becomes a question."""
    folder = place.folder
    before = place.paid()
    doubted = ask(place.db, "SELECT idem_key FROM activity_log WHERE status = 'UNKNOWN'")
    assert craftcore(folder, "release").code == 0

    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0

    assert place.paid() == before, "a payment in doubt was repeated"
    assert len(before) == len(set(before)), "a payment was made twice"
    assert ask(place.db, "SELECT id, status, reason FROM triggers WHERE status <> 'DONE'") == []
    ended = "SELECT trigger_id FROM executions WHERE status IN ('success', 'suspended') GROUP BY trigger_id"
    assert count(place.db, f"SELECT count(*) FROM ({ended})") == len(ids(place.db))
    assert ask(place.db, f"{ended} HAVING count(*) > 1") == []
    open_doubts = {key for (key,) in ask(place.db, "SELECT idem_key FROM activity_log WHERE status = 'UNKNOWN'")}
    assert {key for (key,) in doubted} <= open_doubts
    asked = craftcore(folder, "--json", "inbox", "list").json
    assert {question["activity_key"] for question in asked} <= open_doubts
    assert craftcore(folder, "verify").code == craftcore(folder, "db", "check").code == 0


@pytest.mark.acceptance
def test_litestream_tolerates_every_command_and_a_backup_beside(place):
    folder = place.folder
    place.start_replication()
    with place.litestream():
        with a_daemon(folder, "app:app") as daemon:
            daemon.ready()
            with place.emitters(1) as emitters:
                place.until_accepted(50)
                place.sync()
                for command in ("db check", "db stats", "db gc", "verify", "doctor", "top --once", "check app:app"):
                    done = craftcore(folder, *command.split())
                    assert done.code == 0, done
                before = place.accepted()
                assert craftcore(folder, "db", "backup", "-o", "backup.db").code == 0
                place.stop_emitters(emitters)
            place.sync()
            trial = place.shell(TRIAL)
            assert (trial.code, "all of it is what was written" in trial.out) == (0, True), trial
            assert set(before) <= set(ids(folder / "backup.db"))
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
        assert craftcore(folder, "db", "migrate").code == 0
        (folder / "impatient.toml").write_text("[storage]\nbusy_timeout = 0.1\n")
        refused = craftcore(folder, "--config", "impatient.toml", "db", "restore", "backup.db", "--yes")
        assert (refused.code, "another process has it open" in refused.err) == (75, True)
    assert craftcore(folder, "db", "restore", "backup.db", "--yes").code == 0
    assert craftcore(folder, "db", "check").code == 0

    with place.litestream():
        place.sync()

    assert (
        place.shell(RESTORE.replace("restored.db", "second.db").replace("--no-manifest", "--yes --no-manifest")).code
        == 0
    )
    assert ids(place.db) == ids(folder / "backup.db")


def test_systemd_reads_every_line_of_the_unit_in_the_document(tmp_path):
    if (analyze := shutil.which("systemd-analyze")) is None:
        pytest.skip("systemd-analyze is not installed (Debian: the package systemd)")
    unit = tmp_path / "craftcore-litestream.service"
    unit.write_text(UNIT)
    env = {**os.environ, "HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}

    verified = subprocess.run(
        [analyze, "--no-pager", "--system", "verify", str(unit)],
        env=env, capture_output=True, text=True, timeout=PATIENCE, check=False,
    )  # fmt: skip

    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
