"""A PostgreSQL cluster of its own, in a folder, for the time of a comparison. It comes from Debian's packages."""

from __future__ import annotations

import os
import pwd
import select
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SEARCHED = "/usr/lib/postgresql"
USERS = ("postgres", "nobody")
SETTINGS = {"fsync": "on", "synchronous_commit": "on", "listen_addresses": ""}
STOP_SECONDS = 30


class PostgresMissing(Exception):
    """PostgreSQL cannot be started on this machine. The message has the reason."""


@contextmanager
def running_cluster(folder: Path) -> Iterator[str]:
    """Start a cluster in an empty folder, and yield its connection string. Raises PostgresMissing."""
    programs, as_user = _programs(), _user_switch()
    folder.mkdir()
    if as_user:
        shutil.chown(folder, as_user[2])
    cluster = folder / "cluster"
    _run([*as_user, str(programs / "initdb"), "-D", str(cluster), "-U", "bench", "-A", "trust", "--no-instructions"])
    settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
    _run([*as_user, str(programs / "pg_ctl"), "-D", str(cluster), "-w", "-l", str(folder / "log"), "-o",
          " ".join(f"'{word}'" for word in [*settings, "-k", str(folder)]), "start"])  # fmt: skip
    try:
        yield f"host={folder} user=bench dbname=postgres"
    finally:
        _stop(cluster / "postmaster.pid")


def _programs() -> Path:
    found = sorted(Path(SEARCHED).glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise PostgresMissing("PostgreSQL is not installed: apt-get install postgresql")
    return found[-1].parent


def _user_switch() -> list[str]:
    """Return the words before a command that run it as another user; PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return []
    for user in USERS:
        try:
            pwd.getpwnam(user)
        except KeyError:
            continue
        return ["runuser", "-u", user, "--"]
    raise PostgresMissing(f"PostgreSQL does not run as root, and there is no user {' or '.join(USERS)}")


def _run(command: list[str]) -> None:
    ended = subprocess.run(
        command, cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    if ended.returncode != 0:
        raise PostgresMissing(f"{Path(command[-1]).name}: {ended.stderr.strip()[-200:]}")


def _stop(pid_file: Path) -> None:
    """End the server by its process id, and wait until it is gone."""
    pid = int(pid_file.read_text(encoding="utf-8").split()[0])
    waited = os.pidfd_open(pid)
    try:
        signal.pidfd_send_signal(waited, signal.SIGINT)  # the fast shutdown: open transactions are rolled back
        if not select.select([waited], [], [], STOP_SECONDS)[0]:
            signal.pidfd_send_signal(waited, signal.SIGQUIT)
            select.select([waited], [], [], STOP_SECONDS)
    finally:
        os.close(waited)
