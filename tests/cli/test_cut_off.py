"""Work cut off by a killed daemon, and recent failures: every view shows the same state."""

from __future__ import annotations

import os

from craftcore.daemon.lock import DaemonLock
from craftcore.triggers.settlement import Failed
from tests.support.trigger_steps import HOPELESS, claim_one, emit, run_one, start_one


def test_work_cut_off_by_a_dead_daemon_is_due_in_every_view(cli, core):
    running = emit(core).id
    start_one(core)
    claimed = emit(core).id
    claim_one(core)

    status = cli("--json", "status").json
    assert status["counts"] == {
        "due": 2,
        "limited": 0,
        "later": 0,
        "held": 0,
        "claimed": 0,
        "running": 0,
        "cut_off": 1,
        "dead": 0,
    }
    assert "; 2 due. Start one" in status["verdict"]
    assert status["oldest_due_at"] is not None

    top = cli("--json", "top").json
    assert (top["counts"], top["running"]) == (status["counts"], [])
    assert [row["id"] for row in top["cut_off"]] == [running]
    frame = cli("top", "--once").out
    assert "cut off, due when a daemon starts 1\n" in frame
    assert "running 0" in frame

    listed = {row["id"]: row["cut_off"] for row in cli("--json", "trigger", "list").json}
    assert listed == {running: True, claimed: False}
    text = cli("trigger", "list").out
    assert "cut off when its daemon ended; due when one starts" in text
    assert "claimed by a daemon that ended; due when one starts" in text
    assert cli("--json", "trigger", "show", running).json["cut_off"] is True
    assert cli("trigger", "show", running).out.startswith("cut off when its daemon ended; due when one starts\n")

    [why] = cli("--json", "trigger", "why", running).json["reasons"]
    assert why["code"] == "cut off"
    assert why["text"].startswith("cut off: attempt 1, started ")
    assert "due when a daemon starts: craftcore run MODULE:APP" in why["text"]
    [why] = cli("--json", "trigger", "why", claimed).json["reasons"]
    assert (why["code"], "due when a daemon starts" in why["text"]) == ("no daemon", True)


def test_started_row_beside_a_live_daemon_is_running(cli, core):
    running = emit(core).id
    start_one(core)
    with DaemonLock.acquire(core.database.path, pid=os.getpid(), host="here", now=0.0):
        counts = cli("--json", "status").json["counts"]
        assert (counts["due"], counts["running"], counts["cut_off"]) == (0, 1, 0)
        top = cli("--json", "top").json
        assert ([row["id"] for row in top["running"]], top["cut_off"]) == ([running], [])
        assert cli("--json", "trigger", "show", running).json["cut_off"] is False
        assert "cut off" not in cli("trigger", "list").out


def test_work_of_a_dead_daemon_stays_due_until_the_next_daemon_has_booted(cli, core, clock):
    """A new daemon holds the lock, and the last epoch is that of the killed daemon."""
    booted = (
        "INSERT INTO epochs (epoch, boot_id, pid, host, version, started_at) VALUES (:epoch, 'b', 1, 'h', '1', :at)"
    )
    core.do(lambda tx: tx.run(booted, epoch=1, at=clock.now()))
    running = emit(core).id
    start_one(core, epoch=1)
    clock.advance(3600)

    with DaemonLock.acquire(core.database.path, pid=os.getpid(), host="here", now=clock.now()):
        status = cli("--json", "status").json
        assert status["daemon"]["booting"] is True
        assert [status["counts"][name] for name in ("due", "running", "cut_off")] == [1, 0, 1]
        assert status["oldest_due_seconds"] == 3600
        assert "stuck" not in [reason["code"] for reason in status["reasons"]]
        top = cli("--json", "top").json
        assert ([row["id"] for row in top["cut_off"]], top["running"]) == ([running], [])
        assert cli("--json", "trigger", "list").json[0]["cut_off"] is True
        assert cli("--json", "trigger", "show", running).json["cut_off"] is True
        [why] = cli("--json", "trigger", "why", running).json["reasons"]
        assert (why["code"], "due when the one that boots now has booted" in why["text"]) == ("cut off", True)
        [claims] = [line for line in cli("doctor").out.splitlines() if " claims " in line]
        assert "warn" in claims
        assert "1 left by a daemon that died; the one that boots takes them back" in claims

        core.do(lambda tx: tx.run(booted, epoch=2, at=clock.now()))

        status = cli("--json", "status").json
        assert status["daemon"]["booting"] is False
        assert [status["counts"][name] for name in ("due", "running", "cut_off")] == [0, 1, 0]


def test_recent_failures_appear_in_the_verdict_and_top_with_the_list_command(cli, core, clock):
    """Three triggers fail after a deployment."""
    for _ in range(3):
        emit(core)
        run_one(core, HOPELESS)
    clock.advance(seconds=1)
    other = emit(core).id
    run_one(core, Failed(code="CAPABILITY_NOT_FOUND", message="gone", retryable=False))

    with DaemonLock.acquire(core.database.path, pid=os.getpid(), host="here", now=0.0):
        status = cli("--json", "status").json
    assert (status["health"], status["ok"]) == ("degraded", False)
    assert "failed" in [reason["code"] for reason in status["reasons"]]
    assert status["failed_lately"] == {"count": 4, "newest_code": "CAPABILITY_NOT_FOUND"}
    out = cli("status").out
    assert "4 triggers failed within 24 h, the last with CAPABILITY_NOT_FOUND" in out
    assert "failed    4 within 24 h (see: craftcore trigger list --status FAILED)" in out
    frame = cli("top", "--once").out
    assert "failed within a day 4\n" in frame
    assert "warn" in next(line for line in cli("doctor").out.splitlines() if " failed " in line)

    for row in cli("--json", "trigger", "list", "--status", "FAILED").json[1:]:
        assert cli("dead", "discard", row["id"]).code == 0
    assert cli("--json", "status").json["failed_lately"] == {"count": 1, "newest_code": "CAPABILITY_NOT_FOUND"}
    assert cli("trigger", "requeue", other).code == 0
    assert cli("--json", "status").json["failed_lately"] == {"count": 0, "newest_code": None}


def test_failure_counts_as_recent_for_a_day(cli, core, clock):
    emit(core)
    run_one(core, HOPELESS)
    assert cli("--json", "status").json["failed_lately"]["count"] == 1
    clock.advance(hours=24, seconds=1)
    assert cli("--json", "status").json["failed_lately"]["count"] == 0
    assert "failed" not in cli("top", "--once").out.replace("failed -", "")


def test_recent_failures_query_uses_an_index(core):
    with core.reading() as reader:
        sql = "SELECT 1 FROM triggers INDEXED BY triggers_failed WHERE status = 'FAILED' AND settled_at > 1"
        plan = " ".join(row[3] for row in reader.fetch_tuples(f"EXPLAIN QUERY PLAN {sql}"))
    assert "SEARCH triggers USING COVERING INDEX triggers_failed (settled_at>?)" in plan
