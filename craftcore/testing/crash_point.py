"""The moments of a life at which a crash matrix kills the process."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from craftcore.errors import InvalidInput
from craftcore.failpoints import Failpoint
from craftcore.testing.life_log import Passed, Record

EDGES = (
    Failpoint.RECLAIM_COMMITTED,
    Failpoint.WRITER_FLUSHING,
    Failpoint.WRITER_FLUSHED,
    Failpoint.STEP_ENTERED,
    Failpoint.STEP_RAN,
    Failpoint.CALL_MARKED,
    Failpoint.PROVIDER_ANSWERED,
)
"""Both edges of every commit, step and provider call; a boot's commit has its later one."""

CHANGED_HERE = {Failpoint.STEP_RAN, Failpoint.CALL_MARKED, Failpoint.PROVIDER_ANSWERED}
"""The points before which something outside of the database has just changed: by a step, a call, or a mark."""


class CrashPoint(NamedTuple):
    """A pass of a failpoint in a life. `number` counts from 1."""

    point: Failpoint
    number: int

    def __str__(self) -> str:
        return f"{self.point}:{self.number}"


def parse_points(text: str) -> tuple[CrashPoint, ...]:
    """Return the points of a text such as `step.ran:1 writer.flushed:2`: one for each life. Raises InvalidInput."""
    if not isinstance(text, str):
        raise InvalidInput(f"at is {text!r:.80}: give crash points as one text, as in '{Failpoint.STEP_RAN}:1'")
    points = []
    for word in text.split():
        found = re.fullmatch(r"([a-z.]+):([1-9][0-9]{0,8})", word)
        if found is None or found[1] not in list(Failpoint):
            example = f"{Failpoint.STEP_RAN}:1"
            raise InvalidInput(f"{word!r} is not a crash point: write a failpoint and its pass, as in {example}")
        points.append(CrashPoint(Failpoint(found[1]), int(found[2])))
    if not points:
        raise InvalidInput("no crash point is given")
    return tuple(points)


def find_points(records: Iterable[Record], *, distinct: bool = False) -> Iterator[CrashPoint]:
    """Yield every edge that a life has passed. `distinct`: only those that leave another disk or world."""
    for record in records:
        if isinstance(record, Passed) and record.point in EDGES and (record.is_distinct or not distinct):
            yield CrashPoint(record.point, record.number)
