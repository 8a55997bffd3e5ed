"""Directories and files without permission: one line, exit code 77, and no change.

Root has every permission, so a test that runs as root starts a child process as the user `nobody`.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.processes import Result, craftcore, run_python

NOBODY = 65534
PROGRAM = """
import importlib.metadata, os, sys, anyio
import craftcore.daemon.daemon_process, craftcore.cli.service.run, craftcore.cli.trigger.emit
import craftcore.cli.status.status, craftcore.cli.service.check
import craftcore.cli.database.commands
from craftcore.cli.main import main
anyio.run(anyio.sleep, 0)  # load modules that the user nobody may be unable to read
importlib.metadata.version("craftcore")
if os.geteuid() == 0:
    os.setgroups([])
    os.setresgid({id}, {id}, {id})
    os.setresuid({id}, {id}, {id})
sys.exit(main({arguments!r}))
"""


def is_reachable_by_others(path: Path) -> bool:
    """Return whether another user can reach this path."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


pytestmark = pytest.mark.skipif(
    os.geteuid() == 0
    and not (is_reachable_by_others(Path(__file__)) and is_reachable_by_others(Path(sys.prefix) / "bin")),
    reason="we are root, and nobody cannot come to this checkout and its environment",
)


@pytest.fixture
def folder() -> Iterator[Path]:
    """Return a folder that other users can enter, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)
        Path(name).chmod(0o755)


def as_nobody(folder: Path, *arguments: str) -> Result:
    program = PROGRAM.format(id=NOBODY, arguments=["--db", str(folder / "agent.db"), *arguments])
    return run_python(["-c", program], folder)


@pytest.mark.parametrize("arguments", [["emit", "greet"], ["run"]], ids=" ".join)
def test_unwritable_directory_is_refused_with_the_path(folder, arguments):
    folder.chmod(0o555)

    refused = as_nobody(folder, *arguments)

    owned = f"{folder} has mode 555 and belongs to user id {os.geteuid()}; this user id is {NOBODY}"
    assert (refused.code, refused.err) == (77, f"craftcore: {folder}/agent.db: permission denied ({owned})\n")
    assert os.listdir(folder) == []


@pytest.mark.parametrize("arguments", [["emit", "greet"], ["run"], ["status"]], ids=" ".join)
def test_unopenable_file_is_refused_with_the_path(folder, arguments):
    assert craftcore(folder, "emit", "greet").code == 0
    database = folder / "agent.db"
    database.chmod(0o000)
    before = os.listdir(folder)

    refused = as_nobody(folder, *arguments)

    owned = f"it has mode 000 and belongs to user id {os.geteuid()}; this user id is {NOBODY}"
    assert (refused.code, refused.err) == (77, f"craftcore: {database}: permission denied ({owned})\n")
    assert os.listdir(folder) == before
    checked = as_nobody(folder, "check")
    assert checked.code == 1
    assert "FAIL  database" in checked.out


def test_check_reports_a_read_only_database_file(folder):
    assert craftcore(folder, "emit", "greet").code == 0
    for path in folder.iterdir():
        os.chown(path, NOBODY, NOBODY) if os.geteuid() == 0 else None
    (folder / "agent.db").chmod(0o400)

    checked = as_nobody(folder, "check")

    assert checked.code == 1
    assert "FAIL  permissions: " in checked.out
    assert "cannot be read and written by this user" in checked.out


def test_check_reports_a_directory_without_search_permission(folder):
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o000)

    checked = as_nobody(folder, "--db", str(closed / "agent.db"), "check")

    assert (checked.code, checked.err) == (1, "")
    owned = f"{closed} has mode 000 and belongs to user id {os.geteuid()}; this user id is {NOBODY}"
    assert f"FAIL  permissions: {closed}/agent.db: permission denied ({owned})" in checked.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["emit", "greet"],
        ["schedule", "add", "s", "every day at 3am", "--workflow", "greet"],
        ["status"],
        ["run"],
        ["db", "check"],
        ["db", "restore", "backup.db", "--yes"],
    ],
    ids=" ".join,
)
def test_commands_refuse_a_directory_without_search_permission(folder, arguments):
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o000)

    refused = as_nobody(folder, "--db", str(closed / "agent.db"), *arguments)

    assert (refused.code, refused.out) == ((64 if "restore" in arguments else 77), "")
    assert "a bug in craftcore" not in refused.err


def test_read_only_file_is_readable_and_stays_unchanged(folder):
    assert craftcore(folder, "emit", "greet").code == 0
    database = folder / "agent.db"
    os.chown(database, NOBODY, NOBODY) if os.geteuid() == 0 else None
    database.chmod(0o400)
    folder.chmod(0o777)
    before = database.read_bytes()

    for name in ("status", "audit"):
        assert as_nobody(folder, "--read-only", name).code == 0
    refused = as_nobody(folder, "--read-only", "trigger", "cancel", "--all", "--yes")
    there = sorted(os.listdir(folder))
    also = as_nobody(folder, "trigger", "cancel", "--all", "--yes")

    assert (refused.code, "leave out --read-only" in refused.err) == (77, True)
    assert (also.code, f"craftcore: {database}: permission denied (it has mode 400" in also.err) == (77, True)
    assert database.read_bytes() == before
    assert sorted(os.listdir(folder)) == there


def test_backup_is_written_only_to_a_directory_safe_for_the_user(folder):
    assert craftcore(folder, "emit", "greet").code == 0
    for path in folder.iterdir():
        os.chown(path, NOBODY, NOBODY) if os.geteuid() == 0 else None
    folder.chmod(0o777)
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    own = folder / "own"
    own.mkdir(mode=0o700)
    os.chown(own, NOBODY, NOBODY) if os.geteuid() == 0 else None

    refused = as_nobody(folder, "db", "backup", "-o", str(closed / "backup.db"))
    also = as_nobody(folder, "db", "backup", "--dir", str(closed / "kept"), "--keep", "1")

    owned = f"{closed} has mode 555 and belongs to user id {os.geteuid()}; this user id is {NOBODY}"
    assert (refused.code, refused.err) == (77, f"craftcore: {closed}/backup.db: permission denied ({owned})\n")
    assert (also.code, also.err) == (77, f"craftcore: {closed}/kept: permission denied ({owned})\n")
    assert os.listdir(closed) == []
    shared = as_nobody(folder, "db", "backup", "-o", str(folder / "backup.db"))
    assert (shared.code, "others may rename files in it (mode 777)" in shared.err) == (77, True)
    assert not (folder / "backup.db").exists()
    assert as_nobody(folder, "db", "backup", "-o", str(own / "backup.db")).code == 0


@pytest.mark.parametrize(
    ("lock_mode", "message"),
    [
        (0o600, "{0}: permission denied ({1} has mode 555 and belongs to user id {2}; this user id is {3})"),
        (0o666, "others can open the lock file {0}.lock, and this user may not replace it (permission denied)"),
    ],
)
def test_restore_without_write_permission_changes_nothing(folder, lock_mode, message):
    assert craftcore(folder, "emit", "greet").code == 0
    assert craftcore(folder, "db", "backup", "-o", "backup.db").code == 0
    (folder / "agent.db.lock").touch()
    (folder / "agent.db.lock").chmod(lock_mode)
    for path in folder.iterdir():
        os.chown(path, NOBODY, NOBODY) if os.geteuid() == 0 else None
    before = (folder / "agent.db").read_bytes()
    folder.chmod(0o555)

    refused = as_nobody(folder, "db", "restore", str(folder / "backup.db"), "--yes")

    expected = message.format(folder / "agent.db", folder, os.geteuid(), NOBODY)
    assert (refused.code, refused.err) == (77, f"craftcore: {expected}\n")
    assert (folder / "agent.db").read_bytes() == before
