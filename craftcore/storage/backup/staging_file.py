"""A file in the making: in a private directory beside its place, until it is whole.

The directory `.craftcore-draft-NAME` has mode 0700 and is reached by its descriptor alone. Another user who may rename
in the target folder can remove the name of the directory. A read or a write cannot be led elsewhere, because no path is
resolved twice. The process holds a lock on the directory until it ends. A directory without a lock was left by a
process that was killed.
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path

import apsw

from craftcore.clock import Clock
from craftcore.errors import CannotCreate, CraftcoreError, PermissionRefused, StorageBusy, StorageError
from craftcore.storage.database import Database
from craftcore.storage.files.file_modes import make_folders
from craftcore.storage.files.whole_file import IN_FOLDER, is_at, require_in_place, stat_at
from craftcore.storage.sqlite_errors import translate_os

BEGINS = ".craftcore-draft-"
SIDES = ("-wal", "-shm", "-journal")
"""The files of SQLite beside a database."""

NAME = "draft.db"
"""The file in the private directory."""


class _AsNamed(apsw.VFS):
    """The default file system, with paths taken as they are given.

    SQLite resolves every link of a path before it opens the file, also /proc/self/fd/N, which would be a path again
    that others can change.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name, str(apsw.vfs_details()[0]["zName"]))

    def xFullPathname(self, name: str) -> str:
        """Return the name unchanged."""
        return name


class StagingFile:
    """The file, mode 0600, and `descriptor`, by which it is read and written beside SQLite: to open and close it once
    more in this process would take SQLite its locks. `path` is valid in this process, while the draft is made."""

    def __init__(self, place: Path, folder: int, private: int, descriptor: int, vfs: str) -> None:
        self.place = place
        self.descriptor = descriptor
        self.path = Path(f"/proc/self/fd/{private}/{NAME}")
        self.vfs = vfs
        self._folder = folder
        self._private = private

    def database(self, clock: Clock) -> Database:
        """Return the draft as a database."""
        return Database(self.path, clock, vfs=self.vfs)

    def copy(self, database: Database) -> None:
        """Write one snapshot of a database into the empty draft, not yet flushed. Raises as `Database.copy_into`."""
        database.copy_into(f"file:{self.path}?vfs={self.vfs}", self.place)

    def refuse_open_folder(self) -> None:
        """Raise PermissionRefused when others may rename files in the folder: they could replace the file later."""
        status = os.fstat(self._folder)
        by_group = status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid()
        if (by_group or status.st_mode & stat.S_IWOTH) and not status.st_mode & stat.S_ISVTX:
            folder = self.place.parent
            raise PermissionRefused(
                f"{folder}: others may rename files in it (mode {stat.S_IMODE(status.st_mode):o}), and could put one "
                f"of theirs in the place of this one. Name a directory below it (--dir makes one for you alone), or: "
                f"chmod go-w {folder}"
            )

    def leftover_files(self) -> list[str]:
        """Return which files of SQLite's are left beside the draft."""
        return [side for side in SIDES if stat_at(NAME + side, self._private) is not None]

    def publish(self) -> None:
        """Put it in its place, over what is there: on disk when this returns.

        Raises StorageError for an empty draft, and when something else has the name afterwards.
        """
        os.fsync(self.descriptor)
        made = os.fstat(self.descriptor)
        if made.st_size == 0 or not is_at(NAME, self._private, made):
            raise StorageError(f"{self.place}: the copy is empty or was removed; nothing was put there. Try again")
        os.rename(NAME, self.place.name, src_dir_fd=self._private, dst_dir_fd=self._folder)
        os.fsync(self._folder)
        require_in_place(self.place, self._folder, made)


