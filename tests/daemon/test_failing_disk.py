"""A daemon on a failing or slow disk: its exit, and the reports of `status` and `doctor`."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import apsw
import pytest

from craftcore import Producer
from tests.support.command_calls import call_command
from tests.support.processes import PATIENCE, DaemonProcess, a_daemon, craftcore, read_trace, until

APP = """
import anyio, signal, threading
from craftcore import App, TaskContext
from craftcore.engine import live_state
from craftcore.storage import checkpoints
from craftcore.testing.faulty_disk import FaultyDisk

checkpoints.RETRY_SECONDS = 0.05
checkpoints.IDLE_SECONDS = 0.05
live_state.LOOK_SECONDS = 0.05
disk = FaultyDisk()
disk.__enter__()
app = App()

@app.workflow("checkpoints_fail")
async def checkpoints_fail(ends_after: float) -> None:
    checkpoints.FAILS_SECONDS = ends_after
    disk.refuse_checkpoints()

@app.workflow("heal")
async def heal() -> None:
    disk.free()

@app.workflow("slow")
async def slow(seconds: float) -> None:
    disk.slow_syncs(seconds)

@app.workflow("frozen")
async def frozen(ctx: TaskContext) -> None:
    # to the thread itself: a signal to the process may stop it only after the commit
    await ctx.transaction("freeze", lambda tx: signal.pthread_kill(threading.get_ident(), signal.SIGSTOP))

@app.workflow("endless")
async def endless() -> None:
    with open("trace", "a") as file:
        file.write("begun\\n")
    await anyio.sleep_forever()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def emit(folder: Path, workflow: str, **payload: float) -> None:
    with Producer(folder / "agent.db") as producer:
        producer.emit(workflow, payload)


def reasons(folder: Path) -> list[str]:
    return [reason["code"] for reason in call_command(folder, "--json", "status").json["reasons"]]


def test_failing_checkpoints_degrade_status_and_fail_doctor_until_success(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        emit(folder, "checkpoints_fail", ends_after=10 * PATIENCE)
        until(lambda: "checkpoint" in reasons(folder), "status to report it")
        doctor = call_command(folder, "doctor")
        first = daemon.wait_for_notification("STATUS=checkpoints fail")
        emit(folder, "heal")
        until(lambda: "checkpoint" not in reasons(folder), "status to forget it")

    assert doctor.code == 1
    assert "FAIL  checkpoints" in doctor.out
    assert "cannot be written" in first
    assert daemon.log.count('"checkpoint.failed"') + daemon.log.count("checkpoint.failed ") == 1
    assert "checkpoint.recovered" in daemon.log


def test_failing_checkpoints_end_the_daemon_with_74_and_accepted_work_runs_later(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        emit(folder, "checkpoints_fail", ends_after=0.3)

        assert daemon.wait() == 74

    assert "Checkpoints have failed for" in daemon.log
    emit(folder, "heal")
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0
    assert {row["status"] for row in call_command(folder, "--json", "trigger", "list").json} == {"DONE"}


def slow_down(daemon: DaemonProcess, folder: Path, seconds: float) -> None:
    daemon.ready()
    emit(folder, "slow", seconds=seconds)
    until(lambda: "slow disk" in reasons(folder), "status to report it")
    emit(folder, "endless")
    until(lambda: read_trace(folder) == ["begun"], "the work to begin")


def test_slow_disk_degrades_status_and_sigterm_ends_within_grace_and_margin(folder):
    """The unit permits the grace and a margin of 15 seconds. The time of the disk at the end is part of the grace."""
    flush, grace, margin = 1.0, 5.0, 15.0
    (folder / "craftcore.toml").write_text(f"[daemon]\nshutdown_grace = {grace}\n")
    with a_daemon(folder, "--config", "craftcore.toml", "app:app") as daemon:
        slow_down(daemon, folder, flush)
        report = call_command(folder, "--json", "status").json
        began = time.monotonic()
        daemon.signal(signal.SIGTERM)
        code = daemon.wait()
        took = time.monotonic() - began

    assert report["engine"]["flush_seconds"] >= flush
    assert report["health"] == "degraded"
    assert code == 0
    assert took < grace + margin, daemon.log
    connection = apsw.Connection(str(folder / "agent.db"))
    assert connection.execute("SELECT ended_at IS NOT NULL FROM epochs").get, "the epoch ended in order"
    [row] = call_command(folder, "--json", "trigger", "list", "--workflow", "endless").json
    assert (row["status"], row["attempts"]) == ("PENDING", 0)


@pytest.mark.parametrize("exit_signal", [signal.SIGCONT, signal.SIGKILL])
def test_daemon_frozen_in_a_commit_stops_producers_until_resumed_or_killed(folder, exit_signal):
    (folder / "impatient.toml").write_text("[storage]\nbusy_timeout = 0.2\n")
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        emit(folder, "frozen")
        status = Path(f"/proc/{daemon.pid}/status")
        until(lambda: "State:\tT" in status.read_text(), "the daemon to freeze")
        refused = call_command(folder, "--config", "impatient.toml", "emit", "heal")
        found = reasons(folder)
        daemon.signal(exit_signal)
        accepted = call_command(folder, "emit", "heal")

    assert refused.code == 75
    assert "stuck" in found
    assert accepted.code == 0
