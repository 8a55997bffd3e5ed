"""Worker processes that tests kill, freeze and continue.

An interpreter takes two seconds of processor time to import the library of Temporal. These processes are forked from a
parent that has imported it. They end as a whole interpreter does, because the library has threads that may call Python
while it ends.
"""

from __future__ import annotations

import os
import random
import signal
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE, Result
from tests.support.warm_parent import FINALIZES, WarmProcess, start

ROOT = Path(__file__).parents[2]

MODULE = f"""
import runpy, sys
sys.path.append({str(ROOT)!r})
runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
"""
"""The program that runs a module of the tests in another folder."""


def start_on_cluster(
    arguments: Sequence[str | Path], *, env: Mapping[str, str] | None = None, **options: Any
) -> WarmProcess:
    """Start a process that imports the library of Temporal. The parameters are those of `start`."""
    env = {**(os.environ if env is None else env), FINALIZES: "yes"}
    return start(arguments, library="craftcore.temporal.worker", env=env, **options)


def run_on_cluster(arguments: Sequence[str | Path], **options: Any) -> Result:
    """Run a process that imports the library of Temporal to its end."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with start_on_cluster(arguments, stdout=out, stderr=err, **options) as process:
            code = process.wait(PATIENCE)
        out.seek(0)
        err.seek(0)
        return Result(code=code, out=out.read().decode(), err=err.read().decode())


class Workers:
    """Processes of one program in one folder; killed ones are replaced. The folder has their output in `out` and
    `errors`."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str],
        folder: Path,
        *,
        count: int = 3,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self._command = ["-c", MODULE, module, *arguments]
        self._folder = folder
        self._environment = os.environ | (environment or {})
        self.killed = 0
        self.exits: list[int] = []
        """The exit codes of workers that ended without a kill; a correct run has none."""
        self._running = [self._start() for _ in range(count)]

    def _start(self) -> WarmProcess:
        with (self._folder / "out").open("ab") as out, (self._folder / "errors").open("ab") as errors:
            return start_on_cluster(self._command, cwd=self._folder, env=self._environment, stdout=out, stderr=errors)

    def kill(self, *places: int) -> None:
        """Kill these workers together, and start new ones in their places."""
        for place in places:
            if (code := self._running[place].poll()) is not None:
                self.exits.append(code)
            self._running[place].send_signal(signal.SIGKILL)
        for place in places:
            self._running[place].wait(PATIENCE)
            self.killed += 1
            self._running[place] = self._start()

    def replace_dead(self) -> None:
        """Start new workers in the places of workers that killed themselves."""
        for place, worker in enumerate(self._running):
            code = worker.poll()
            if code not in (None, -signal.SIGKILL):
                self.exits.append(code)
            if code is not None:
                self._running[place] = self._start()

    def kill_some(self, chance: random.Random) -> None:
        """Kill one of the workers, or at random all of them."""
        places = range(len(self._running))
        self.kill(*(places if chance.random() < 0.04 else [chance.choice(places)]))

    def freeze(self, place: int) -> None:
        """Stop a process with SIGSTOP."""
        self._running[place].send_signal(signal.SIGSTOP)

    def thaw(self, place: int) -> None:
        """Continue a frozen process."""
        self._running[place].send_signal(signal.SIGCONT)

    def pid(self, place: int) -> int:
        """Return the process id of a worker."""
        return self._running[place].pid

    def add(self) -> int:
        """Start one more worker, and return its place."""
        self._running.append(self._start())
        return len(self._running) - 1

    def close(self) -> None:
        """Kill all workers for good."""
        for worker in self._running:
            worker.send_signal(signal.SIGKILL)
        for worker in self._running:
            worker.wait(PATIENCE)


def lines(path: Path) -> list[str]:
    """Return the lines that programs have written so far."""
    return path.read_text().splitlines() if path.exists() else []
