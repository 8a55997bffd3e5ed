"""Fixtures that run the command line in this process and return its output and exit code."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from craftcore.cli.main import main
from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.populated_database import NOON as NOON
from tests.support.populated_database import World, WorldCopy
from tests.support.populated_database import made as made
from tests.support.processes import Result

Cli = Callable[..., Result]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """Return the clock of every command of this test: noon, until the test advances it."""
    clock = VirtualClock(now=NOON)
    monkeypatch.setattr("craftcore.services.SystemClock", lambda: clock)
    return clock


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def cli(database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """Return a function that runs a command, `cli("status")`, on a database of the test's own, in its folder."""
    for name in list(os.environ):
        if name.startswith("CRAFTCORE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("STATE_DIRECTORY", str(database.parent))
    monkeypatch.setattr(
        "craftcore.config.database_path.DATABASE", database.name
    )  # the default name, so that hints omit the option
    monkeypatch.setenv("COLUMNS", "80")  # otherwise the help has the width of the terminal that runs the tests
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Result(code=code, out=printed.out, err=printed.err)

    return run


@pytest.fixture
def here(made: tuple[World, Path], database: Path, clock: VirtualClock) -> Iterator[WorldCopy]:
    """Return a copy of the populated database at noon, without operator actions."""
    world, path = made
    shutil.copy(path, database)
    core = VirtualCore(database, clock, database=RepeatedReads)
    yield WorldCopy(world=world, core=core)
    core.close()


@dataclass(frozen=True, slots=True, kw_only=True)
class Shared:
    """A copy of the populated database for commands that change nothing."""

    world: World
    sound: Path
    path: Path

    def is_unchanged(self) -> bool:
        """Return whether the file has the bytes of the populated database, with nothing in its WAL."""
        wal = self.path.with_name(self.path.name + "-wal")
        is_in_file = not wal.exists() or not wal.stat().st_size
        return is_in_file and self.path.read_bytes() == self.sound.read_bytes()


@pytest.fixture(scope="module")
def copy_of_module(made: tuple[World, Path], tmp_path_factory: pytest.TempPathFactory) -> Shared:
    world, sound = made
    path = tmp_path_factory.mktemp("shared") / "agent.db"
    shutil.copy(sound, path)
    return Shared(world=world, sound=sound, path=path)


@pytest.fixture
def shared(copy_of_module: Shared, cli: Cli, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shared]:
    """Return a copy of the populated database at noon, which the tests of a module share as the default database.

    A changed copy is replaced for the next test.
    """
    monkeypatch.setenv("STATE_DIRECTORY", str(copy_of_module.path.parent))
    yield copy_of_module
    if not copy_of_module.is_unchanged():
        for path in copy_of_module.path.parent.iterdir():
            path.unlink()
        shutil.copy(copy_of_module.sound, copy_of_module.path)
