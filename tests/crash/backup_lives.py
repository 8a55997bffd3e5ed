"""Processes that run `db backup` or `db restore` and are killed before each line that they execute.

python -m tests.crash.backup_lives FOLDER backup|restore|copying [FIRST EVERY]     prints the number of the last line

FIRST and EVERY: kill before line FIRST, and then before each EVERYth line only.

copying: a restore on a file system without hard links.

FOLDER/made holds the initial files: the agent.db of a killed daemon, its WAL, and backups.
"""

from __future__ import annotations

import errno
import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

import apsw

from craftcore import services
from craftcore.cli.database import backup as cli_backup
from craftcore.cli.database import restore as cli_restore
from craftcore.cli.main import main as craftcore
from craftcore.engine import boot
from craftcore.storage.backup import backup, restore, staging_file
from craftcore.storage.backup.backup import complete
from craftcore.storage.backup.manifest import manifest_path
from craftcore.storage.backup.staging_file import BEGINS
from craftcore.storage.files import whole_file
from tests.crash.forks import fork, prepare_forks, wait
from tests.support.fakes import NEW_YEAR, VirtualClock

WATCHED = {module.__file__ for module in (cli_backup, cli_restore, boot, backup, staging_file, restore, whole_file)}

OLD, NEW = 5, 2
"""The number of triggers in agent.db, and in backup.db."""

KEEP = 2


def run(home: Path, now: float, *arguments: str) -> int:
    """Run the command in this process, with a clock that shows `now`."""
    os.chdir(home)
    setattr(services, "SystemClock", lambda: VirtualClock(now=now, seed=int(now)))  # noqa: B010 - as a test does
    out = os.open("out", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    return craftcore(["--db", "agent.db", "db", *arguments])


def refuse_link(*_: object) -> None:
    """Raise the error of a file system without hard links."""
    raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))


def command_arguments(operation: str) -> list[str]:
    return (
        ["backup", "--dir", "kept", "--keep", str(KEEP)] if operation == "backup" else ["restore", "backup.db", "--yes"]
    )


def kill_before_line(number: int, home: Path, operation: str) -> None:
    """Run the command and kill the process before a line, counted in the watched modules."""
    left = number

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal left
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event == "line":
            left -= 1
            if left == 0:
                os.kill(os.getpid(), signal.SIGKILL)
        return trace

    sys.settrace(trace)
    code = run(home, NEW_YEAR + 1000, *command_arguments(operation))
    sys.settrace(None)
    assert code == 0, code


def check_afterwards(home: Path, operation: str) -> None:
    """Require that no file is partial, and that the same command works."""
    if operation == "backup":
        check_after_backup(home)
    else:
        check_after_restore(home)


def check_after_backup(home: Path) -> None:
    assert triggers(home / "agent.db") == OLD
    for file in (home / "kept").glob("*.db"):
        if not file.name.startswith(BEGINS):
            assert triggers(file) == OLD, file
            assert manifest_path(file).exists(), f"{file} cannot be restored, and no rotation counts it"
    assert len(list(complete(home / "kept"))) >= KEEP, "an old backup was removed before the new one was complete"
    assert run(home, NEW_YEAR + 2000, *command_arguments("backup")) == 0
    backups = [file.name for file, _ in complete(home / "kept")]
    assert len(backups) == KEEP
    assert backups[-1] == "agent-20260101T003320Z.db"
    left = {name for name in os.listdir(home / "kept") if not name.startswith(".craftcore-") or name.startswith(BEGINS)}
    assert left == {name for file in backups for name in (file, f"{file}.manifest.json")}


def check_after_restore(home: Path) -> None:
    found = triggers(home / "agent.db")
    assert found in (OLD, NEW)
    is_held = query(home / "agent.db", "SELECT count(*) FROM facts WHERE name IN ('held', 'restored_at')") == 2
    is_audited = query(home / "agent.db", "SELECT count(*) FROM audit_log WHERE action = 'db restore'") == 1
    assert is_held == is_audited == (found == NEW)
    already_copied = [path for path in kept(home) if path.stat().st_nlink == 1]
    if found == NEW:
        assert [triggers(path) for path in kept(home)] == [OLD]
    assert triggers(home / "backup.db") == NEW

    assert run(home, NEW_YEAR + 2000, *command_arguments("restore")) == 0

    assert triggers(home / "agent.db") == NEW
    # without hard links, the copy of a killed restore stays
    copies = [OLD] if found == OLD and already_copied else []
    assert sorted(triggers(path) for path in kept(home)) == ([OLD, *copies] if found == OLD else [NEW, OLD])
    assert {path.stat().st_nlink for path in (home / "agent.db", *kept(home))} == {1}
    assert not [name for name in os.listdir(home) if name.startswith(BEGINS)]


def kept(home: Path) -> list[Path]:
    return [path for path in home.glob("agent.db.before-restore-*") if not path.name.endswith(("-wal", "-shm"))]


def triggers(path: Path) -> int:
    """Return the number of triggers in a file whose integrity check passes."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        assert connection.pragma("integrity_check") == "ok", path
        return int(connection.execute("SELECT count(*) FROM triggers").get)
    finally:
        connection.close()


def query(path: Path, sql: str) -> Any:
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READWRITE)
    try:
        return connection.execute(sql).get
    finally:
        connection.close()


def main() -> None:
    folder, operation = Path(sys.argv[1]), sys.argv[2]
    first, every = map(int, sys.argv[3:] or (1, 1))
    prepare_forks()
    if operation == "copying":
        setattr(os, "link", refuse_link)  # noqa: B010 - as a test does
    for number in count(first, every):
        home = folder / str(number)
        shutil.copytree(folder / "made", home)
        ended = wait(fork(kill_before_line, number, home, operation), None)
        checked = wait(fork(check_afterwards, home, operation), None)
        assert checked == 0, f"after a kill before line {number} ({home}): {(home / 'out').read_text()}"
        shutil.rmtree(home)
        if ended == 0:
            print(number - 1)
            return
        assert ended == -signal.SIGKILL, f"line {number} ended with {ended}"


if __name__ == "__main__":
    main()
