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
LOOK_SECONDS = 0.05


class Machine:
    """One container that may be booted again and again from the same folder."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._name = f"craftcore-{os.getpid()}"
        self._console = root.with_name("console.log")
        self._nspawn: subprocess.Popen[bytes] | None = None
        self._first = 0

    def boot(self) -> None:
        """Until all that is enabled was started. Raises Unavailable when this machine boots none."""
        # With its own systemd about, that one gives the container its cgroup; else it is the one we are in.
        where = [] if Path("/run/systemd/system").is_dir() else ["--keep-unit"]
        options = ["--register=no", *where, "--private-network", "--link-journal=no", "--settings=no", "--quiet"]
        container = ["systemd-nspawn", f"--directory={self.root}", f"--machine={self._name}", "--boot", *options]
        with self._console.open("wb") as console:
            self._nspawn = subprocess.Popen(
                ["setpriv", "--pdeathsig", "TERM", *container],  # which halts it: it shall not outlive us
                env={"PATH": PATH},
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=console,
            )
        self._until_booted(self._nspawn)

    def _until_booted(self, nspawn: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        children = Path(f"/proc/{nspawn.pid}/task/{nspawn.pid}/children")
        while nspawn.poll() is None and time.monotonic() < deadline:
            with contextlib.suppress(OSError, IndexError, subprocess.SubprocessError):
                self._first = int(children.read_text().split()[0])
                state = self.run("systemctl", "is-system-running").out.strip()
                if state in ("running", "degraded"):  # some other unit of Debian's may not like containers
                    return
            time.sleep(LOOK_SECONDS)
        said = self._console.read_text(errors="replace").strip().splitlines()[-3:]
        raise Unavailable(f"systemd-nspawn boots no Debian here: {' / '.join(said) or 'it says nothing'}")

    def run(self, *command: str, stdin: str = "", **env: str) -> Result:
        """Run a command in there, as root, to its end."""
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
        """Run a command that has to succeed; what it said."""
        done = self.run(*command, stdin=stdin, **env)
        assert done.code == 0, f"{' '.join(command)[:200]} ended with {done.code}:\n{done.out}{done.err}"
        return done.out

    def path(self, inside: str) -> Path:
        """From out here, the file that is `inside` in there."""
        return self.root / inside.lstrip("/")

    def power_off(self) -> None:
        """In order: systemd stops everything."""
        self.do("systemctl", "poweroff")
        self._gone()

    def cut(self) -> None:
        """By its switch: every process of it ends at once."""
        os.kill(self._first, signal.SIGKILL)  # the end of a first process is that of all; nspawn's own is not
        self._gone()

    def close(self) -> None:
        """Whatever state it is in, nothing of it is left running."""
        if self._nspawn is None:
            return
        if self._nspawn.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self._first or self._nspawn.pid, signal.SIGKILL)
        self._gone()

    def _gone(self) -> None:
        assert self._nspawn is not None
        self._nspawn.wait(PATIENCE)
        self._nspawn, self._first = None, 0
        # nspawn makes this and dares not remove it where /run is on a disk.
        shutil.rmtree(f"/run/systemd/nspawn/propagate/{self._name}", ignore_errors=True)


@contextlib.contextmanager
def a_machine(root: Path) -> Iterator[Machine]:
    """A booted machine, and no other one of ours at the same time: they would have one cgroup between them."""
    machine = Machine(root)
    with open("/run/craftcore-booted.lock", "w") as turn:
        fcntl.flock(turn, fcntl.LOCK_EX)
        try:
            machine.boot()
            yield machine
        finally:
            machine.close()


def until(holds: Callable[[], Any], what: str, seen: Callable[[], str] = str) -> Any:
    """Look again until it holds; what it said. `seen`: what there is to see when it never does."""
    deadline = time.monotonic() + PATIENCE
    while not (answer := holds()):
        assert time.monotonic() < deadline, f"waited {PATIENCE:.0f} s for {what}\n{seen()}"
        time.sleep(LOOK_SECONDS)
    return answer
