"""The daemon's memory and environment, closed to other processes of the same user.

Programs that `command.run` starts get a few variables of the environment. In /proc/PPID/environ they could read all of
them, secrets included. The kernel refuses that, and any tracing, for a process that is not dumpable. Such a process
leaves no core dump. root may still look, and a program that runs as root is not kept out.
"""

from __future__ import annotations

import ctypes

from craftcore.log import get_logger

log = get_logger(__name__)

PR_SET_DUMPABLE = 4


def close_to_programs() -> None:
    """Make this process undumpable; programs that it starts are not. A warning is logged where the system refuses."""
    refused: int | str
    try:
        refused = ctypes.CDLL(None, use_errno=True).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) and ctypes.get_errno()
    except (OSError, AttributeError) as error:
        refused = str(error)
    if refused:
        log.warning("daemon.dumpable", reason=refused, why="programs that it starts can read its environment")
