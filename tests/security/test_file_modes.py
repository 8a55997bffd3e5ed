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
"""Commands that write source, settings and units, which have no secrets. Other users may read but not write them."""


@pytest.fixture(autouse=True)
def no_umask() -> Iterator[None]:
    """Clear the umask of this process and of the processes that it starts."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Create an empty private folder."""
    (tmp_path / "state").mkdir(mode=0o700)
    return tmp_path / "state"


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): stat.S_IMODE(path.lstat().st_mode) for path in folder.rglob("*")}


def private_mode(path: Path) -> int:
    return 0o700 if path.is_dir() else 0o600


def open_modes(folder: Path) -> dict[str, str]:
    """Return the files and folders with another mode than the private one."""
    return {
        str(path.relative_to(folder)): oct(stat.S_IMODE(path.lstat().st_mode))
        for path in folder.rglob("*")
        if stat.S_IMODE(path.lstat().st_mode) != private_mode(path)
    }


def test_files_of_a_working_daemon_are_private(folder):
    """The folder of the database is missing at first, and the daemon creates it."""
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
    """The daemon does not change the umask, so files of a workflow have the mode that the workflow requests."""
    (folder / "app.py").write_text(APP)

    assert craftcore(folder, "emit", "greet").code == 0
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0

    assert {name: mode for name, mode in modes(folder).items() if name.startswith("agent.db")} == {
        name: 0o600 for name in modes(folder) if name.startswith("agent.db")
    }
    assert stat.S_IMODE((folder / "trace").stat().st_mode) == 0o666


@pytest.mark.parametrize("name", [*READS, *BY_HAND, *(name for name in WORKS if name != "demo")])
def test_files_of_every_command_are_private(cli, here, database, name):
    """The command `demo` is left out, because it runs in a private temporary directory."""
    here.core.close()
    database.chmod(0o600)
    for end in ("-wal", "-shm"):
        database.with_name(database.name + end).unlink(missing_ok=True)

    cli(*line(name, {**READS, **BY_HAND, **WORKS}[name], here.world))

    if name in FOR_OTHERS:
        assert [name for name, mode in modes(database.parent).items() if mode & 0o022] == []
    else:
        assert open_modes(database.parent) == {}


def test_database_open_to_others_is_made_private(cli, here, database):
    here.core.close()
    database.chmod(0o666)

    assert cli("release").code == 0

    assert open_modes(database.parent) == {}


def test_database_and_folders_created_by_emit_are_private(cli, tmp_path):
    assert cli("--db", "new/folder/agent.db", "emit", "greet").code == 0

    assert open_modes(tmp_path) == {}
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

    assert open_modes(folder).keys() == {"open", "bell"}
