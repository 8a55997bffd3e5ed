"""Temporary faults that a daemon survives: a full disk at start or stop, and an inaccessible directory."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from craftcore import Producer
from craftcore.daemon.lock import DaemonLock, read_note
from craftcore.errors import StorageFull
from tests.support.command_calls import call_command
from tests.support.metrics_client import ask, free_port, scraped
from tests.support.processes import DaemonProcess, a_daemon, read_trace, run_python, until

FULL_DISK_APP = """
import os, threading, time
import anyio
from craftcore import App
from craftcore.daemon import daemon_process
from craftcore.testing.faulty_disk import FaultyDisk

daemon_process.FULL_DISK_SECONDS = 0.05
disk = FaultyDisk()
disk.__enter__()

def look():
    while True:
        disk.fill() if os.path.exists("full") else disk.free()
        time.sleep(0.01)

if os.path.exists("full"):
    disk.fill()
threading.Thread(target=look, daemon=True).start()
app = App()

def trace(line):
    with open("trace", "a") as file:
        file.write(line + "\\n")

@app.workflow("greet")
async def greet() -> None:
    trace("greet")

@app.workflow("endless")
async def endless() -> None:
    trace("begun")
    await anyio.sleep_forever()
"""

CLOSED_DIRECTORY_APP = """
import ctypes
import anyio
from craftcore import App
from craftcore.daemon import daemon_process, lifespan, retention_loop
from craftcore.engine import live_state
from craftcore.storage import checkpoints

class Capabilities(ctypes.Structure):
    _fields_ = [(f"{name}{half}", ctypes.c_uint32) for half in (0, 1) for name in ("effective", "permitted", "kept")]

def drop_read_capabilities():  # root can enter every directory otherwise
    libc = ctypes.CDLL(None, use_errno=True)
    version = (ctypes.c_uint32 * 2)(0x20080522, 0)
    own = Capabilities()
    assert libc.capget(version, ctypes.byref(own)) == 0
    own.effective0 &= ~0b110  # CAP_DAC_OVERRIDE, CAP_DAC_READ_SEARCH
    assert libc.capset(version, ctypes.byref(own)) == 0

drop_read_capabilities()
live_state.LOOK_SECONDS = 0.05
daemon_process.STATUS_SECONDS = lifespan.LOOKS_AT_FILES_SECONDS = 0.05
checkpoints.IDLE_SECONDS = retention_loop.LOOK_AGAIN = 0.05
retention_loop.RetentionLoop.__init__.__kwdefaults__.update(first_after=0.05, every=0.05)
app = App()
trace = open("trace", "a")

@app.workflow("again")
async def again() -> None:
    print("again", file=trace, flush=True)
    await anyio.sleep(0.3)  # longer than the idle time of the writer
    await app.emit("again")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    return home


def emit(folder: Path, workflow: str) -> None:
    with Producer(folder / "agent.db") as producer:
        producer.emit(workflow)


@contextlib.contextmanager
def close_directory(folder: Path) -> Iterator[None]:
    folder.chmod(0)
    try:
        yield
    finally:
        folder.chmod(0o700)


# A full disk at the start


@pytest.mark.parametrize("is_new", [True, False])
def test_start_on_a_full_disk_waits_and_continues_by_itself(folder, is_new):
    (folder / "app.py").write_text(FULL_DISK_APP)
    if not is_new:
        emit(folder, "greet")
    (folder / "full").touch()
    with a_daemon(folder, "app:app") as daemon:
        status = daemon.wait_for_notification("STATUS=disk full, cannot start")
        daemon.wait_for_notification("STATUS=disk full, cannot start")
        (folder / "full").unlink()
        daemon.ready()
        emit(folder, "greet")
        until(lambda: len(read_trace(folder)) == (1 if is_new else 2), "the work to run")
        daemon.signal(signal.SIGTERM)

        assert daemon.wait() == 0

    assert "EXTEND_TIMEOUT_USEC=900000000" in status.splitlines()
    assert daemon.log.count("daemon.waiting") == 1
    connection = apsw.Connection(str(folder / "agent.db"))
    assert connection.execute("SELECT count(*), count(ended_at) FROM epochs").fetchall() == [(1, 1)]


