"""The command line, called in this process: what it prints, and its exit code."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from craftcore.cli.main import main
from tests.processes import Result
from tests.virtual import VirtualClock

Cli = Callable[..., Result]

NOON = 1_795_262_400.0
"""2026-11-21T12:00:00Z, a Saturday."""


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualClock:
    """What time it is for every command of this test: noon, until it is told to go on."""
    clock = VirtualClock(now=NOON)
    monkeypatch.setattr("craftcore.core.SystemClock", lambda: clock)
    return clock


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def cli(database: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Cli:
    """`cli("status")` on a database of the test's own, in a folder of its own."""
    for name in list(os.environ):
        if name.startswith("CRAFTCORE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("CRAFTCORE_DB", str(database))
    monkeypatch.setenv("COLUMNS", "80")  # help is laid out for the terminal that runs the tests, if there is one
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Result(code=code, out=printed.out, err=printed.err)

    return run
