"""Copies of a folder whose processes are stopped, as SIGKILL would leave it."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path


def copy_folder(source: Path, target: Path) -> None:
    """Copy a folder: links, pipes and sockets as what they are. A file that vanishes meanwhile is left out."""
    target.mkdir(mode=0o700)
    with os.scandir(source) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                _copy_entry(entry, target / entry.name)
    shutil.copystat(source, target)


def _copy_entry(entry: os.DirEntry[str], target: Path) -> None:
    if entry.is_dir(follow_symlinks=False):
        copy_folder(Path(entry.path), target)
    elif entry.is_symlink() or entry.is_file(follow_symlinks=False):
        shutil.copy2(entry.path, target, follow_symlinks=False)
    else:
        os.mknod(target, entry.stat(follow_symlinks=False).st_mode)  # a socket that nobody listens on, or a pipe


def list_versions(folder: Path) -> frozenset[tuple[str, int, int, int]]:
    """Return each file of a folder with what a change of its content changes: number, size, and time."""
    found: set[tuple[str, int, int, int]] = set()
    with suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):
                state = entry.stat(follow_symlinks=False)
                found.add((entry.path, state.st_ino, state.st_size, state.st_mtime_ns))
                if entry.is_dir(follow_symlinks=False):
                    found |= list_versions(Path(entry.path))
    return frozenset(found)