def test_start_that_waits_for_space_frees_the_lock_and_exits_0_at_sigterm(folder):
    (folder / "app.py").write_text(FULL_DISK_APP)
    (folder / "full").touch()
    with a_daemon(folder, "app:app") as daemon:
        daemon.wait_for_notification("STATUS=disk full, cannot start")

        until(lambda: not read_note(folder / "agent.db")[1], "the lock to be free")
        daemon.signal(signal.SIGTERM)

        assert daemon.wait() == 0


# A full disk at the end


def stop_twice_on_a_full_disk(folder: Path, *, is_note_refused: bool) -> tuple[int, str]:
    """Stop a daemon with running work twice on a full disk. Return its exit code and log."""
    (folder / "app.py").write_text(FULL_DISK_APP)
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        emit(folder, "endless")
        until(lambda: read_trace(folder) == ["begun"], "the work to begin")
        (folder / "full").touch()
        until(lambda: has_noticed_full_disk(daemon, folder), "the daemon to find the disk full")
        daemon.wait_for_notification("STATUS=disk full")
        if is_note_refused:
            lock = folder / "agent.db.lock"
            lock.unlink()
            lock.mkdir()
        daemon.signal(signal.SIGTERM)
        until(lambda: "daemon.stopping" in daemon.log, "the first signal to be handled")
        daemon.signal(signal.SIGTERM)
        code = daemon.wait()
        if is_note_refused:
            lock.rmdir()
    (folder / "full").unlink()
    return code, daemon.log


def has_noticed_full_disk(daemon: DaemonProcess, folder: Path) -> bool:
    """Return whether the daemon, for which alone the disk is full, has noticed it at a commit."""
    emit(folder, "greet")
    return "commit.postponed" in daemon.log


def start_again(folder: Path) -> tuple[str, str, int, int]:
    """Start the daemon again. Return its log and the status, crashes and attempts of the trigger."""
    with a_daemon(folder, "app:app", "--paused") as daemon:
        daemon.ready()
        connection = apsw.Connection(str(folder / "agent.db"))
        [(status, crashes, attempts)] = connection.execute(
            "SELECT status, crash_count, attempts FROM triggers WHERE workflow = 'endless'"
        )
        connection.close()
        daemon.signal(signal.SIGTERM)
        daemon.wait()
    return daemon.log, status, crashes, attempts


def test_sigterm_on_a_full_disk_ends_with_0_and_the_next_start_counts_no_crash(folder):
    code, log = stop_twice_on_a_full_disk(folder, is_note_refused=False)

    assert code == 0, log
    assert "engine.end_noted" in log
    _, status, crashes, attempts = start_again(folder)
    assert (status, crashes, attempts) == ("PENDING", 0, 0)
    connection = apsw.Connection(str(folder / "agent.db"))
    assert connection.execute("SELECT count(*), count(ended_at) FROM epochs").fetchall() == [(2, 2)]
    records = connection.execute(
        "SELECT status, ended_at IS NOT NULL FROM executions WHERE workflow = 'endless'"
    ).fetchall()
    assert records == [("incomplete", 1)]


def test_sigterm_on_a_full_disk_without_an_end_note_exits_74_and_counts_as_a_crash(folder):
    code, log = stop_twice_on_a_full_disk(folder, is_note_refused=True)

    assert code == 74, log
    assert "engine.end_not_noted" in log
    _, status, crashes, _ = start_again(folder)
    assert (status, crashes) == ("PENDING", 1)


def test_end_note_stays_until_the_next_epoch(folder):
    db = folder / "agent.db"
    with DaemonLock.acquire(db, pid=os.getpid(), host="h", now=1.0) as lock:
        lock.write(database_id="d", epoch=1, call_mark=0)
        lock.note_end(7.5)
    with DaemonLock.acquire(db, pid=os.getpid(), host="h", now=2.0) as lock:
        assert lock.previous is not None
        assert lock.previous.last_seen is not None
        assert lock.previous.last_seen.ended_at == 7.5
        lock.write(database_id="d", epoch=2, call_mark=0)

    note, _ = read_note(db)
    assert note is not None
    assert note.ended_at is None


# A directory that cannot be entered


