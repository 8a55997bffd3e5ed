"""Files that are written atomically: complete or absent, for every reader and after every kill."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

from craftcore.errors import CannotCreate, PermissionRefused, StorageError
from craftcore.storage.sqlite_errors import translate_os

IN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC


def write_whole(path: Path, body: bytes, *, mode: int = 0o600) -> None:
    """Put a file of that mode there, in the place of the one that is: on disk when this returns.

    It is written beside its place, under a name that begins with `.craftcore-`, and renamed; only that one can be left
    half-written. Raises CannotCreate for a link, a special file and a file with a second name; PermissionRefused, also
    for another user's file; StorageFull.
    """
    beside: str | None = None
    folder = -1
    try:
        folder = os.open(path.parent, IN_FOLDER)
        _refuse_foreign(path, folder)
        beside = f".craftcore-{secrets.token_hex(8)}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with open(os.open(beside, flags, 0o600, dir_fd=folder), "wb") as file:
            os.fchmod(file.fileno(), mode)
            file.write(body)
            file.flush()
            os.fsync(file.fileno())
            made = os.fstat(file.fileno())
            os.replace(beside, path.name, src_dir_fd=folder, dst_dir_fd=folder)
            beside = None
            os.fsync(folder)
            require_in_place(path, folder, made)
    except OSError as error:
        raise translate_os(error, path) from error
    finally:
        if beside is not None:
            with suppress(FileNotFoundError):
                os.unlink(beside, dir_fd=folder)
        if folder >= 0:
            os.close(folder)


def _refuse_foreign(path: Path, folder: int) -> None:
    """Raise CannotCreate or PermissionRefused for a file that must not be replaced."""
    if (status := stat_at(path.name, folder)) is None:
        return
    if stat.S_ISLNK(status.st_mode):
        raise CannotCreate(f"{path}: is a symbolic link, which is left as it is. Name the file that it leads to")
    if not stat.S_ISREG(status.st_mode):
        raise CannotCreate(f"{path}: there is something else than a regular file, which is left as it is")
    if status.st_nlink > 1:
        raise CannotCreate(f"{path}: has other names (hard links), and is left as it is. Remove it, or name another")
    if os.geteuid() not in (0, status.st_uid):
        raise PermissionRefused(f"{path}: belongs to user id {status.st_uid}, and is left as it is. Name another file")


def require_in_place(path: Path, folder: int, made: os.stat_result) -> None:
    """Raise StorageError when the file of this name in the open folder is not the one that was made."""
    if not is_at(path.name, folder, made):
        raise StorageError(
            f"{path}: another process has put something else there at this moment. "
            f"Do not use it; find out who may write in {path.parent}"
        )


def is_at(name: str, folder: int, status: os.stat_result) -> bool:
    """Return whether this file has that name in the open folder."""
    there = stat_at(name, folder)
    return there is not None and os.path.samestat(there, status)


def stat_at(name: str, folder: int) -> os.stat_result | None:
    """Return the state of the file, or the link, of that name in the open folder; None for a missing name."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def flush_folder(folder: Path) -> None:
    """Put the new name on disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
