"""The doorbell: how a producer in another process wakes an idle daemon within milliseconds.

A datagram socket beside the database, for its owner only. A ring is one byte, what has changed; who rang, the kernel
says.
"""

from __future__ import annotations

import os
import socket
import struct
from contextlib import suppress

import anyio

from craftcore.daemon.unix_socket import bind
from craftcore.errors import CannotCreate
from craftcore.forks import run_in_forked_children
from craftcore.storage.doorbell_client import TRIGGERS, doorbell_path
from craftcore.storage.sqlite_errors import NO_ROOM, storage_full_error

DRAIN_MAX = 1024
"""Rings taken at one wake-up, so that a flood of them cannot hold the event loop."""

_CREDENTIALS = struct.Struct("iII")  # struct ucred: pid, uid, gid
_ANCILLARY_BYTES = socket.CMSG_SPACE(_CREDENTIALS.size)  # no room for descriptors somebody may send along


class Doorbell:
    """The daemon's end. Open it only while holding the daemon lock: it takes the place of a bell left behind."""

    def __init__(self, bell: socket.socket, path: str) -> None:
        self._socket = bell
        self._path = path
        self._forget_forks = run_in_forked_children(bell.close)
        self.ignored = 0  # rings from other users since it was opened

    @classmethod
    def open(cls, db_path: str | os.PathLike[str]) -> Doorbell:
        """Raise CannotCreate when the socket cannot be made beside the database, StorageFull for want of room."""
        path = doorbell_path(db_path)
        bell = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK)
        try:
            bell.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
            bind(bell, path)
        except OSError as error:
            bell.close()
            if error.errno in NO_ROOM:
                raise storage_full_error(path, NO_ROOM[error.errno]) from error
            raise CannotCreate(f"cannot make the doorbell {path}: {error.strerror or error}", path=path) from error
        return cls(bell, path)

    async def wait(self) -> bool:
        """Wait for a wake-up. One return answers all that are queued: True when one of them reports that more than
        triggers has changed."""
        while True:
            await anyio.wait_readable(self._socket)
            if rings := self._drain():
                return rings != {TRIGGERS}

    def close(self) -> None:
        """Close the socket. Later wake-ups fail, so a sender sees that no daemon listens."""
        self._forget_forks()
        self._socket.close()
        with suppress(OSError):
            os.unlink(self._path)

    def _drain(self) -> set[bytes]:
        rings: set[bytes] = set()
        for _ in range(DRAIN_MAX):
            try:
                what, ancillary, _, _ = self._socket.recvmsg(1, _ANCILLARY_BYTES)
            except BlockingIOError:
                break
            if may_ring(_sender_uid(ancillary), owner=os.getuid()):
                rings.add(what)
            else:
                self.ignored += 1
        return rings


def may_ring(uid: int | None, *, owner: int) -> bool:
    """Return whether the sender may ring: the user of the daemon or root, as the kernel names it."""
    return uid in (owner, 0)


def _sender_uid(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, content in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_CREDENTIALS) and len(content) >= _CREDENTIALS.size:
            _, uid, _ = _CREDENTIALS.unpack_from(content)
            return int(uid)
    return None
