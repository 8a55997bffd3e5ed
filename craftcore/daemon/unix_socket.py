"""A socket's file: for its owner only, under any name a file may have, in the place of one left behind."""

from __future__ import annotations

import os
import socket
import zlib
from contextlib import suppress

from craftcore.storage.doorbell_client import address


def bind(unbound: socket.socket, path: str) -> None:
    """Bind under a short name and move it into place: the name may be too long to bind, and what is there goes."""
    folder, name = os.path.split(path)
    short = f".{zlib.crc32(os.fsencode(name)):08x}.bell"
    with suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, short))
    os.fchmod(unbound.fileno(), 0o600)  # before bind it is the mode the file is made with; umask belongs to all threads
    with address(folder, short) as where:
        unbound.bind(where)
    os.replace(os.path.join(folder, short), path)