@contextmanager
def staging_file(place: Path) -> Iterator[StagingFile]:
    """Yield an empty staging file for that place. It is removed when the block is left without `publish`.

    A file that a killed process left there is overwritten. Raises StorageBusy while another process writes the same
    file; CannotCreate, PermissionRefused or StorageFull for what the system refuses, also within the block.
    """
    name = staging_path(place).name
    shown = ""
    with ExitStack() as opened:
        try:
            folder = _close_at_end(opened, os.open(place.parent, IN_FOLDER))
            private = _close_at_end(opened, _enter(folder, name, staging_path(place), make=True))
            opened.callback(_leave, folder, private, name)
            _clear(private)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            descriptor = _close_at_end(opened, os.open(NAME, flags, 0o600, dir_fd=private))
            os.fchmod(descriptor, 0o600)
            vfs = _AsNamed(f"craftcore-draft-{private}")
            opened.callback(vfs.unregister)
            draft = StagingFile(place, folder, private, descriptor, f"craftcore-draft-{private}")
            shown = str(draft.path)
            yield draft
        except OSError as error:
            raise translate_os(error, place) from error
        except CraftcoreError as error:
            if shown and shown in error.message:
                error.message = error.message.replace(shown, str(place))
                error.args = (error.message,)
            raise


def staging_path(place: Path) -> Path:
    """Return the private directory of the draft for that place."""
    return place.with_name(BEGINS + place.name)


def remove_stale(folder: Path) -> list[str]:
    """Remove the drafts that no process writes any more. Return their names."""
    swept: list[str] = []
    with ExitStack() as opened:
        try:
            there = _close_at_end(opened, os.open(folder, IN_FOLDER))
            names = sorted(name for name in os.listdir(there) if name.startswith(BEGINS))
        except OSError:
            return swept
        for name in names:
            try:
                private = _enter(there, name, folder / name, make=False)
            except (OSError, StorageBusy, PermissionRefused):
                continue
            _leave(there, private, name)
            os.close(private)
            swept.append(name)
    return swept


def _enter(folder: int, name: str, shown: Path, *, make: bool) -> int:
    """Return the descriptor of the private directory, which is locked."""
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=folder)
    foreign = PermissionRefused(f"{shown}: is not a private directory of craftcore, and is left as it is. Remove it")
    try:
        descriptor = os.open(name, IN_FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise foreign from error
        raise
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StorageBusy(f"{shown}: another process is just making it. Try again when it is done") from None
        status = os.fstat(descriptor)
        if status.st_uid != os.geteuid() or status.st_mode & 0o077:
            raise foreign
        if not is_at(name, folder, status):
            raise StorageBusy(f"{shown}: another process has just made it. Try again")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _leave(folder: int, private: int, name: str) -> None:
    """Remove what is in the private directory, and the directory unless its name is another's by now."""
    with suppress(OSError):
        _clear(private)
        if is_at(name, folder, os.fstat(private)):
            os.rmdir(name, dir_fd=folder)


def _clear(private: int) -> None:
    for side in ("", *SIDES):
        with suppress(FileNotFoundError):
            os.unlink(NAME + side, dir_fd=private)


def _close_at_end(opened: ExitStack, descriptor: int) -> int:
    opened.callback(os.close, descriptor)
    return descriptor


def refuse_taken(place: Path) -> None:
    """Raise CannotCreate where something has that name already, be it a link that leads nowhere."""
    if os.path.lexists(place):
        raise CannotCreate(f"{place}: is there already, and is left as it is. Give another name")


def unused_name(folder: Path, stem: str, now: float, end: str, beside: Sequence[str]) -> Path:
    """Return a name for this moment, numbered when it is taken, by itself or with one of the ends `beside`."""
    stem = f"{stem}{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}"
    names = (folder / f"{stem}{number}{end}" for number in chain([""], (f"-{number}" for number in count(2))))
    return next(name for name in names if not any(os.path.lexists(f"{name}{side}") for side in ("", *beside)))


def make_folder(folder: Path) -> None:
    """Create a folder with mode 0700 where it is missing. Raises CannotCreate or PermissionRefused."""
    try:
        make_folders(folder)
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "there is a file of that name")
    except OSError as error:
        raise translate_os(error, folder) from error
