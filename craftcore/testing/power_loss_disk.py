"""A disk whose power can be cut: it keeps a journal of every write and flush, and gives back what a cut may leave.

    with ForgetfulDisk() as disk:           # every database opened in this process from now on lies on it
        ...
        moment = disk.moment                # e.g. when an emit was acknowledged
    disk.after_a_cut(moment, folder, rng)   # the files as they may lie there when the power comes back

Flushed data is there. Each write since the flush is there or not, whole or torn at a sector, in any combination. A
disk promises no more. The shared-memory file is gone, as after any restart.
"""

from __future__ import annotations

import random
import threading
from collections import defaultdict
from pathlib import Path
from typing import Literal, NamedTuple, Self

import apsw

NAME = "craftcore-forgetful"
SECTOR = 512


class Entry(NamedTuple):
    """One line of the journal: what was done to a file. `offset` and `data` as far as they matter to it."""

    file: str
    did: Literal["write", "truncate", "flush", "delete"]
    offset: int = 0
    data: bytes = b""


class ForgetfulDisk(apsw.VFS):
    """The default file system while the block lasts. Connections opened on it must be closed before its end."""

    def __init__(self) -> None:
        self.journal: list[Entry] = []
        self.turn = threading.Lock()
        self.real = str(apsw.vfs_details()[0]["zName"])
        super().__init__(NAME, self.real, makedefault=False)

    def __enter__(self) -> Self:
        apsw.set_default_vfs(NAME)
        return self

    def __exit__(self, *_: object) -> None:
        apsw.set_default_vfs(self.real)
        self.unregister()

    @property
    def moment(self) -> int:
        """Now, as a length of the journal."""
        return len(self.journal)

    def after_a_cut(self, moment: int, folder: Path, rng: random.Random) -> None:
        """Write into `folder` one of the states the files may be in when the power is cut at that moment."""
        kept: dict[str, bytearray] = defaultdict(bytearray)
        since: dict[str, list[Entry]] = defaultdict(list)
        for entry in self.journal[:moment]:
            match entry.did:
                case "flush":
                    for flushed in since.pop(entry.file, []):
                        _apply(kept[entry.file], flushed)
                case "delete":
                    kept.pop(entry.file, None)
                    since.pop(entry.file, None)
                case _:
                    since[entry.file].append(entry)
        for name, entries in since.items():
            luck = rng.random()
            for entry in entries:
                if rng.random() < luck:
                    _apply(kept[name], _tear(entry, rng))
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in kept.items():
            (folder / Path(name).name).write_bytes(content)

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:
        """Open a file for SQLite."""
        return _JournaledFile(self, name, flags)

    def xDelete(self, filename: str, syncdir: bool) -> None:
        """Remove a file, and flush its directory."""
        with self.turn:
            self.journal.append(Entry(filename, "delete"))
        super().xDelete(filename, syncdir)


class _JournaledFile(apsw.VFSFile):
    def __init__(self, disk: ForgetfulDisk, name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        self._disk = disk
        self._name = name.filename() if isinstance(name, apsw.URIFilename) else name or ""
        super().__init__(disk.real, name, flags)

    def _note(self, entry: Entry) -> None:
        if not self._name:
            return  # a scratch file of SQLite's, which nobody finds after a cut
        with self._disk.turn:
            self._disk.journal.append(entry)

    def xWrite(self, data: bytes, offset: int) -> None:
        """Note a write that is not flushed yet."""
        self._note(Entry(self._name, "write", offset, bytes(data)))
        super().xWrite(data, offset)

    def xTruncate(self, newsize: int) -> None:
        """Cut off, and not flushed yet."""
        self._note(Entry(self._name, "truncate", newsize))
        super().xTruncate(newsize)

    def xSync(self, flags: int) -> None:
        """Note a flush. The real disk is not flushed: the checks read the journal."""
        self._note(Entry(self._name, "flush"))

    def xLock(self, level: int) -> None:
        """See FaultyDisk: of the two ways to say no, this is the one SQLite passes over."""
        try:
            super().xLock(level)
        except apsw.IOError as error:
            raise apsw.BusyError("not lockable") from error


def _tear(entry: Entry, rng: random.Random) -> Entry:
    """Return the write as it may have reached the plates: whole, or up to some sector."""
    if entry.did == "truncate" or len(entry.data) <= SECTOR or rng.random() < 0.7:
        return entry
    return entry._replace(data=entry.data[: SECTOR * rng.randrange(len(entry.data) // SECTOR)])


def _apply(content: bytearray, entry: Entry) -> None:
    if entry.did == "truncate":
        del content[entry.offset :]
        return
    if len(content) < entry.offset:
        content.extend(bytes(entry.offset - len(content)))
    content[entry.offset : entry.offset + len(entry.data)] = entry.data
