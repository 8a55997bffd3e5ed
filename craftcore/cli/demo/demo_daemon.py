"""The daemon of the demo: a real process on a temporary database, started, killed and ended by its id."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from craftcore.daemon.lock import read_note
from craftcore.errors import StorageError

START_SECONDS = 30.0
STOP_SECONDS = 45.0
NOT_INHERITED = ("CRAFTCORE_DB", "CRAFTCORE_CONFIG", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


class DemoDaemon:
    """At most one process at a time. `close` leaves none."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._log = database.with_suffix(".log")
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        return self._running.pid

    def start(self) -> None:
        """Start it and wait until it holds the database."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                craftcore_command(self._database, "run", "craftcore.cli.demo.demo_app:app"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self._database.parent,
                env=environment(),
                start_new_session=True,  # Ctrl-C is for the demo, which then ends its daemon
            )
        deadline = time.monotonic() + START_SECONDS
        while True:
            note, held = read_note(self._database)
            if held and note is not None and note.pid == self.pid:
                return
            self.require_alive()
            if time.monotonic() > deadline:
                raise StorageError(f"the demo's daemon did not start in {START_SECONDS:.0f} s: {self.last_words()}")
            time.sleep(0.01)

    def kill(self) -> int:
        """Send SIGKILL. Return its exit code."""
        process, self._process = self._running, None
        process.kill()
        return process.wait()

    def stop(self) -> int:
        """Send SIGTERM, and wait for the drain. Return its exit code."""
        process, self._process = self._running, None
        process.terminate()
        try:
            return process.wait(STOP_SECONDS)
        except BaseException:
            self._process = process
            raise

    def require_alive(self) -> None:
        """Raise StorageError, with its last words, when it ended by itself."""
        code = self._running.poll()
        if code is not None:
            raise StorageError(f"the demo's daemon ended with exit code {code}: {self.last_words()}")

    def last_words(self) -> str:
        lines = self._log.read_text(errors="replace").splitlines() if self._log.exists() else []
        return lines[-1] if lines else "it said nothing"

    def close(self) -> None:
        """Leave no process behind."""
        if self._process is not None:
            self.kill()

    @property
    def _running(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "no daemon was started"
        return self._process


def emit_elsewhere(database: Path, specs: list[dict[str, Any]]) -> list[str]:
    """Emit each from a process of its own, all at once, with the command a person would use; their ids."""
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for spec in specs:
            payload = json.dumps(spec["payload"])
            command = craftcore_command(database, "--json", "emit", spec["workflow"], "--payload", payload)
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(), cwd=database.parent))
        answers = [process.communicate()[0] for process in processes]
    finally:
        for process in processes:
            if process.poll() is None:
                process.kill()
                process.wait()
    if failed := [process.returncode for process in processes if process.returncode]:
        raise StorageError(f"craftcore emit ended with exit code {failed[0]}")
    return [json.loads(answer)["id"] for answer in answers]


def craftcore_command(database: Path, *arguments: str) -> list[str]:
    """Return the command that runs this craftcore."""
    return [sys.executable, "-m", "craftcore", "--db", str(database), *arguments]


def environment() -> dict[str, str]:
    """Return this process's environment without variables of a real database or service manager."""
    return {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
