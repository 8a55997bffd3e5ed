"""A life that runs in a process of its own, as the matrix follows it: it stops, goes on, ends, or hangs."""

from __future__ import annotations

import os
import signal
import time

from craftcore.testing.crash_point import CrashPoint
from craftcore.testing.life_stop import StopPipe

LIFE_SECONDS = 120.0
"""Seconds of real time after which a life counts as hung."""

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
        if self._stops is None or (point := self._stops.take()) is None:
            return None
        found = os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return point if found is not None and found.si_code == os.CLD_STOPPED else None

    def resume(self) -> None:
        """Let it go on from a stop."""
        os.kill(self._pid, signal.SIGCONT)

    def end(self, *, hung: bool) -> int:
        """Return its exit code, or minus its signal; HUNG when it has to be killed."""
        if hung:
            os.kill(self._pid, signal.SIGKILL)
        if self._stops is not None:
            self._stops.close()
        os.close(self.ended)
        code = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        return HUNG if hung else code