def test_inaccessible_directory_degrades_a_daemon_that_recovers_by_itself(folder):
    (folder / "app.py").write_text(CLOSED_DIRECTORY_APP)
    with a_daemon(folder, "app:app") as daemon:
        log = (folder / "daemon.log").open()
        trace = (folder / "trace").open() if (folder / "trace").exists() else None
        daemon.ready()
        trace = trace or (folder / "trace").open()
        emit(folder, "again")
        logged = ""

        def has_logged(*events: str) -> bool:
            nonlocal logged
            logged += log.read()
            return all(event in logged for event in events)

        with close_directory(folder):
            daemon.wait_for_notification("STATUS=degraded, the database cannot be opened")
            until(
                lambda: has_logged("daemon.degraded", "retention.postponed", "lock.missing"), "all events to be logged"
            )
            trace.read()
            until(lambda: trace.read(), "the work to go on")
            until(lambda: trace.read(), "the work to go on")
            until(lambda: trace.read(), "the work to go on")
        until(lambda: has_logged("daemon.recovered"), "the daemon to recover")
        daemon.wait_for_notification("STATUS=running")
        daemon.signal(signal.SIGTERM)

        assert daemon.wait() == 0, daemon.log

    log.close()
    trace.close()
    assert daemon.log.count("lock.missing") == 1
    assert daemon.log.count("daemon.degraded") == 1


def unreachable_metric(port: int) -> float | None:
    """Return the value of the metric in a scrape."""
    body = ask(("127.0.0.1", port)).partition(b"\r\n\r\n")[2]
    return scraped(body).value("craftcore_database_unreachable")


def test_inaccessible_directory_shows_in_the_metrics(folder):
    (folder / "app.py").write_text(CLOSED_DIRECTORY_APP)
    port = free_port()
    (folder / "craftcore.toml").write_text(f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
    with a_daemon(folder, "app:app", CRAFTCORE_CONFIG="craftcore.toml") as daemon:
        daemon.ready()
        before = unreachable_metric(port)
        with close_directory(folder):
            meanwhile = unreachable_metric(port)
        after = unreachable_metric(port)

    assert (before, meanwhile, after) == (0, 1, 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root is let into a closed directory")
def test_status_and_doctor_report_a_directory_that_the_daemon_cannot_enter(folder):
    (folder / "app.py").write_text(CLOSED_DIRECTORY_APP)
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()

        def status_reasons() -> dict[str, str]:
            return {one["code"]: one["text"] for one in call_command(folder, "--json", "status").json["reasons"]}

        with close_directory(folder):
            until(lambda: "directory" in status_reasons(), "status to report it")
            text = status_reasons()["directory"]
            doctor = call_command(folder, "doctor")
        until(lambda: "directory" not in status_reasons(), "status to drop it")

    assert "cannot enter the directory of its database" in text
    assert "Permission denied" in text
    assert doctor.code == 1
    assert "FAIL  open files" in doctor.out


def test_inaccessible_lock_file_is_refused_and_not_taken_for_removed(folder):
    """The folder is replaced by a file, which also root cannot enter, with another error than for a missing file."""
    inner = folder / "inner"
    inner.mkdir(mode=0o700)
    with DaemonLock.acquire(inner / "agent.db", pid=os.getpid(), host="h", now=1.0) as lock:
        inner.rename(folder / "away")
        inner.touch()
        try:
            with pytest.raises(Exception, match="cannot look for the lock file"):
                lock.keep()
        finally:
            inner.unlink()
            (folder / "away").rename(inner)
        assert not lock.keep()


NO_SPACE_PROGRAM = """
import resource, sys
from craftcore.clock import SystemClock
from craftcore.errors import StorageFull
from craftcore.storage.database import Database

resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))  # enough to create the file, and not to extend it
try:
    with Database(sys.argv[1], SystemClock()).reading():
        print("read")
except StorageFull as error:
    print(error)
"""


def test_unreadable_database_for_lack_of_space_is_a_full_disk(folder):
    """SQLite creates the shared memory file also for a reader, and reports a full disk as a disk I/O error."""
    emit(folder, "greet")
    assert not (folder / "agent.db-shm").exists()

    ended = run_python(["-c", NO_SPACE_PROGRAM, "agent.db"], folder)

    assert "no room for the shared memory file" in ended.out, ended


def test_lock_file_without_space_is_a_full_disk(folder):
    child = os.fork()
    if child == 0:  # in a child, since the limit cannot be raised again
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            DaemonLock.acquire(folder / "agent.db", pid=os.getpid(), host="h", now=1.0)
        except StorageFull:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
