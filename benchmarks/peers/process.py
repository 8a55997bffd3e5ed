"""A program of a system as a process in a group of its own, which is ended with everything that it has started."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.peers.environments import last_line

ROOT = Path(__file__).parents[2]
SECONDS_MAX = 90


class ProgramFailed(Exception):
    """A program gave no result. The message has the reason."""


def run_program(python: str, module: str, arguments: Sequence[str], *, folder: Path) -> float | list[float]:
    """Run a program with an empty folder for its database, and return what it prints. Raises ProgramFailed."""
    kind, *options = arguments
    with tempfile.TemporaryDirectory(dir=folder) as database:
        process = subprocess.Popen(
            [python, "-m", f"benchmarks.peers.programs.{module}", kind, database, *options],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "ignore"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, errors = process.communicate(timeout=SECONDS_MAX)
        except subprocess.TimeoutExpired as error:
            raise ProgramFailed(f"no result after {SECONDS_MAX} s") from error
        finally:
            end_group(process)
    if process.returncode != 0:
        raise ProgramFailed(last_line(errors) or f"exit status {process.returncode}")
    return parse_result(out)


def end_group(process: subprocess.Popen[str]) -> None:
    """Kill the process and its children, by the id of their group, if any of them still runs."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def parse_result(out: str) -> float | list[float]:
    """Return the rate or the latencies of a program's last line. Raises ProgramFailed."""
    try:
        match json.loads(last_line(out)):
            case bool():
                pass
            case int() | float() as rate:
                return float(rate)
            case [*values] if values:
                return [float(value) for value in values]
    except ValueError:
        pass
    raise ProgramFailed(f"the result is not a rate and not a list of latencies: {last_line(out)[:80]!r}")
