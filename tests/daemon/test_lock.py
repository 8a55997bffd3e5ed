"""The lock of a database: one daemon at a time, and the contents of the lock file."""

from __future__ import annotations

import fcntl
import os
import signal
import stat
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from craftcore.daemon.lock import DaemonLock, read_note
from craftcore.daemon.lock_file import lock_path
from craftcore.daemon.lock_note import LockInfo
from craftcore.errors import CannotCreate, DaemonRunning, PermissionRefused
from craftcore.storage.facts import LastSeen
from craftcore.storage.files.daemon_files import name_lost_by_daemon
from craftcore.storage.files.open_files import OpenFiles
from tests.support.other_users import NOBODY, as_root
from tests.support.warm_parent import WarmProcess, start

STARTED = 1_767_323_045.0  # 2026-01-02T03:04:05Z

HOLDER = """
import os, sys
from craftcore.daemon.lock import DaemonLock
lock = DaemonLock.acquire(sys.argv[1], pid=os.getpid(), host="there", now=1767323045.0)
lock.write(database_id="db-1", epoch=7, call_mark=3)
print("held", flush=True)
sys.stdin.read()
"""

PROBER = """
import sys
from craftcore.daemon.lock import read_note
print("probing", flush=True)
while True:
    read_note(sys.argv[1])
"""


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


def acquire(db: Path, pid: int = 4711) -> DaemonLock:
    return DaemonLock.acquire(db, pid=pid, host="here", now=STARTED)


