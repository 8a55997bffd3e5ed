"""A file in the making: beside its place, under a name that begins with `.craftcore-draft-`, until it is whole.

Its maker holds a lock on it, which falls with the process: what nobody holds was left by one that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from craftcore.errors import CannotCreate, PermissionRefused, StorageBusy
from craftcore.storage.failures import translate_os
from craftcore.storage.whole_file import flush_folder

BEGINS = ".craftcore-draft-"
SIDES = ("-wal", "-shm", "-journal")
"""What SQLite keeps beside a database."""


class Draft:
    """The file, mode 0600, and `descriptor`, by which it is read and written beside SQLite: to open and close it once
    more in this process would take SQLite its locks."""

    def __init__(self, place: Path, descriptor: int) -> None:
        self.place = place
        self.path = draft_path(place)
        self.descriptor = descriptor

    def put(self) -> None:
        """Put it in its place, over what is there: on disk when this returns."""
        os.fsync(self.descriptor)
        os.rename(self.path, self.place)
        flush_folder(self.place.parent)


@contextmanager
def a_draft(place: Path) -> Iterator[Draft]:
    """An empty one for that place; gone when the block is left and it was not put.

    What a killed maker left of it is overwritten. Raises StorageBusy while another process makes the same;
    CannotCreate, PermissionRefused or StorageFull for what the system refuses, also within the block.
    """
    path = draft_path(place)
    descriptor = -1
    try:
        descriptor = _open(path)
        _remove_sides(path)
        yield Draft(place, descriptor)
    except OSError as error:
        raise translate_os(error, place) from error
    finally:
        if descriptor >= 0:
            _remove(path, descriptor)
            os.close(descriptor)


def draft_path(place: Path) -> Path:
    return place.with_name(BEGINS + place.name)


def sweep(folder: Path) -> list[str]:
    """Remove the drafts there that nobody makes any more; their names."""
    swept = []
    for path in sorted(folder.glob(f"{BEGINS}*")):
        if path.name.endswith(SIDES):
            continue
        try:
            descriptor = _open(path, make=False)
        except (OSError, StorageBusy, PermissionRefused):
            continue
        _remove_sides(path)
        _remove(path, descriptor)
        os.close(descriptor)
        swept.append(path.name)
    return swept


def _open(path: Path, *, make: bool = True) -> int:
    """Ours alone, empty and locked."""
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | (os.O_CREAT if make else 0)
    descriptor = os.open(path, flags, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageBusy(f"{path}: another process is just making it. Try again when it is done") from None
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink > 1:
            raise PermissionRefused(f"{path}: is no file of ours, and is left as it is. Remove it")
        if found.st_nlink == 0 or not _is_there(path, found):
            raise StorageBusy(f"{path}: another process has just made it. Try again")
        os.fchmod(descriptor, 0o600)
        os.ftruncate(descriptor, 0)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _remove(path: Path, descriptor: int) -> None:
    """Unless it was put in its place."""
    try:
        if _is_there(path, os.fstat(descriptor)):
            os.unlink(path)
    finally:
        _remove_sides(path)


def _is_there(path: Path, found: os.stat_result) -> bool:
    try:
        return os.path.samestat(os.lstat(path), found)
    except FileNotFoundError:
        return False


def _remove_sides(path: Path) -> None:
    for side in SIDES:
        path.with_name(path.name + side).unlink(missing_ok=True)


def refuse_taken(place: Path) -> None:
    """Raise CannotCreate where something has that name already, be it a link that leads nowhere."""
    if os.path.lexists(place):
        raise CannotCreate(f"{place}: is there already, and is left as it is. Give another name")


def make_folder(folder: Path) -> None:
    """Mode 0700, where it is missing. Raises CannotCreate or PermissionRefused."""
    try:
        missing = [one for one in (folder, *folder.parents) if not one.exists()]
        for one in reversed(missing):
            one.mkdir(mode=0o700, exist_ok=True)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "there is a file of that name")
    except OSError as error:
        raise translate_os(error, folder) from error
