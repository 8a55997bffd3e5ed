"""Real processes that cost milliseconds, forked from one warm parent.

The parent has imported all modules, runs no thread and has opened no database, so forking it is safe. A forked process
has its own connection, event loop and writer thread. SIGKILL ends it like any other process: the missing `exec` makes
no difference to the kernel.
"""

from __future__ import annotations

import gc
import os
import select
import signal
import threading
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import ParamSpec

from craftcore.version import installed_version
from tests.support.log_capture import suppress_log

HUNG_SECONDS = 300.0
HUNG = 255

PRELOADED = ("anyio._backends._asyncio", "anyio._backends._trio", "craftcore.daemon.lifespan")
"""Modules that each forked process uses."""

P = ParamSpec("P")


def prepare_forks() -> None:
    """Import the modules that forked processes use. Call it once, before the first fork."""
    for module in PRELOADED:
        import_module(module)
    installed_version()  # imports the modules that read the version's file
    suppress_log()
    gc.collect()
    gc.freeze()


def fork(work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> int:
    """Run `work` in a forked process, and return the process id. The process ends when `work` returns."""
    assert threading.active_count() == 1, "the fork would copy a lock that another thread may hold"
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        work(*args, **kwargs)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def wait(pid: int, kill_after: float | None) -> int:
    """Wait for the end of a process, and return its exit code, or minus the signal.

    `kill_after`: the seconds after which a process that still runs is killed.
    """
    descriptor = os.pidfd_open(pid)
    try:
        if kill_after is not None and not select.select([descriptor], [], [], kill_after)[0]:
            os.kill(pid, signal.SIGKILL)
        if not select.select([descriptor], [], [], HUNG_SECONDS)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return HUNG  # killed because it hung, which no campaign plans
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
