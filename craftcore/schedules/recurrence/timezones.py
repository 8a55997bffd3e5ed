"""Time zones and wall times: offsets, gaps, folds. Pure.

A wall time is counted in seconds, too: the epoch seconds it would be in UTC.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

from craftcore.errors import ScheduleInvalid

_DAY = 86_400


@lru_cache(maxsize=64)
def find_zone(name: str) -> ZoneInfo:
    """Return the zone of a timing. Raises ScheduleInvalid when this machine no longer knows it."""
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError) as error:
        raise ScheduleInvalid(f"time zone {name!r:.80} is not known on this machine; update tzdata") from error


def offset_at(zone: ZoneInfo, instant: int) -> int:
    """Return the seconds to add to `instant` for the wall time."""
    return _seconds(datetime.fromtimestamp(instant, zone).utcoffset())


def moment_of(zone: ZoneInfo, wall: int) -> int:
    """Return when the wall clock shows that: the first copy in a fold; in a gap the first instant after it."""
    local = datetime.fromtimestamp(wall, UTC).replace(tzinfo=zone)
    early, late = _seconds(local.utcoffset()), _seconds(local.replace(fold=1).utcoffset())
    return wall - early if early >= late else change_in(zone, wall - late, wall - early)


def change_in(zone: ZoneInfo, before: int, until: int) -> int:
    """Return the first instant in (before, until] whose offset is that of `until`. No zone changes twice a day."""
    offset = offset_at(zone, before)
    while until - before > 1:
        middle = (before + until) // 2
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            until = middle
    return until


def stretches(zone: ZoneInfo, first: int, last: int) -> Iterator[tuple[int, int, int]]:
    """Yield the stretches of first..last with one offset each: first second, last second, offset."""
    while first <= last:
        end, offset = first, offset_at(zone, first)
        while end < last:
            ahead = min(end + _DAY, last)
            if offset_at(zone, ahead) != offset:
                end = change_in(zone, end, ahead) - 1
                break
            end = ahead
        yield first, end, offset
        first = end + 1


def _seconds(offset: timedelta | None) -> int:
    assert offset is not None, "a ZoneInfo has an offset for every moment"
    return offset.days * _DAY + offset.seconds
