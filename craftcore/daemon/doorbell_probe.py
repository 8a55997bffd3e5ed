"""The probe of a daemon: its event loop takes a ring of its doorbell."""

from __future__ import annotations

import fcntl
import os
import socket
import struct
import time

from craftcore.storage.doorbell_client import TRIGGERS, address, doorbell_path

POLL_SECONDS = 0.005


def answers_doorbell(db_path: str | os.PathLike[str], patience: float) -> bool:
    """Wake the daemon, and wait at most `patience` seconds until it takes the wake-up off its queue. Return False when
    no daemon listens, or its event loop is stuck."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender, address(doorbell_path(db_path)) as bell:
            sender.settimeout(patience)
            sender.sendto(TRIGGERS, bell)
            deadline = time.monotonic() + patience
            while _queued_bytes(sender):
                if time.monotonic() > deadline:
                    return False
                time.sleep(POLL_SECONDS)
    except (OSError, ValueError):
        return False
    return True


def _queued_bytes(sender: socket.socket) -> int:
    """Return the bytes that were sent and lie in the receiver's queue: the kernel counts them for the sender."""
    import termios  # when it is needed: other commands are imported with this one, and must not pay for it

    [waiting] = struct.unpack("i", fcntl.ioctl(sender, termios.TIOCOUTQ, struct.pack("i", 0)))
    return int(waiting)
