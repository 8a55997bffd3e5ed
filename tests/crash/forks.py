"""Real processes that cost milliseconds, forked from one warm parent.

The parent has imported all modules, runs no thread and has opened no database, so the fork copies nothing that it would
break. A forked process has its own connection, event loop and writer thread, and SIGKILL ends it as any other process.
The missing `exec` makes no difference to the kernel.
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

IMPORTED_BY_EVERY_LIFE = ("anyio._backends._asyncio", "anyio._backends._trio", "craftcore.daemon.lifespan")

P = ParamSpec("P")


def be_a_warm_parent() -> None:
    """Call it once, before the first fork."""
    for module in IMPORTED_BY_EVERY_LIFE:  # here once, so that no child pays for it
        import_module(module)
    installed_version()  # reads a file, and imports what that takes
    suppress_log()
    gc.collect()
    gc.freeze()


def fork(work: Callable[P, object], *args: P.args, **kwargs: P.kwargs) -> int:
    """Run `work` in a forked process, which ends with it."""
    assert threading.active_count() == 1, "a thread's locks would be copied in whatever state they are"
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
    """How the process ended: its exit code, or minus the signal. `kill_after` seconds we end it, if it still runs."""
    descriptor = os.pidfd_open(pid)
    try:
        if kill_after is not None and not select.select([descriptor], [], [], kill_after)[0]:
            os.kill(pid, signal.SIGKILL)
        if not select.select([descriptor], [], [], HUNG_SECONDS)[0]:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return HUNG  # killed, but not as planned
    finally:
        os.close(descriptor)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
