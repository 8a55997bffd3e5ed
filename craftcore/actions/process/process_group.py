"""The end of a program and its children: SIGTERM to the process group, then SIGKILL.

The program must have been started as the leader of its own session. A process that leaves the group on purpose
(`setsid`, the job control of a shell) is out of reach. The group's number is also used after its leader was reaped. The
kernel keeps the number while the group has members, and reports an empty group as missing.
"""

from __future__ import annotations

import os
from contextlib import suppress
from signal import SIGKILL, SIGTERM

import anyio
from anyio.abc import Process

GRACE_SECONDS = 5.0
REAP_SECONDS = 1.0
POLL_SECONDS, POLL_SECONDS_MAX = 0.01, 0.25
"""The kernel sends no signal when a group becomes empty, so a stop polls for it."""


async def stop_group(process: Process, *, grace: float = GRACE_SECONDS) -> None:
    """Send SIGTERM, wait up to `grace` seconds, then send SIGKILL. Return as soon as the group has no running process.

    Cancellation does not shorten it, and its time is bounded even when a process cannot die (waiting on a dead disk).
    """
    with anyio.CancelScope(shield=True):
        try:
            if _signal(process.pid, SIGTERM):
                with anyio.move_on_after(grace):
                    await _wait_until_gone(process)
        finally:
            if _signal(process.pid, SIGKILL):
                with anyio.move_on_after(REAP_SECONDS):
                    await _wait_until_gone(process)


async def _wait_until_gone(process: Process) -> None:
    await process.wait()
    wait = POLL_SECONDS
    while _is_alive(process.pid):
        await anyio.sleep(wait)
        wait = min(2 * wait, POLL_SECONDS_MAX)


def _signal(group: int, number: int) -> bool:
    """Return False when the group has no process left that may be signalled."""
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True


def _is_alive(group: int) -> bool:
    """Return True while a process of the group runs. Zombies may stay in the group for long where orphans are not
    reaped soon."""
    _reap_adopted(group)
    return _signal(group, 0) and any(_is_in_group(group, pid) for pid in os.listdir("/proc") if pid.isdigit())


def _is_in_group(group: int, pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            state, _parent, its_group = stat.read().rpartition(b")")[2].split()[:3]
    except OSError:  # it ended just now
        return False
    return int(its_group) == group and state not in (b"Z", b"X")


def _reap_adopted(group: int) -> None:
    """Reap orphans, which the daemon adopts as process 1 of a container."""
    with suppress(ChildProcessError):
        while os.waitpid(-group, os.WNOHANG)[0]:
            pass
