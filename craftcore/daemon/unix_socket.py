"""A socket's file: for its owner only, under any name a file may have, in the place of one left behind."""

from __future__ import annotations

import errno
import os
import socket
import stat
import zlib
from contextlib import suppress

from craftcore.errors import CannotCreate
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


def require_free(path: str, setting: str) -> None:
    """Raise CannotCreate when a path has another file than a socket, or a socket in use. `setting` names it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(found.st_mode):
        raise CannotCreate(f"{setting}: {path} exists and is not a socket; name another file", path=path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK) as caller:
        with address(path) as name:
            refused = caller.connect_ex(name)
    if refused != errno.ECONNREFUSED:
        raise CannotCreate(f"{setting}: another process listens at {path}; name another file", path=path)
