"""How much room the disk of the database has left, and when that is too little."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from craftcore.serialization.plurals import format_count

FULL_BYTES = 64 << 20
"""With less, one burst of work may end at a full disk: so large the WAL may become."""

LOW_BYTES = 512 << 20
LOW_INODES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """The space that is free to this user. `inodes` None: this file system does not count them."""

    bytes: int
    inodes: int | None

    @property
    def is_gone(self) -> bool:
        return self.bytes < FULL_BYTES or self.inodes == 0

    @property
    def is_low(self) -> bool:
        return self.bytes < LOW_BYTES or (self.inodes is not None and self.inodes < LOW_INODES)

    def __str__(self) -> str:
        """Return `12,288 MB free`, and how many files, where they are few."""
        few = self.inodes is not None and self.inodes < LOW_INODES
        return f"{self.bytes // 1_000_000:,} MB free" + (
            f", room for {format_count(self.inodes or 0, 'file')}" if few else ""
        )


def disk_space_of(path: Path) -> DiskSpace:
    """Return the free space of the disk that has the file. Raises OSError."""
    found = os.statvfs(os.path.dirname(os.path.realpath(path)))
    return DiskSpace(bytes=found.f_bavail * found.f_frsize, inodes=found.f_favail if found.f_files else None)
