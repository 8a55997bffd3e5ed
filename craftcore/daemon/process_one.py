"""Process 1 of a container, whose kernel hands it every orphan: it reaps them, and its child does the work.

The daemon itself could not reap them. It cannot tell an orphan from a program that a handler has started, whose exit
code the handler still wants to read.
"""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from typing import NoReturn

SI_USER = 0
"""The code of a signal that a process has sent. The kernel has sent other ones, as of Ctrl-C, to the child as well."""

KILLED = 128
"""The exit code of a child that a signal has ended, less the number of the signal."""

_OWN = {signal.SIGKILL, signal.SIGSTOP, signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGABRT}


def work_below_process_one() -> None:
    """Return at once, except in process 1: there, return in a child, and reap every process until that child ends.

    Process 1 passes the signals that it receives to the child, and exits with its code. Call it before the process has
    a second thread.
    """
    if os.getpid() == 1:
        fork_below()


def fork_below() -> None:
    """Return in a child. This process reaps its descendants until the child ends, and then ends as well."""
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    awaited = signal.valid_signals() - _OWN
    before = signal.pthread_sigmask(signal.SIG_BLOCK, awaited)  # none is lost before the child can be passed it
    if child := os.fork():
        _reap_until_the_end(child, awaited)
    signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _reap_until_the_end(child: int, awaited: set[signal.Signals]) -> NoReturn:
    while True:
        received = signal.sigwaitinfo(awaited)
        if received.si_signo == signal.SIGCHLD:
            if (status := _reap(child)) is not None:
                code = os.waitstatus_to_exitcode(status)
                os._exit(code if code >= 0 else KILLED - code)
        elif received.si_code == SI_USER:
            with suppress(ProcessLookupError):
                os.kill(child, received.si_signo)


def _reap(child: int) -> int | None:
    """Reap every process that has ended. Return the status of the child if it is one of them."""
    status = None
    with suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            if ended[0] == child:
                status = ended[1]
    return status
