"""Fixtures that run the command line in this process and return its output and exit code."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from craftcore.cli.main import main
from craftcore.storage.repeated_reads import RepeatedReads
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.populated_database import NOON as NOON
from tests.support.populated_database import Here, World
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
    )  # nobody has to name it, and no hint does
    monkeypatch.setenv("COLUMNS", "80")  # help is laid out for the terminal that runs the tests, if there is one
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Result(code=code, out=printed.out, err=printed.err)

    return run


@pytest.fixture
def here(made: tuple[World, Path], database: Path, clock: VirtualClock) -> Iterator[Here]:
    """Return a copy of the populated database at noon, without operator actions."""
    world, path = made
    shutil.copy(path, database)
    core = VirtualCore(database, clock, database=RepeatedReads)
    yield Here(world=world, core=core)
    core.close()