def child(code: str, db: Path) -> WarmProcess:
    process = start(["-c", code, db], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline()
    return process


def end(process: WarmProcess) -> None:
    with process:
        process.kill()


def test_second_daemon_is_refused_and_the_first_is_named(db: Path) -> None:
    first = child(HOLDER, db)

    with pytest.raises(DaemonRunning) as refused:
        acquire(db)

    end(first)
    assert str(refused.value) == (
        f"another daemon holds this database: pid {first.pid} on there since 2026-01-02T03:04:05Z"
        f" (lock {lock_path(db)}). Stop that one first"
    )
    assert refused.value.exit_code == 75


def test_lock_of_a_killed_daemon_is_free_and_its_note_is_read_by_the_next(db: Path) -> None:
    first = child(HOLDER, db)
    first.send_signal(signal.SIGKILL)
    first.communicate()

    with acquire(db) as lock:
        assert lock.previous == LockInfo(
            pid=first.pid, host="there", started_at=STARTED, database_id="db-1", epoch=7, call_mark=3
        )


def test_boot_that_dies_before_opening_the_database_keeps_the_lock_note(db: Path) -> None:
    with acquire(db, pid=1) as lock:
        lock.write(database_id="db-1", epoch=7, call_mark=3)
    with acquire(db, pid=2):
        pass

    with acquire(db, pid=3) as lock:
        assert lock.previous == LockInfo(
            pid=2, host="here", started_at=STARTED, database_id="db-1", epoch=7, call_mark=3
        )


def test_lost_lock_file_is_restored_with_its_note_and_keeps_others_out(db: Path) -> None:
    with acquire(db) as lock:
        lock.write(database_id="db-1", epoch=7, call_mark=0)
        note = Path(lock.path).read_bytes()
        assert lock.keep() is False
        Path(lock.path).unlink()

        assert lock.keep() is True

        assert Path(lock.path).read_bytes() == note
        assert lock.keep() is False
        with pytest.raises(DaemonRunning):
            acquire(db)


def test_lock_file_replaced_by_an_empty_file_is_taken_again(db: Path) -> None:
    with acquire(db) as lock:
        Path(lock.path).unlink()
        Path(lock.path).touch(mode=0o600)

        assert lock.keep() is True

        with pytest.raises(DaemonRunning):
            acquire(db)


def test_lost_lock_file_taken_by_another_daemon_is_left_to_that_daemon(db: Path) -> None:
    with acquire(db) as lock:
        Path(lock.path).unlink()
        other = child(HOLDER, db)

        with pytest.raises(DaemonRunning, match=f"was removed, and another daemon holds .*: pid {other.pid}"):
            lock.keep()

        end(other)


def test_status_request_does_not_cost_a_daemon_its_lost_lock(db: Path, monkeypatch: Any) -> None:
    """A status request takes a shared lock for an instant, which is long when its process gets no time slice."""
    monkeypatch.setattr("craftcore.daemon.lock_file.PROBES_OUTLIVED", 10_000)
    with acquire(db) as lock:
        prober = child(PROBER, db)
        for _ in range(200):
            Path(lock.path).unlink()
            assert lock.keep() is True
        end(prober)


def test_open_files_of_a_daemon_are_in_its_note_until_closed(db: Path) -> None:
    db.touch()
    for side in ("-wal", "-shm"):
        db.with_name(f"{db.name}{side}").touch()
    descriptors = [os.open(f"{db}{side}", os.O_RDONLY) for side in ("", "-wal", "-shm")]
    with acquire(db) as lock:
        files = OpenFiles.from_connection(db)

        lock.note_files(files)
        note, _ = read_note(db)
        assert note is not None
        assert note.inodes == tuple(os.fstat(descriptor).st_ino for descriptor in descriptors)
        assert name_lost_by_daemon(db) is None
        db.with_name(f"{db.name}-shm").unlink()
        assert name_lost_by_daemon(db) == f"{db}-shm"

        lock.note_files(None)
        assert name_lost_by_daemon(db) is None
        lock.note_files(files)
    assert name_lost_by_daemon(db) is None, "the lock is free"
    with acquire(db) as lock:
        assert name_lost_by_daemon(db) is None, "the next daemon has not noted its files yet"
    for descriptor in descriptors:
        os.close(descriptor)


def test_released_lock_admits_the_next_daemon_and_keeps_its_file(db: Path) -> None:
    lock = acquire(db)
    inode = os.stat(lock.path).st_ino
    lock.release()
    lock.release()

    with acquire(db):
        assert os.stat(lock.path).st_ino == inode
    assert Path(lock.path).exists()


def test_child_process_does_not_hold_the_lock(db: Path) -> None:
    lock = acquire(db)
    child_process = child("print('here', flush=True); import sys; sys.stdin.read()", db)

    lock.release()

    acquire(db).release()
    assert not any(
        os.readlink(f"/proc/{child_process.pid}/fd/{n}") == lock.path
        for n in os.listdir(f"/proc/{child_process.pid}/fd")
    )
    end(child_process)


def test_lock_file_is_private(db: Path) -> None:
    with acquire(db) as lock:
        assert stat.S_IMODE(os.stat(lock.path).st_mode) == 0o600


def test_lock_neither_creates_nor_locks_the_database(db: Path) -> None:
    with acquire(db):
        assert [path.name for path in db.parent.iterdir()] == ["agent.db.lock"]


def test_two_links_to_a_database_share_a_lock(db: Path) -> None:
    db.touch()
    link = db.with_name("link.db")
    link.symlink_to(db)

    with acquire(db), pytest.raises(DaemonRunning):
        acquire(link)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b'{"pid": 12, "host": "he',
        b"\xff\xfe",
        b"null",
        b"[]",
        b"[" * 4000,
        b'{"pid": true, "host": "h", "started_at": 1}',
        b'{"pid": -1, "host": "h", "started_at": 1}',
        b'{"pid": 1, "host": "\\u001b[31m", "started_at": 1}',
        b'{"pid": 1, "host": "h", "started_at": NaN}',
        b'{"pid": 1, "host": "h", "started_at": 1e300}',
        b'{"pid": 1, "host": "h", "started_at": ' + b"9" * 3000 + b"}",
        b'{"pid": 1, "host": "h", "started_at": 1, "epoch": "7"}',
        b'{"pid": 1, "host": "h", "started_at": 1, "database_id": 7}',
        b'{"pid": 1, "host": "h", "started_at": 1, "inodes": "7"}',
        b'{"pid": 1, "host": "h", "started_at": 1, "inodes": [7, null, 8]}',
        b"x" * 1_000_000,
    ],
    ids=lambda content: repr(content[:30]),
)
def test_invalid_lock_note_is_ignored(db: Path, content: bytes) -> None:
    Path(lock_path(db)).write_bytes(content)

    assert read_note(db) == (None, False)
    with acquire(db) as lock:
        assert lock.previous is None
        note, held = read_note(db)
    assert held
    assert note == LockInfo(pid=4711, host="here", started_at=STARTED)


