"""A life that runs in a process of its own, as the matrix follows it: it stops, goes on, ends, or hangs."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

from craftcore.testing.crash_point import CrashPoint
from craftcore.testing.life_stop import StopPipe

LIFE_SECONDS = 120.0
"""Seconds of real time, since its begin or its last stop, after which a life counts as hung."""

HUNG = -signal.SIGALRM
"""The exit code of a life that was ended because it took too long."""


class RunningLife:
    """A process that lives through a scenario.

    `until`: when it counts as hung, by the monotonic clock. `ended`: a descriptor that becomes readable at its end.
    """

    def __init__(self, pid: int, stops: StopPipe | None = None) -> None:
        self._pid = pid
        self._stops = stops
        self.ended = os.pidfd_open(pid)
        self.until = time.monotonic() + LIFE_SECONDS
        if stops is not None:
            stops.close_sender()

    @property
    def descriptors(self) -> list[int]:
        """The descriptors of which one becomes readable when it stops or ends."""
        return [self.ended] if self._stops is None else [self.ended, self._stops.descriptor]

    def take_stop(self) -> CrashPoint | None:
        """Return the point at which it has stopped, with all of its threads; None: it has ended. Wait for that."""
        if self._stops is None:
            return None
        point = self._stops.take()
        if point is None:  # it ends, or goes on as another program
            self._stops.close()
            self._stops = None
            return None
        found = os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        if found is None or found.si_code != os.CLD_STOPPED:
            return None
        self._send(signal.SIGSTOP)  # to the programs that it started
        return point

    def resume(self) -> None:
        """Let it go on from a stop. The time until then was not its own."""
        self.until = time.monotonic() + LIFE_SECONDS
        self._send(signal.SIGCONT)

    def end(self, *, hung: bool) -> int:
        """Return its exit code, or minus its signal; HUNG when it has to be killed. End its programs, too."""
        if hung:
            os.kill(self._pid, signal.SIGKILL)  # also before it has a group of its own
        self._send(signal.SIGKILL)
        if self._stops is not None:
            self._stops.close()
        os.close(self.ended)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return HUNG if hung else code

    def _send(self, number: signal.Signals) -> None:
        """Send a signal to the process and to the programs that it started. Its number is its own until `end`."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._pid, number)
