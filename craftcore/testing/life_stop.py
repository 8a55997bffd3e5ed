"""Stops of a life: its process stops at a point while its folder is copied, and goes on."""

from __future__ import annotations

import os
import signal
import threading

from craftcore.testing.crash_point import CrashPoint, parse_points

MESSAGE_BYTES = 100
"""More than the name of a point has. The pipe holds one name at most: its writer is stopped until it goes on."""


class StopPipe:
    """A pipe on which a process names the point at which it stops. It is made before the fork.

    `descriptor`: the end of the other process, which becomes readable then.
    """

    def __init__(self) -> None:
        self.descriptor, self._sender = os.pipe()

    def stop_at(self, point: CrashPoint) -> None:
        """Stop this process until SIGCONT. The signal is for this thread, so that it goes no further."""
        os.write(self._sender, f"{point}\n".encode())
        signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)

    def close_sender(self) -> None:
        """Close the end of the process that stops, in the other one."""
        os.close(self._sender)

    def take(self) -> CrashPoint | None:
        """Return the point at which the process stops; None: it has ended."""
        text = os.read(self.descriptor, MESSAGE_BYTES).decode()
        return parse_points(text)[0] if text else None

    def close(self) -> None:
        """Close the end of the other process."""
        os.close(self.descriptor)