def test_shorter_lock_note_replaces_a_longer_note_completely(db: Path) -> None:
    with acquire(db) as lock:
        lock.write(database_id="d" * 600, epoch=10**9, call_mark=0)
        lock.write(database_id="d", epoch=1, call_mark=0)

        note, _ = read_note(db)

        assert note is not None
        assert (note.database_id, note.epoch) == ("d", 1)
        assert Path(lock.path).read_bytes().count(b"\n") == 1


def test_call_mark_is_on_disk_when_written_and_never_goes_back(db: Path) -> None:
    with acquire(db) as lock:
        lock.write(database_id="d", epoch=1, call_mark=5)
        size = Path(lock.path).stat().st_size

        for mark, noted in ((6, 6), (4, 6), (10**12, 10**12)):
            lock.mark(mark)

            note, _ = read_note(db)
            assert note is not None
            assert note.last_seen == LastSeen("d", 1, noted)
            assert Path(lock.path).stat().st_size == size, "a longer line could be cut off by a power loss"


def test_call_mark_restores_a_removed_lock_file(db: Path) -> None:
    with acquire(db) as lock:
        lock.write(database_id="d", epoch=1, call_mark=5)
        os.unlink(lock.path)

        lock.mark(6)

        note, held = read_note(db)
        assert held
        assert note is not None
        assert note.last_seen == LastSeen("d", 1, 6)


def test_call_mark_is_refused_when_another_daemon_has_the_lock(db: Path) -> None:
    with acquire(db) as lock:
        lock.write(database_id="d", epoch=1, call_mark=5)
        os.unlink(lock.path)
        other = child(HOLDER, db)

        with pytest.raises(DaemonRunning):
            lock.mark(6)

        end(other)


@pytest.mark.parametrize("mark", ["-1", "1.5", '"7"', "true", "9007199254740992"])
def test_invalid_call_mark_makes_no_note(db: Path, mark: str) -> None:
    text = f'{{"pid": 1, "host": "h", "started_at": 1, "database_id": "d", "epoch": 1, "call_mark": {mark}}}\n'
    Path(lock_path(db)).write_text(text)

    assert read_note(db) == (None, False)


def test_lock_note_of_an_older_version_has_no_mark(db: Path) -> None:
    Path(lock_path(db)).write_text('{"pid": 1, "host": "h", "started_at": 1, "database_id": "d", "epoch": 1}\n')
    os.chmod(lock_path(db), 0o600)

    note, _ = read_note(db)

    assert note is not None
    assert note.last_seen == LastSeen("d", 1, 0)


def test_status_reads_the_lock_note_and_whether_the_lock_is_held(db: Path) -> None:
    assert read_note(db) == (None, False)
    assert not Path(lock_path(db)).exists()

    first = child(HOLDER, db)
    note, held = read_note(db)
    end(first)

    assert note is not None
    assert (note.pid, note.epoch, held) == (first.pid, 7, True)
    assert read_note(db) == (note, False)


