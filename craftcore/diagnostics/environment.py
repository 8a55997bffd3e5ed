"""Checks of `craftcore doctor` on the directory: permissions, owners and free space."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from craftcore.daemon.lock_file import lock_path
from craftcore.diagnostics.disk_space import DiskSpace, disk_space_of
from craftcore.diagnostics.finding import Finding, fail, make_passed, warn
from craftcore.diagnostics.health import is_pinned, reader_text
from craftcore.machine_zone import NAME_IT, MachineZone
from craftcore.storage.doorbell_client import doorbell_path
from craftcore.storage.files.file_size import wal_bytes, wal_in_use
from craftcore.storage.files.second_names import find_second_name
from craftcore.storage.files.wal_locks import list_wal_locks

OTHERS, OTHERS_WRITE = 0o077, 0o022


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """A file as it lies there."""

    path: str
    mode: int
    uid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`beside`: the database and what lies beside it, of it what is there; `user`: the user id of this process.

    `second_name`: the fault of a file that may have another name; None: it has none."""

    user: int
    folder: Seen
    database: Seen
    beside: list[Seen]
    config: Seen | None
    room: DiskSpace
    bytes: int
    wal_bytes: int
    wal_in_use: int
    wal_readers: tuple[int, ...] = ()
    second_name: str | None = None


def place_of(path: Path, config: Path | None) -> Place:
    """Look. Raises OSError, of which FileNotFoundError means that there is no database."""
    real = os.path.realpath(path)
    size = os.stat(real).st_size
    names = [real, f"{real}-wal", f"{real}-shm", lock_path(path), doorbell_path(path)]
    there = [seen for name in names if (seen := _read_modes(name)) is not None]
    folder = _read_modes(os.path.dirname(real))
    assert folder is not None, real
    return Place(
        user=os.geteuid(),
        folder=folder,
        database=there[0],
        second_name=find_second_name(real),
        beside=there,
        config=None if config is None else _read_modes(os.path.realpath(config)),
        room=disk_space_of(path),
        bytes=size,
        wal_bytes=wal_bytes(Path(real)),
        wal_in_use=wal_in_use(Path(real)),
        wal_readers=tuple(pid for pid in list_wal_locks(Path(real)).readers if pid != os.getpid()),
    )


def place_findings(place: Place) -> Iterator[Finding]:
    """Yield every rule about it."""
    yield from directory(place)
    yield second_name(place)
    yield from permissions(place)
    yield from owner_findings(place)
    yield from configuration(place)
    yield disk(place)
    yield wal(place)


def directory(place: Place) -> Iterator[Finding]:
    """Check that no other user can write in the directory, where files could be replaced, or read it."""
    folder = place.folder
    shown = f"{folder.path} has mode {folder.mode:o}"
    if folder.mode & OTHERS_WRITE and not folder.mode & stat.S_ISVTX:
        yield fail("directory", f"others may write in it: {shown}", "chmod", "700", folder.path)
    elif folder.mode & OTHERS:
        yield warn("directory", f"others may look into it: {shown}", "chmod", "700", folder.path)
    else:
        yield make_passed("directory", shown)


def second_name(place: Place) -> Finding:
    """Check that the file has one name: its WAL and its locks go by that."""
    if place.second_name is not None:
        return fail("name", place.second_name)
    return make_passed("name", f"the file has no other name than {place.database.path}")


def permissions(place: Place) -> Iterator[Finding]:
    """Check that the database and the files beside it are for one user."""
    open_ones = [seen for seen in place.beside if seen.mode & OTHERS]
    if open_ones:
        shown = ", ".join(f"{os.path.basename(seen.path)} (mode {seen.mode:o})" for seen in open_ones)
        yield fail("permissions", f"others may use {shown}", "chmod", "600", *(seen.path for seen in open_ones))
    else:
        names = ", ".join(os.path.basename(seen.path) for seen in place.beside)
        yield make_passed("permissions", f"for one user only: {names}")


def owner_findings(place: Place) -> Iterator[Finding]:
    """Check that all of it belongs to the owner of the database: the daemon cannot use what a command of root's
    made."""
    owner = place.database.uid
    foreign = [seen for seen in (place.folder, *place.beside) if seen.uid != owner]
    for seen in foreign:
        text = f"{seen.path} belongs to user id {seen.uid}, the database to {owner}: its daemon cannot use it"
        folder = warn if seen is place.folder else fail
        yield folder("owner", text, "chown", f"--reference={place.database.path}", seen.path)
    if foreign:
        return
    if place.user not in (0, owner):
        yield warn("owner", f"all of it belongs to user id {owner}, and you are {place.user}: ask as that user")
    else:
        yield make_passed("owner", f"all of it belongs to user id {owner}")


def configuration(place: Place) -> Iterator[Finding]:
    """Check that no other user can write the settings, which decide which commands run."""
    if (config := place.config) is None:
        return
    shown = f"{config.path} has mode {config.mode:o}"
    if config.mode & OTHERS_WRITE:
        yield fail("settings", f"others may write them: {shown}", "chmod", "go-w", config.path)
    elif config.uid not in (0, place.user, place.database.uid):
        yield fail("settings", f"{config.path} belongs to user id {config.uid}, who decides what runs here")
    else:
        yield make_passed("settings", shown)


def disk(place: Place) -> Finding:
    """Check that the disk has space for a burst of work, and for a backup."""
    room = place.room
    if room.is_gone:
        return fail("disk", f"full: {room}. Make room on it; the daemon claims nothing on a full disk")
    if room.is_low:
        return warn("disk", f"nearly full: {room}. Make room on it")
    if room.bytes < place.bytes:
        return warn(
            "disk", f"{room}, less than the database has ({place.bytes // 1_000_000:,} MB): no room for a backup"
        )
    return make_passed("disk", str(room))


def wal(place: Place) -> Finding:
    """Return what was written has come back into the file."""
    size = f"{place.wal_bytes:,} bytes, {place.wal_in_use:,} of them in use"
    if not is_pinned(place.wal_in_use, place.wal_readers):
        return make_passed("WAL", size)
    text = (
        f"{size}: {reader_text(place.wal_readers)}, and it cannot be cut off until that ends; nor does retention go on"
    )
    if place.wal_readers:
        return warn("WAL", f"{text}. To see that process", "ps", "-fp", ",".join(map(str, place.wal_readers)))
    return warn("WAL", f"{text}. To see which processes have the file open", "fuser", "-v", place.database.path)


def zone_finding(zone: MachineZone) -> Finding:
    """Check that the time zone of this machine is known: times of day are read in it."""
    if zone.name is not None:
        return make_passed("machine zone", zone.name)
    return warn("machine zone", f"not known: {zone.why}. Times of day without a zone are refused: {NAME_IT}")


def _read_modes(path: str) -> Seen | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return Seen(path=path, mode=stat.S_IMODE(found.st_mode), uid=found.st_uid)
