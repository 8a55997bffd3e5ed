"""The log of a scenario that is killed: an append-only file, from which the next life goes on."""

from __future__ import annotations

import errno
import os
import pickle
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from craftcore.failpoints import Failpoint
from craftcore.testing.effect import Effect, LateCall
from craftcore.testing.promises import ScenarioEnd


class LifeBegan(NamedTuple):
    """The first record of each life."""


class Moved(NamedTuple):
    """The clock was moved. `now` in epoch seconds."""

    now: float
    boot_time: float


class Passed(NamedTuple):
    """A failpoint was passed. `number` counts the passes of this point in this life, from 1.

    `name` is that of the step or action; `at`: epoch seconds. `is_distinct`: an edge, and a kill there leaves another
    disk or world than a kill at the edge before."""

    point: Failpoint
    number: int
    name: str
    at: float
    is_distinct: bool


class Called(NamedTuple):
    """The scenario called a method of its lab. `target`: where an advance of the clock ends, in epoch seconds."""

    call: int
    method: str
    target: float | None


class Returned(NamedTuple):
    """The call returned `value`, or raised `error`."""

    call: int
    value: Any
    error: Exception | None


class Noted(NamedTuple):
    """An effect, and what the provider returned for it."""

    effect: Effect
    result: Any


class Counted(NamedTuple):
    """The counts of a provider after it took a call."""

    action: str
    counts: Mapping[str, int]


class Delayed(NamedTuple):
    """A call that was reset, and acts later."""

    call: LateCall


class ActedLate(NamedTuple):
    """The late calls until this moment have acted."""

    until: float


class Ended(NamedTuple):
    """The scenario has ended."""

    ending: ScenarioEnd


class Refused(NamedTuple):
    """The scenario cannot be played. `reason`: for the caller of the matrix."""

    reason: str


WorldRecord = Noted | Counted | Delayed | ActedLate
Record = LifeBegan | Moved | Passed | Called | Returned | WorldRecord | Ended | Refused


class LifeLog:
    """The log, open for appending. A record is one write; no flush: power stays on.

    `world_changes`: how many records of the world this life has written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.world_changes = 0
        self._descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)

    def append(self, record: Record) -> None:
        """Write a record. Raises TypeError for a value that cannot be pickled, and OSError without space for it."""
        try:
            data = pickle.dumps(record, protocol=5)
        except Exception as error:
            raise TypeError(f"a crash matrix keeps {type(record).__name__} in a file, and cannot: {error}") from error
        if os.write(self._descriptor, data) != len(data):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        self.world_changes += isinstance(record, WorldRecord)


def read_log(path: Path, *, repair: bool = False) -> list[Record]:
    """Return the records of a log, oldest first, without a last one that SIGKILL or a full disk has cut off.

    `repair`: remove what is left of that, so that the next record can follow.
    """
    records: list[Record] = []
    with path.open("r+b" if repair else "rb") as file:
        while True:
            end = file.tell()
            try:
                records.append(pickle.load(file))  # noqa: S301 - written by this process and its children
            except (EOFError, pickle.UnpicklingError):
                if repair:
                    file.truncate(end)
                return records


class Past:
    """The calls of earlier lives. `begun` and `returned`: by the number of the call."""

    def __init__(self, records: Sequence[Record]) -> None:
        self.begun = {record.call: record for record in reversed(records) if isinstance(record, Called)}
        self.returned = {record.call: record for record in records if isinstance(record, Returned)}
        self._places = {record.call: place for place, record in enumerate(records) if isinstance(record, Returned)}
        self._records = records
        self._position = 0

    def take_before(self, call: int) -> Sequence[Record]:
        """Return the records until this call returned, without those that were asked for before."""
        return self._take(self._places[call] + 1)

    def take_rest(self) -> Sequence[Record]:
        """Return the records after these."""
        return self._take(len(self._records))

    def _take(self, end: int) -> Sequence[Record]:
        begin, self._position = self._position, end
        return self._records[begin:end]