def test_frequent_status_requests_do_not_keep_a_daemon_out(db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An instant is long when the process of the request gets no time slice, so the test permits more probes."""
    monkeypatch.setattr("craftcore.daemon.lock_file.PROBES_OUTLIVED", 10_000)
    prober = child(PROBER, db)

    for pid in range(1, 201):
        acquire(db, pid).release()

    end(prober)


def test_lock_shared_for_a_long_time_counts_as_held(db: Path) -> None:
    acquire(db).release()
    with open(lock_path(db)) as other:
        fcntl.flock(other, fcntl.LOCK_SH)
        with pytest.raises(DaemonRunning):
            acquire(db)


def test_lock_holder_without_a_note_is_reported_as_such(db: Path) -> None:
    with open(lock_path(db), "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DaemonRunning, match="has not yet said who it is"):
            acquire(db)


def test_lock_in_a_missing_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CannotCreate, match="No such file") as refused:
        acquire(tmp_path / "missing" / "agent.db")
    assert refused.value.exit_code == 73


def test_link_in_place_of_the_lock_file_is_not_followed(db: Path) -> None:
    Path(lock_path(db)).symlink_to(db)

    with pytest.raises(CannotCreate):
        acquire(db)
    assert not db.exists()


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
class TestAnotherUser:
    @pytest.fixture
    def foreign(self) -> Iterator[Path]:
        """Yield a database path in a folder of root that every user may enter, unlike tmp_path."""
        with TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            yield Path(folder) / "agent.db"

    def test_may_not_open_the_lock_file(self, foreign: Path) -> None:
        acquire(foreign).release()

        assert error_for_other_user(lambda: acquire(foreign)) == "PermissionRefused"
        assert error_for_other_user(lambda: read_note(foreign)) == "PermissionRefused"

    def test_lock_file_creation_failure_is_reported(self, foreign: Path) -> None:
        assert error_for_other_user(lambda: acquire(foreign)) == "CannotCreate"


def error_for_other_user(call: Callable[[], object]) -> str:
    """Return the type name of the error of a call by the unprivileged user."""
    os.seteuid(65534)
    try:
        call()
    except Exception as error:
        return type(error).__name__
    finally:
        os.seteuid(0)
    return "nothing"


# Lock files open to other users


@pytest.mark.parametrize("mode", [0o666, 0o644, 0o620, 0o602])
def test_lock_file_open_to_others_is_replaced_and_keeps_its_note(db: Path, mode: int) -> None:
    """A user who has opened the file before could hold its lock later and keep out a daemon."""
    with acquire(db, pid=1) as lock:
        lock.write(database_id="db-1", epoch=7, call_mark=3)
    os.chmod(lock.path, mode)
    old_descriptor = os.open(lock.path, os.O_RDONLY)

    with acquire(db, pid=2) as lock:
        assert lock.previous == LockInfo(
            pid=1, host="here", started_at=STARTED, database_id="db-1", epoch=7, call_mark=3
        )
        assert stat.S_IMODE(os.stat(lock.path).st_mode) == 0o600
        fcntl.flock(old_descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # the old file, whose lock has no effect
        assert read_note(db)[1]

    assert not read_note(db)[1]
    assert os.listdir(db.parent) == ["agent.db.lock"]
    os.close(old_descriptor)


def test_foreign_holder_of_an_open_lock_file_is_not_a_daemon(db: Path) -> None:
    acquire(db).release()
    os.chmod(lock_path(db), 0o644)
    old_descriptor = os.open(lock_path(db), os.O_RDONLY)
    fcntl.flock(old_descriptor, fcntl.LOCK_EX)

    assert read_note(db) == (None, False)

    os.close(old_descriptor)


def test_running_daemon_replaces_a_lock_file_opened_to_others(db: Path) -> None:
    with acquire(db) as lock:
        assert not lock.keep()
        os.chmod(lock.path, 0o664)

        assert lock.keep()

        assert stat.S_IMODE(os.stat(lock.path).st_mode) == 0o600
        assert not lock.keep()
        with pytest.raises(DaemonRunning):
            acquire(db)


def test_lock_file_with_a_second_name_is_not_written(db: Path) -> None:
    victim = db.with_name("victim")
    victim.write_text("foreign")
    os.link(victim, lock_path(db))

    with pytest.raises(PermissionRefused, match="not a regular file with one name"):
        acquire(db)

    assert victim.read_text() == "foreign"
    assert read_note(db) == (None, False)


def test_pipe_in_place_of_the_lock_file_is_refused_at_once(db: Path) -> None:
    os.mkfifo(lock_path(db))

    with pytest.raises(PermissionRefused, match="not a regular file"):
        acquire(db)

    assert read_note(db) == (None, False)


@as_root
def test_lock_file_of_another_user_is_refused(db: Path) -> None:
    db.touch()
    Path(lock_path(db)).touch(0o600)
    os.chown(lock_path(db), NOBODY, NOBODY)

    with pytest.raises(PermissionRefused, match=f"belongs to user id {NOBODY}, the database to 0"):
        acquire(db)

    assert read_note(db) == (None, False)
    os.chown(db, NOBODY, NOBODY)
    with acquire(db):
        assert read_note(db)[1]


def test_lock_file_replaced_during_the_wait_is_not_the_lock(db: Path, monkeypatch: Any) -> None:
    """Another process puts a new file at the path between the open and the lock."""
    acquire(db).release()
    real = fcntl.flock
    calls = 0

    def flock(descriptor: int, operation: int) -> None:
        nonlocal calls
        calls += 1
        if calls == 1:
            os.rename(lock_path(db), db.with_name("old"))
            Path(lock_path(db)).touch(0o600)
        real(descriptor, operation)

    monkeypatch.setattr(fcntl, "flock", flock)

    with acquire(db) as lock:
        assert os.path.samestat(os.fstat(lock.fileno()), os.stat(lock_path(db)))
