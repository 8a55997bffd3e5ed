"""The modes of created files and folders: private to their owner with any umask."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import BY_HAND, READS, WORKS, line
from tests.support.processes import APP, a_daemon, craftcore, until

FOR_OTHERS = {"init", "systemd install"}
"""They make source, settings and units: no secret is in them, and others may have to read them, but never write."""


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Processes that a test starts have it, too."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed one, in which nothing is ours yet."""
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def closed(path: Path) -> int:
    return 0o700 if path.is_dir() else 0o600


def wrong(folder: Path) -> dict[str, str]:
    """What others may read, or write."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in folder.rglob("*")
        if stat.S_IMODE(path.lstat().st_mode) != closed(path)
    }


def test_files_of_a_working_daemon_are_private(folder):
    """Under the name the folder has before it is there, too: the daemon makes it."""
    state = folder / "var" / "craftcore"
    with a_daemon(folder, "--db", "var/craftcore/agent.db") as daemon:
        daemon.ready()
        assert craftcore(folder, "--db", "var/craftcore/agent.db", "emit", "command.run", "--in", "1h").code == 0
        until(lambda: (state / "agent.db-shm").exists(), "the WAL")

        made = modes(state)

    assert {"agent.db", "agent.db-wal", "agent.db-shm", "agent.db.lock", "agent.db.bell"} <= set(made)
    assert set(made.values()) == {0o600}
    assert stat.S_IMODE(state.stat().st_mode) == stat.S_IMODE(state.parent.stat().st_mode) == 0o700


def test_files_of_a_process_attempt_have_the_requested_mode(folder):
    """A workflow's own files are its own: a daemon leaves the umask as it was given."""
    (folder / "app.py").write_text(APP)

    assert craftcore(folder, "emit", "greet").code == 0
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0

    assert {name: mode for name, mode in modes(folder).items() if name.startswith("agent.db")} == {
        name: 0o600 for name in modes(folder) if name.startswith("agent.db")
    }
    assert stat.S_IMODE((folder / "trace").stat().st_mode) == 0o666


@pytest.mark.parametrize("name", [*READS, *BY_HAND, *(name for name in WORKS if name != "demo")])
def test_files_of_every_command_are_private(cli, here, database, name):
    """`demo` has a directory of its own, which Python makes for its owner, and runs what is asked for here."""
    here.core.close()
    database.chmod(0o600)
    for end in ("-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)

    cli(*line(name, {**READS, **BY_HAND, **WORKS}[name], here.world))

    if name in FOR_OTHERS:
        assert [made for made, mode in modes(database.parent).items() if mode & 0o022] == []
    else:
        assert wrong(database.parent) == {}


def test_database_open_to_others_is_made_private(cli, here, database):
    here.core.close()
    database.chmod(0o666)

    assert cli("release").code == 0

    assert wrong(database.parent) == {}


def test_database_and_folders_created_by_emit_are_private(cli, tmp_path):
    assert cli("--db", "new/folder/agent.db", "emit", "greet").code == 0

    assert wrong(tmp_path) == {}
    assert set(modes(tmp_path)) >= {"new", "new/folder", "new/folder/agent.db"}


def test_exported_record_and_head_are_private(cli, here, tmp_path):
    assert cli("export", here.world.ended, "-o", "record.json").code == 0
    assert cli("verify", "--write-head", "head.json").code == 0

    assert [modes(tmp_path)[name] for name in ("record.json", "head.json")] == [0o600, 0o600]


def test_init_files_are_writable_by_their_owner_alone(cli, tmp_path):
    assert cli("init", "deep/new").code == 0

    assert modes(tmp_path) == {
        "deep": 0o755,
        "deep/new": 0o755,
        "deep/new/app.py": 0o644,
        "deep/new/craftcore.toml": 0o644,
    }


def test_mode_check_detects_an_open_file(folder):
    (folder / "open").write_text("")
    with socket.socket(socket.AF_UNIX) as bell:
        bell.bind(str(folder / "bell"))

    assert wrong(folder).keys() == {"open", "bell"}
