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

Cli = Callable[..., Result]


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
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, stdin: bytes = b"") -> Result:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main(arguments)
        printed = capsys.readouterr()
        return Result(code=code, out=printed.out, err=printed.err)

    return run
