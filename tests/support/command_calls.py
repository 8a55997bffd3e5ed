"""Commands called in this process, as a shell in a folder would run them. They cost less than processes.

A command that runs user code, waits for a signal or is killed needs a process: `tests.support.processes.craftcore`.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from pathlib import Path
from unittest import mock

from craftcore.cli.main import main
from tests.support.processes import Result, environment


def call_command(folder: Path, *arguments: str, stdin: str = "", database: str = "agent.db") -> Result:
    """Run a command to its end in a folder, on a database there. Raises ValueError if it needs a process."""
    if "run" in arguments:
        raise ValueError("a daemon imports the user's modules, and handles the signals of its process")
    out, err = _file(), _file()
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.chdir(folder))
        stack.enter_context(mock.patch.dict(os.environ, environment(), clear=True))
        stack.enter_context(mock.patch.object(sys, "stdin", _file(stdin)))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = main(["--db", database, *arguments])
    printed = [file.buffer.getvalue().decode() for file in (out, err)]  # type: ignore[attr-defined]
    return Result(code=code, out=printed[0], err=printed[1])


def _file(text: str = "") -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(text.encode()), write_through=True)
