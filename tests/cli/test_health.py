"""The verdict of `craftcore status`: healthy, degraded with its reasons, or down."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from dataclasses import asdict, replace
from typing import Any

import apsw
import pytest

from craftcore import App
from craftcore.cli.session import finding_text
from craftcore.daemon.doorbell import Doorbell
from craftcore.daemon.lock import DaemonLock
from craftcore.diagnostics.disk_space import DiskSpace, disk_space_of
from craftcore.diagnostics.health import Health, health_of, verdict
from craftcore.diagnostics.idle import BEHIND, Idle, idle
from craftcore.diagnostics.write_lock import write_lock_holder
from craftcore.engine.engine_facts import write_engine_facts
from craftcore.engine.live_state import LiveState
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.facts import delete_fact, set_fact
from craftcore.storage.files.wal_locks import LOCKS, list_wal_locks
from craftcore.triggers.listing_store import DEAD, FAILED, LOOKED
from craftcore.triggers.model import TriggerSource
from craftcore.triggers.settlement import Succeeded
from tests.cli.conftest import NOON
from tests.support.attempts import begin, end
from tests.support.fake_payments import LOST, NOTHING, Bank
from tests.support.processes import a_reader
from tests.support.trigger_steps import BROKEN, HOPELESS, claim_one, emit, run_one, start
from tests.support.warm_parent import start as start_program

HOUR, DAY = 3600.0, 86_400.0
EPOCH = "INSERT INTO epochs (epoch, boot_id, pid, host, version, started_at) VALUES (:epoch, 'b', 1, 'h', '1', :at)"

SETTLED = "UPDATE triggers SET status = :status, settled_at = :now, reason = 'test' WHERE id = :id"

HEALTHY: dict[str, Any] = {
    "now": NOON,
    "daemon": {"running": True, "stuck": False},
    "database": "agent.db",
    "epoch": 4,
    "epoch_started_at": NOON - 60,
    "ended_in_order": False,
    "died_before": False,
    "held": None,
    "paused": False,
    "replaced": None,
    "locked_by": None,
    "engine": {
        "checkpoint_failed": None,
        "flush_seconds": None,
        "unreachable": None,
        "shortage": None,
        "alone": None,
        "alone_since": None,
        "alone_until": None,
    },
    "safe_mode": None,
    "holds": [],
    "clock": {"held_until": None},
    "schedules": {"ahead": []},
    "counts": {"due": 1, "later": 0, "claimed": 2, "running": 3, "cut_off": 0, "dead": 4},
    "tasks": {"held": 0},
    "in_doubt": {"count": 0},
    "failed_lately": {"count": 0, "newest_code": None},
    "dead_lately": 0,
    "behind": {"id": None, "seconds": None, "allowed_seconds": 120.0},
    "idle": None,
    "full": None,
    "disk": {"free_bytes": 10 << 30, "free_inodes": 100_000},
    "wal_in_use_bytes": 64 << 20,
    "wal_readers": [],
    "retention": {"used_bytes": 1, "max_bytes": 100, "needed_bytes": None},
    "retention_failed": None,
}

LARGE = {"used_bytes": 8_000_000_000, "max_bytes": 10_000_000_000, "needed_bytes": 40_000_000_000}


def test_status_without_trouble_is_healthy():
    assert health_of(HEALTHY) == (Health.HEALTHY, [])
    assert verdict(Health.HEALTHY, None, HEALTHY) == "healthy: 3 at work, 3 due, 4 dead letters"


@pytest.mark.parametrize(
    ("change", "health", "code", "line"),
    [
        (
            {"daemon": {"running": False, "stuck": False}},
            "down",
            "no daemon",
            "down: no daemon runs on agent.db; the last one died; 1 due. Start one: craftcore run MODULE:APP",
        ),
        (
            {"daemon": {"running": False, "stuck": False}, "ended_in_order": True},
            "down",
            "no daemon",
            "down: no daemon runs on agent.db; 1 due. Start one: craftcore run MODULE:APP",
        ),
        (
            {"daemon": {"running": True, "stuck": True, "pid": 5}},
            "degraded",
            "stuck",
            "degraded: the daemon (pid 5) runs and does nothing: it does not answer, or extends no lease. Restart it; "
            "what it was at: craftcore inspect --list --status incomplete",
        ),
        ({"held": "why"}, "degraded", "held", "degraded: everything is held: why. Look at it, then: craftcore release"),
        (
            {"replaced": "/a/agent.db-wal"},
            "degraded",
            "replaced",
            "degraded: /a/agent.db-wal was deleted or replaced under the running daemon: it ends, or restart it, and "
            "find out which program did that",
        ),
        (
            {"locked_by": {"pid": 7, "program": "sqlite3"}},
            "degraded",
            "locked",
            "degraded: pid 7 (sqlite3) keeps the write lock, perhaps in an open transaction: nothing is written before",
        ),
        (
            {"engine": {**HEALTHY["engine"], "checkpoint_failed": "agent.db: disk I/O error"}},
            "degraded",
            "checkpoint",
            "degraded: checkpoints fail: agent.db: disk I/O error. Commits are in the WAL and go on; the daemon",
        ),
        (
            {"engine": {**HEALTHY["engine"], "flush_seconds": 5.0}},
            "degraded",
            "slow disk",
            "degraded: the disk is slow: a flush takes about 5 s, and every commit waits for one",
        ),
        (
            {"engine": {**HEALTHY["engine"], "unreachable": "/a/agent.db: Permission denied"}},
            "degraded",
            "directory",
            "degraded: the daemon cannot enter the directory of its database: /a/agent.db: Permission denied; ",
        ),
        (
            {"engine": {**HEALTHY["engine"], "alone": "t1", "alone_until": NOON}},
            "degraded",
            "alone",
            "degraded: trigger t1 was in crashes, so it runs alone: nothing else starts before it ends, or before",
        ),
        ({"paused": True}, "degraded", "paused", "degraded: paused: the daemon was started with --paused"),
        (
            {"safe_mode": "why"},
            "degraded",
            "safe mode",
            "degraded: safe mode, scheduled and resumed work waits: why. It ends after 10 minutes without a crash. "
            "Find out why the daemon dies; to end it now: craftcore release",
        ),
        ({"clock": {"held_until": NOON + HOUR}}, "degraded", "clock", "degraded: schedules are held: the clock has"),
        ({"schedules": {"ahead": ["a"]}}, "degraded", "clock", "degraded: 1 schedule waits, ahead of the clock: a"),
        (
            {"idle": {"id": "t1", "seconds": 50.0, "places": 16, "running": 3}},
            "degraded",
            "idle",
            "degraded: idle: a trigger is due since 50 s, 3 of 16 places are taken, and nothing starts. See: craftcore "
            "trigger why t1",
        ),
        (
            {"full": {"id": "t1", "seconds": 400.0, "places": 2, "still_seconds": 300.0}},
            "degraded",
            "full",
            "degraded: full: all 2 places are taken, and nothing has ended for 5 min. A trigger is due since 7 min; "
            "what runs may wait for it. See: craftcore trigger list --status CLAIMED",
        ),
        (
            {"behind": {"id": "t1", "seconds": 121.0, "allowed_seconds": 120.0}},
            "degraded",
            "behind",
            "degraded: behind: a trigger is due since 2 min. See: craftcore trigger why t1",
        ),
        ({"tasks": {"held": 1}}, "degraded", "held tasks", "degraded: 1 live task held: the code of the last start"),
        ({"in_doubt": {"count": 2}}, "degraded", "in doubt", "degraded: in doubt: 2 irreversible actions, undecided"),
        (
            {"failed_lately": {"count": 3, "newest_code": "CAPABILITY_NOT_FOUND"}},
            "degraded",
            "failed",
            "degraded: 3 triggers failed within 24 h, the last with CAPABILITY_NOT_FOUND. "
            "See: craftcore trigger list --status FAILED",
        ),
        ({"dead_lately": 1}, "degraded", "dead letters", "degraded: 1 new dead letter within 24 h"),
        (
            {"disk": {"free_bytes": (512 << 20) - 1, "free_inodes": None}},
            "degraded",
            "disk",
            "degraded: the disk is nearly full: 536 MB free",
        ),
        (
            {"disk": {"free_bytes": 10 << 30, "free_inodes": 999}},
            "degraded",
            "disk",
            "degraded: the disk is nearly full: 10,737 MB free, room for 999 files",
        ),
        (
            {"wal_in_use_bytes": (64 << 20) + 1},
            "degraded",
            "wal",
            "degraded: the WAL holds 67 MB: something keeps a snapshot open, and nothing is cut off it until that ends",
        ),
        (
            {"wal_in_use_bytes": (32 << 20) + 1, "wal_readers": [4711]},
            "degraded",
            "wal",
            "degraded: the WAL holds 33 MB: process 4711 keeps a snapshot open, and nothing is cut off it",
        ),
        (
            {"wal_in_use_bytes": (32 << 20) + 1, "wal_readers": [4711, 4712]},
            "degraded",
            "wal",
            "degraded: the WAL holds 33 MB: processes 4711, 4712 keep snapshots open",
        ),
        (
            {"retention": LARGE},
            "degraded",
            "size",
            "degraded: the database holds 8,000 MB of the 10,000 MB that retention.max_bytes allows; the ages of "
            "[retention] would need about 40,000 MB. See: craftcore db stats",
        ),
        (
            {"retention": {**LARGE, "needed_bytes": None}},
            "degraded",
            "size",
            "degraded: the database holds 8,000 MB of the 10,000 MB that retention.max_bytes allows. See: craftcore db "
            "stats",
        ),
        (
            {"died_before": True},
            "degraded",
            "died",
            "degraded: the daemon before this one died; this one started 60 s ago",
        ),
    ],
    ids=lambda value: None,
)
def test_trouble_appears_in_the_first_line_of_status(change, health, code, line):
    found = {**HEALTHY, **change}

    judged, troubles = health_of(found)

    assert (judged.value, [trouble.code for trouble in troubles]) == (health, [code])
    assert verdict(judged, finding_text(troubles[0]), found).startswith(line)


@pytest.mark.parametrize(
    "change",
    [
        {"behind": {"id": "t1", "seconds": 120.0, "allowed_seconds": 120.0}},
        {"wal_in_use_bytes": 32 << 20, "wal_readers": [4711]},
        {"retention": {**LARGE, "used_bytes": 7_999_999_999}},
        {"retention": {**LARGE, "max_bytes": 0}},
        {"disk": None},
        {"disk": {"free_bytes": 512 << 20, "free_inodes": 1000}},
        {"died_before": True, "epoch_started_at": NOON - HOUR},
        {"ended_in_order": True},
    ],
    ids=str,
)
def test_state_just_below_a_limit_is_still_healthy(change):
    assert health_of({**HEALTHY, **change})[0] is Health.HEALTHY


def test_troubles_are_all_listed_worst_first():
    found = {**HEALTHY, "daemon": {"running": False, "stuck": False}, "held": "why", "wal_in_use_bytes": 1 << 40}

    judged, troubles = health_of(found)

    assert judged is Health.DOWN
    assert [trouble.code for trouble in troubles] == ["no daemon", "held", "wal"]


def test_held_engine_is_not_reported_as_behind():
    found = {**HEALTHY, "held": "why", "behind": {"id": "t1", "seconds": 9e9, "allowed_seconds": 120.0}}

    assert [trouble.code for trouble in health_of(found)[1]] == ["held"]


# troubles that status finds


@pytest.fixture
def daemon(database):
    with DaemonLock.acquire(database, pid=os.getpid(), host="here", now=NOON - HOUR) as lock:
        yield lock


def reasons(cli):
    document = cli("--json", "status").json
    assert document["ok"] == (document["health"] == "healthy")
    return [reason["code"] for reason in document["reasons"]]


def test_untaken_trigger_is_behind_unless_the_lane_is_busy(cli, core, clock, daemon):
    emit(core, session_id="a")
    start(core, claim_one(core))
    emit(core, session_id="a")
    clock.advance(hours=1)
    core.do(core.claims.extend_leases, 1)
    assert reasons(cli) == []

    late = emit(core, session_id="b").id
    clock.advance(minutes=3)

    assert reasons(cli) == ["behind"]
    assert f"craftcore trigger why {late}" in cli("status").out.splitlines()[0]


def limits() -> App:
    app = App()
    app.declare("limited", nothing, concurrency=1, sources=[TriggerSource.MESSAGE])
    return app


async def nothing() -> None: ...


def leave(core, limited=False, paused=False):
    app = limits() if limited else App()
    core.do(write_engine_facts, 1, app.workflows, app.by_source, paused=paused, places=2)


@pytest.fixture
def booted(core, daemon, monkeypatch):
    """Start a daemon with two places long ago, without work."""
    monkeypatch.setattr("craftcore.diagnostics.idle.AGAIN_SECONDS", 0.0)
    core.do(lambda tx: tx.run(EPOCH, epoch=1, at=NOON - HOUR))
    leave(core, limited=True)


def test_work_that_waits_for_the_concurrency_of_its_workflow_is_not_behind(cli, core, clock, daemon):
    core.do(lambda tx: tx.run(EPOCH, epoch=1, at=NOON - HOUR))
    leave(core, limited=True)
    emit(core, workflow="limited")
    start(core, claim_one(core))
    emit(core, workflow="limited")
    emit(core, workflow=None, source=TriggerSource.MESSAGE)
    clock.advance(minutes=3)
    core.do(core.claims.extend_leases, 1)
    assert reasons(cli) == []

    emit(core, at=clock.now() - 180)
    assert "behind" in reasons(cli)


def test_work_within_the_limits_of_its_workflow_is_behind(cli, core, clock, daemon):
    core.do(lambda tx: tx.run(EPOCH, epoch=1, at=NOON - HOUR))
    leave(core, limited=True)
    emit(core, workflow="limited")
    clock.advance(minutes=3)
    assert reasons(cli) == ["behind"]


def test_expected_failures_leave_the_status_healthy(cli, core, daemon):
    emit(core)
    row = run_one(core, replace(HOPELESS, code="SOLD_OUT", expected=True))
    assert (row.status, row.reason, row.error_code) == ("FAILED", "expected", "SOLD_OUT")
    assert reasons(cli) == []

    emit(core)
    run_one(core, HOPELESS)
    assert reasons(cli) == ["failed"]


def test_due_work_is_not_idle_while_other_work_starts(cli, core, clock, booted):
    clock.advance(seconds=41)
    begin(core)
    emit(core, at=NOON)

    assert reasons(cli) == []

    clock.advance(seconds=41)
    assert reasons(cli) == ["idle"]


def test_due_work_with_free_places_is_reported_as_idle(cli, core, clock, booted):
    waits = emit(core).id
    clock.advance(seconds=39)
    assert reasons(cli) == []

    clock.advance(seconds=2)

    document = cli("--json", "status").json
    assert [reason["code"] for reason in document["reasons"]] == ["idle"]
    assert document["idle"] == {"id": waits, "seconds": 41.0, "places": 2, "running": 0}


def test_due_work_is_not_idle_while_every_place_is_taken(cli, core, clock, booted):
    emit(core)
    start(core, claim_one(core))
    emit(core)
    start(core, claim_one(core))
    emit(core)
    clock.advance(seconds=60)
    core.do(core.claims.extend_leases, 1)

    assert reasons(cli) == []  # both places are taken


def test_claimed_work_without_a_place_degrades_the_status_when_nothing_ends(cli, core, clock, booted):
    """A running workflow may wait for a due trigger. Then neither ends."""
    for _ in range(2):
        emit(core)
        start(core, claim_one(core))
    waits = emit(core).id
    claim_one(core)
    clock.advance(seconds=120)
    core.do(core.claims.extend_leases, 1)
    assert reasons(cli) == []

    clock.advance(seconds=1)

    document = cli("--json", "status").json
    assert [reason["code"] for reason in document["reasons"]] == ["full"]
    assert document["full"] == {"id": waits, "seconds": 121.0, "places": 2, "still_seconds": 121.0}


@pytest.mark.parametrize("change", ["a place is free", "something has started"])
def test_claimed_work_leaves_the_status_healthy_while_places_become_free(cli, core, clock, booted, change):
    emit(core)
    start(core, claim_one(core))
    if change == "something has started":
        emit(core)
        second = claim_one(core)
    emit(core)
    claim_one(core)
    clock.advance(minutes=5)
    if change == "something has started":
        start(core, second)
    core.do(core.claims.extend_leases, 1)

    assert "full" not in reasons(cli)


def noted(name, value):
    """Return two functions: one sets a fact, the other deletes it."""
    return (
        lambda core, clock: core.do(lambda tx: set_fact(tx, name, value)),
        lambda core, clock: core.do(lambda tx: delete_fact(tx, name)),
    )


def work_in_lane(core, clock):
    emit(core, session_id="a")
    start(core, claim_one(core))
    emit(core, session_id="a")


def free_the_lane(core, clock):
    core.do(lambda tx: tx.run("UPDATE triggers SET lane = 'b' WHERE status = 'CLAIMED'"))


ALONE = json.dumps(asdict(LiveState(epoch=1, alone="t1", alone_since=NOON, alone_until=NOON + HOUR)))

KEPT = {
    "its lane": (work_in_lane, free_the_lane),
    "the limit of its workflow": (
        lambda core, clock: emit(core, workflow="limited"),
        lambda core, clock: leave(core),
    ),
    "the limit of the workflow of its source": (
        lambda core, clock: emit(core, source=TriggerSource.MESSAGE, workflow=None),
        lambda core, clock: leave(core),
    ),
    "it is not due": (
        lambda core, clock: emit(core, delay=HOUR),
        lambda core, clock: clock.advance(seconds=HOUR),
    ),
    "it is claimed": (
        lambda core, clock: (emit(core), claim_one(core)),
        lambda core, clock: core.do(core.claims.release_epoch, 1),
    ),
    "the daemon is new": (
        lambda core, clock: (
            emit(core),
            core.do(lambda tx: tx.run("UPDATE epochs SET started_at = :at", at=NOON + 20)),
        ),
        lambda core, clock: clock.advance(seconds=11),
    ),
    "an older program left nothing": (
        lambda core, clock: (emit(core), core.do(lambda tx: delete_fact(tx, "engine"))),
        lambda core, clock: leave(core),
    ),
    "the daemon is paused": (
        lambda core, clock: (emit(core), leave(core, paused=True)),
        lambda core, clock: leave(core),
    ),
    "the work is held": (lambda core, clock: (emit(core), noted("held", "why")[0](core, clock)), noted("held", "")[1]),
    "safe mode": (
        lambda core, clock: (emit(core), noted("safe_mode", "why")[0](core, clock)),
        noted("safe_mode", "")[1],
    ),
    "the clock is held": (
        lambda core, clock: (emit(core), noted("clock_held", str(NOON + HOUR))[0](core, clock)),
        noted("clock_held", "")[1],
    ),
    "a suspect runs alone": (
        lambda core, clock: (emit(core), noted("live_state", ALONE)[0](core, clock)),
        noted("live_state", "")[1],
    ),
}
"""The reasons for which a waiting trigger does not count as idle: how each begins and ends."""


@pytest.mark.parametrize(("begins", "ends"), KEPT.values(), ids=KEPT)
def test_due_work_is_not_idle_until_the_obstacle_ends(cli, core, clock, booted, begins, ends):
    begins(core, clock)
    clock.advance(seconds=50)
    core.do(core.claims.extend_leases, 1)
    assert "idle" not in reasons(cli)

    ends(core, clock)

    core.do(core.claims.extend_leases, 1)
    assert "idle" in reasons(cli)


def test_message_for_a_workflow_without_a_limit_may_be_idle(cli, core, clock, booted):
    """Only a message without a workflow is delayed by the limit of the workflow of its source."""
    emit(core, source=TriggerSource.MESSAGE, workflow="flow")
    clock.advance(seconds=50)

    assert reasons(cli) == ["idle"]


def test_settled_work_is_not_idle(cli, core, clock, booted):
    for status in ("DONE", "FAILED", "DEAD"):
        settled = emit(core).id
        core.do(lambda tx, id=settled, status=status: tx.run(SETTLED, id=id, status=status, now=tx.now))
    clock.advance(seconds=50)

    assert "idle" not in reasons(cli)


def test_work_that_changes_between_two_looks_is_not_idle():
    one = Idle("t1", NOON, 2, 0, 7)
    for second, found in [(one, one), (None, None), (one._replace(id="t2"), None), (one._replace(newest=8), None)]:
        looks = iter([one, second])
        assert idle(lambda looks=looks: next(looks)) == found  # type: ignore[misc]


def test_daemon_that_ignores_the_doorbell_is_not_healthy(cli, core, database, monkeypatch):
    """Code of the daemon blocks the event loop: no trigger is late yet, and none will run."""
    monkeypatch.setattr("craftcore.diagnostics.daemon.ANSWER_SECONDS", 0.1)
    core.do(lambda tx: tx.run(EPOCH, epoch=1, at=NOON))
    with DaemonLock.acquire(database, pid=5, host="here", now=NOON), contextlib.closing(Doorbell.open(database)):
        assert reasons(cli) == ["stuck"]
        assert cli("status").out.startswith("degraded: the daemon (pid 5) runs and does nothing")


BUSY = """
import sys
from craftcore import Producer
with Producer(sys.argv[1]) as producer:
    producer.emit("greet")
    print("begun", flush=True)
    while True:
        producer.emit("greet")
