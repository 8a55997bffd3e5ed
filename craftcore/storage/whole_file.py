"""A file that is there whole or not at all, whoever looks and whenever we are killed."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from craftcore.errors import CannotCreate
from craftcore.storage.failures import translate_os


def write_whole(path: Path, body: bytes, *, mode: int = 0o600) -> None:
    """Put a file of that mode there, in the place of the one that is: on disk when this returns.

    It is written beside its place, under a name that begins with `.craftcore-`, and renamed; only that one can be left
    half-written. A link is followed. Raises CannotCreate for what is no regular file, PermissionRefused, StorageFull.
    """
    real = Path(os.path.realpath(path))
    beside: str | None = None
    try:
        if real.exists() and not stat.S_ISREG(real.stat().st_mode):
            raise CannotCreate(f"{path}: there is something else than a regular file, which is left as it is")
        descriptor, beside = tempfile.mkstemp(prefix=".craftcore-", dir=real.parent)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, real)
        beside = None
        flush_folder(real.parent)
    except OSError as error:
        raise translate_os(error, path) from error
    finally:
        if beside is not None:
            os.unlink(beside)


def flush_folder(folder: Path) -> None:
    """Put the new name on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
