"""A file that a person names, opened to be read without waiting for anybody."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import BinaryIO


class NoRegularFile(OSError):
    """It is a pipe or a device: reading it may take for ever, and take something away."""

    def __init__(self, path: str) -> None:
        super().__init__(errno.EINVAL, "it is not a regular file", path)


def open_regular(path: str | Path) -> BinaryIO:
    """Open a file to read. Raises NoRegularFile, also for a pipe without a writer, and any other OSError."""
    return open(path, "rb", opener=_open_without_blocking)


def _open_without_blocking(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)
    mode = os.fstat(descriptor).st_mode
    if stat.S_ISREG(mode) or stat.S_ISDIR(mode):  # a directory is refused in Python's own words
        return descriptor
    os.close(descriptor)
    raise NoRegularFile(path)
