"""Ring the daemon's doorbell: the producer's end, small enough for any process to import.

A bell only says "look at the table". Nothing is lost when it does not ring: the daemon also wakes by itself.
"""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

SUN_PATH_MAX = 107
"""The longest path a unix socket address holds, in bytes."""

SUFFIX = ".bell"
"""The name of a doorbell after that of its database."""


def doorbell_path(db_path: str | os.PathLike[str]) -> str:
    """Return the path of the doorbell: beside the real file, also when a link leads to it."""
    return os.path.realpath(db_path) + SUFFIX


TRIGGERS, EVERYTHING = b"t", b"*"
"""The kinds of change that a ring names, so that an emit does not wake the scheduler."""


class DoorbellSender:
    """Rings often: its socket stays open until `close`. May be shared by threads."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._opening = threading.Lock()

    def ring(self, real_path: str, what: bytes = TRIGGERS) -> bool:
        """Wake the daemon of a database, given without links. Return True when a daemon listens; False when none does.

        Never raises, never blocks."""
        try:
            sender = self._socket or self._open()
            with address(real_path + SUFFIX) as bell:
                sender.sendto(what, socket.MSG_DONTWAIT, bell)
        except BlockingIOError:  # its queue is full of rings it has not heard yet
            return True
        except (OSError, ValueError):
            return False
        return True

    def _open(self) -> socket.socket:
        """Return the socket of all threads: the first of them opens it."""
        with self._opening:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            return self._socket

    def close(self) -> None:
        """Close the socket. A later ring opens another."""
        with self._opening:
            sender, self._socket = self._socket, None
        if sender is not None:
            sender.close()


def ring(db_path: str | os.PathLike[str], what: bytes = TRIGGERS) -> bool:
    """Wake the daemon once. Return True when a daemon listens; False when none does. Never raises, never blocks."""
    sender = DoorbellSender()
    try:
        return sender.ring(os.path.realpath(db_path), what)
    except ValueError:  # not a path
        return False
    finally:
        sender.close()


@contextmanager
def address(path: str, name: str = "") -> Iterator[str]:
    """Yield an address that fits a unix socket, for `path`, or for the file `name` in the folder `path`.

    Too long a path is reached through a descriptor of it; then the address lives as long as the context.
    """
    full = os.path.join(path, name) if name else path
    if len(os.fsencode(full)) <= SUN_PATH_MAX:
        yield full
        return
    descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        alias = f"/proc/self/fd/{descriptor}"
        yield f"{alias}/{name}" if name else alias
    finally:
        os.close(descriptor)
