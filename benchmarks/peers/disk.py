"""The file system that a folder is on: a database in memory is flushed nowhere."""

from __future__ import annotations

from pathlib import Path

MOUNTS = Path("/proc/mounts")


def file_system(folder: Path, mounts: str | None = None) -> str:
    """Return the type of the file system of a folder, for example ext4. The last mount of the longest path counts."""
    lines = (MOUNTS.read_text(encoding="utf-8") if mounts is None else mounts).splitlines()
    found, longest = "unknown", -1
    for line in lines:
        _, point, kind, *_ = line.split()
        path = Path(point.replace("\\040", " "))
        if folder.resolve().is_relative_to(path) and len(path.parts) >= longest:
            found, longest = kind, len(path.parts)
    return found