"""

KEEP = """
import sys, apsw
connection = apsw.Connection(sys.argv[1])
connection.execute("BEGIN IMMEDIATE")
print("kept", flush=True)
sys.stdin.readline()
"""


@pytest.mark.skipif(not LOCKS.exists(), reason="this kernel does not say who holds which lock")
def test_write_lock_holder_is_reported_by_status_and_doctor(cli, core, database, daemon):
    emit(core)
    with start_program(["-c", KEEP, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"kept\n"
        document = cli("--json", "status").json
        [checked] = [one for one in cli("--json", "doctor").json["checks"] if one["check"] == "write lock"]
        holder.communicate(b"\n")

    assert document["locked_by"]["pid"] == holder.pid
    assert [reason["code"] for reason in document["reasons"]] == ["locked"]
    assert (checked["level"], f"pid {holder.pid} " in checked["text"]) == ("FAIL", True)
    assert reasons(cli) == []


@pytest.mark.skipif(not LOCKS.exists(), reason="this kernel does not say who holds which lock")
def test_producer_with_many_commits_is_not_reported_as_lock_holder(core, database):
    """A bulk producer pauses between commits, so that others get the lock."""
    emit(core)
    with start_program(["-c", BUSY, database], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"begun\n"
        found = write_lock_holder(database, None, list_wal_locks(database).writer)
        holder.kill()

    assert found is None


def test_daemon_starting_after_a_killed_daemon_is_not_stuck(cli, core, clock, database, monkeypatch):
    """The doorbell is that of the previous daemon; a new one is created after migration and boot."""
    monkeypatch.setattr("craftcore.diagnostics.daemon.ANSWER_SECONDS", 0.1)
    core.do(lambda tx: tx.run(EPOCH, epoch=1, at=NOON))
    left = Doorbell.open(database)
    with DaemonLock.acquire(database, pid=5, host="here", now=NOON + 1):
        clock.advance(1)
        assert reasons(cli) == []
    left.close()


def test_daemon_with_a_hanging_writer_is_detected_by_expired_leases(cli, core, clock, daemon):
    emit(core)
    start(core, claim_one(core))
    clock.advance(minutes=11)
    assert reasons(cli) == []

    clock.advance(seconds=1)

    assert reasons(cli) == ["stuck"]


def test_new_dead_letters_are_reported_for_a_day(cli, clock, database):
    Bank(database, clock).pay(NOTHING)
    assert reasons(cli) == ["no daemon", "dead letters"]

    clock.advance(hours=25)

    assert cli("--json", "status").json["counts"]["dead"] == 1
    assert reasons(cli) == ["no daemon"]


def test_status_reports_an_action_in_doubt_and_a_missing_daemon(cli, clock, database):
    Bank(database, clock).pay(LOST)

    verdict, *lines = cli("status").out.splitlines()

    assert verdict.startswith("down: no daemon runs on ")
    assert lines[0] == "also      in doubt: 1 irreversible action, undecided. See: craftcore inbox list"


def test_start_after_an_unclean_end_is_reported_for_an_hour(cli, core, clock, daemon):
    core.do(lambda tx: [tx.run(EPOCH, epoch=epoch, at=NOON) for epoch in (1, 2)])
    assert reasons(cli) == ["died"]

    clock.advance(hours=2)

    assert reasons(cli) == []


def test_long_wal_with_few_used_pages_is_no_trouble(cli, core, daemon, database, monkeypatch):
    """Litestream restarts the WAL, and its file keeps the length after a burst of writes."""
    monkeypatch.setattr("craftcore.diagnostics.health.WAL_LARGE_BYTES", 1 << 20)
    litestream = apsw.Connection(str(database))
    assert litestream.pragma("journal_mode") == "wal"
    core.do(set_fact, "large", "x" * 2_000_000)
    assert reasons(cli) == ["wal"]

    litestream.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)
    litestream.execute("CREATE TABLE theirs (id)")

    document = cli("--json", "status").json
    assert document["wal_bytes"] > 2_000_000
    assert 0 < document["wal_in_use_bytes"] < 1 << 20
    assert document["reasons"] == []
    [wal] = [one for one in cli("--json", "doctor").json["checks"] if one["check"] == "WAL"]
    assert wal["level"] == "ok"
    litestream.close()


def test_status_reports_the_wal_reader_and_the_size_limit(cli, core, clock, daemon, database, monkeypatch, tmp_path):
    for _ in range(30):
        end(core, begin(core, payload={"text": "x" * 10_000}), Succeeded())
        clock.advance(HOUR)
    assert reasons(cli) == []
    monkeypatch.setattr("craftcore.diagnostics.health.WAL_LONG", 1 << 20)
    settings = tmp_path / "small.toml"
    settings.write_text("[retention]\nmax_bytes = 500000\n")
    with a_reader(database) as pid:
        for number in range(40):
            core.do(set_fact, f"large {number}", "x" * 50_000)

        document = cli("--config", str(settings), "--json", "status").json
    assert [one["code"] for one in document["reasons"]] == ["wal", "size"]
    assert document["wal_readers"] == [pid]
    assert document["retention"]["max_bytes"] == 500_000
    assert document["retention"]["used_bytes"] > 400_000
    assert document["retention"]["needed_bytes"] > 500_000


def test_disk_space_matches_the_file_system(tmp_path):
    found = os.statvfs(tmp_path)

    room = disk_space_of(tmp_path / "agent.db")

    assert abs(room.bytes - found.f_bavail * found.f_frsize) < 1 << 30
    assert not DiskSpace(bytes=64 << 20, inodes=1).is_gone
    assert DiskSpace(bytes=(64 << 20) - 1, inodes=None).is_gone
    assert DiskSpace(bytes=10 << 30, inodes=0).is_gone


def test_behind_query_uses_only_the_index(core):
    emit(core)
    plan = [
        row["detail"] for row in core.rows(f"EXPLAIN QUERY PLAN {BEHIND}", before=NOON, workflows="[]", sources="[]")
    ]

    assert any("COVERING INDEX triggers_pending" in step for step in plan), plan
    assert not any(step == "SCAN triggers" for step in plan), plan


@pytest.mark.parametrize(("query", "index"), [(DEAD, "triggers_dead"), (FAILED, "triggers_failed")])
def test_queries_of_new_failures_scan_no_table(core, query, index):
    plan = [row["detail"] for row in core.rows(f"EXPLAIN QUERY PLAN {query}", since=NOON, looked=LOOKED)]

    assert any(index in step for step in plan), plan
    assert [step for step in plan if step.startswith("SCAN") and step.split()[1] in ("triggers", "tasks")] == []


@pytest.mark.parametrize(("outcome", "code"), [(HOPELESS, "failed"), (BROKEN, "dead letters")])
def test_scheduled_work_that_succeeds_again_is_healthy(cli, core, clock, outcome, code):
    schedule = ScheduleSpec(id="hourly", when="every 1h", workflow="greet", max_attempts=1)
    core.do(core.schedules.put, schedule, Origin.OPERATOR)
    found = []
    for ended in (outcome, outcome, Succeeded(result_json="1"), outcome):
        clock.advance(hours=1)
        core.do(core.ticks.tick)
        run_one(core, ended)
        found.append(code in reasons(cli))
    assert found == [True, True, False, True]


def test_check_exits_1_unless_the_verdict_is_healthy(cli, core, daemon):
    assert (cli("status").code, cli("status", "--check").code) == (0, 0)

    emit(core)
    run_one(core, HOPELESS)

    assert (cli("status").code, cli("status", "--check").code, cli("--json", "status", "--check").code) == (0, 1, 1)
