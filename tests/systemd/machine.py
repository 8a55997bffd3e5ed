"""A booted machine: systemd as pid 1 of a container, started from a folder and stopped at the end of the block.

The machine is not registered with machined. Its first process is the child of systemd-nspawn, and commands enter the
namespaces of that process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tests.support.processes import PATIENCE, Result
from tests.systemd.debian import PATH, Unavailable

ENVIRONMENT = {"PATH": PATH, "HOME": "/root", "LANG": "C.UTF-8", "SYSTEMD_PAGER": "", "SYSTEMD_COLORS": "0"}
POLL_SECONDS = 0.05


class Machine:
    """A container that can be booted several times from the same folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._name = f"craftcore-{os.getpid()}"
        self._console = root.with_name("console.log")
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._first = 0

    def boot(self) -> None:
        """Boot the machine until all enabled units are started. Raises Unavailable when the host cannot boot one."""
        # On a host with systemd, systemd gives the container its cgroup; otherwise it keeps the cgroup of the tests.
        cgroup = [] if Path("/run/systemd/system").is_dir() else ["--keep-unit"]
        options = ["--register=no", *cgroup, "--private-network", "--link-journal=no", "--settings=no", "--quiet"]
        container = ["systemd-nspawn", f"--directory={self.root}", f"--machine={self._name}", "--boot", *options]
        with self._console.open("wb") as console:
            self._nspawn = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *container],  # TERM halts the container when the tests end
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self._wait_until_booted(self._nspawn)

    def _wait_until_booted(self, nspawn: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")
        while nspawn.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, IndexError, subprocess.SubprocessError):
                self._first = int(children.read_text().split()[0])
                state = self.run("systemctl", "is-system-running").out.strip()
                if state in ("running", "degraded"):  # another unit of Debian may fail in a container
                    return
            time.sleep(POLL_SECONDS)
        last_lines = self._console.read_text(errors="replace").strip().splitlines()[-3:]
        raise Unavailable(f"systemd-nspawn boots no Debian here: {' / '.join(last_lines) or 'it printed nothing'}")

    def run(self, *command: str, stdin: str = "", **env: str) -> Result:
        """Run a command to its end inside the machine, as root."""
        enter = ["nsenter", f"--target={self._first}", "--all", "--root", "--wd", "--"]
        ended = subprocess.run(
            [*enter, *command],
            env={**ENVIRONMENT, **env},
            input=stdin,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=2 * PATIENCE,
        )
        return Result(code=ended.returncode, out=ended.stdout, err=ended.stderr)

    def do(self, *command: str, stdin: str = "", **env: str) -> str:
        """Run a command that must succeed, and return its output."""
        done = self.run(*command, stdin=stdin, **env)
        assert done.code == 0, f"{' '.join(command)[:200]} ended with {done.code}:\n{done.out}{done.err}"
        return done.out

    def path(self, inside: str) -> Path:
        """Return the host's path of a file whose path in the machine is `inside`."""
        return self.root / inside.lstrip("/")

    def power_off(self) -> None:
        """Shut the machine down in order: systemd stops each unit."""
        self.do("systemctl", "poweroff")
        self._wait_for_end()

    def cut_power(self) -> None:
        """End all processes of the machine at once."""
        os.kill(self._first, signal.SIGKILL)  # the kernel ends a container with its first process, not with nspawn
        self._wait_for_end()

    def close(self) -> None:
        """Kill the machine in any state."""
        if self._nspawn is None:
            return
        if self._nspawn.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first or self._nspawn.pid, signal.SIGKILL)
        self._wait_for_end()

    def _wait_for_end(self) -> None:
        assert self._nspawn is not None
        self._nspawn.wait(PATIENCE)
        self._nspawn, self._first = None, 0
        # nspawn makes this folder, and does not remove it where /run is on a disk.
        shutil.rmtree(f"/run/systemd/nspawn/propagate/{self._name}", ignore_errors=True)


@contextlib.contextmanager
def booted_machine(root: Path) -> Iterator[Machine]:
    """Boot a machine, and allow only one at a time: two would share a cgroup."""
    machine = Machine(root)
    with open("/run/craftcore-booted.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            machine.boot()
            yield machine
        finally:
            machine.close()


def wait_until(condition: Callable[[], Any], description: str, details: Callable[[], str] = str) -> Any:
    """Poll until the condition is true, and return its value. The failure shows `details`."""
    deadline = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {description}\n{details()}"
        time.sleep(POLL_SECONDS)
    return value
