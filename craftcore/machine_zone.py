"""The time zone of the machine: its IANA name, or why that cannot be known.

A copied zone file has no name, and for a rule such as `CET-1CEST` there is none. A guess would fire at the wrong hour.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import lru_cache
from importlib.resources import files
from io import BytesIO
from pathlib import Path
from typing import NamedTuple
from zoneinfo import TZPATH, ZoneInfo, available_timezones

LOCALTIME, TIMEZONE = "/etc/localtime", "/etc/timezone"

NAME_IT = "name one (timezone=, --timezone), or set TZ to a name such as Europe/Berlin"
"""The advice to a person on a machine whose zone is unknown."""

UNKNOWN = f"the time zone of this machine is not known, so a time of day has no meaning: {NAME_IT}"

_YEAR, _SAMPLE = 366 * 86_400, 6 * 3600
"""Seconds."""

_NO_PLACES = ("posixrules", "localtime")


class MachineZone(NamedTuple):
    """The IANA name; None with the reason why it is unknown."""

    name: str | None
    why: str = ""


def find_machine_zone(
    variable: str | None, now: float, *, localtime: str = LOCALTIME, named_in: str = TIMEZONE
) -> MachineZone:
    """Return the zone that the C library uses. `variable`: $TZ, None: not set."""
    if variable is None:
        return _find_zone_of_file(localtime, named_in, now)
    name = variable.removeprefix(":")
    if name in ("", "UTC0"):
        return MachineZone("UTC")
    if name == "localtime":
        return _find_zone_of_file(localtime, named_in, now)
    if name.startswith("/"):
        return _find_zone_of_file(name, named_in, now)
    if is_zone(name):
        return MachineZone(name)
    return MachineZone(None, f"TZ is {variable!r:.80}, which is not the name of a zone")


def is_zone(name: str) -> bool:
    """Return whether this machine knows an IANA zone of that name."""
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # unknown; not a name; a folder of zones
        return False
    return name not in _NO_PLACES and not name.startswith(("posix/", "right/"))


def _find_zone_of_file(path: str, named_in: str, now: float) -> MachineZone:
    """Return the zone of a file: by the name it links to, by its bytes, or by /etc/timezone where that agrees."""
    name = os.path.realpath(path).rpartition("/zoneinfo/")[2].removeprefix("posix/")
    if is_zone(name):
        return MachineZone(name)
    named = _read_name(named_in)
    try:
        content = Path(path).read_bytes()
    except FileNotFoundError:
        if named in (None, "UTC", "Etc/UTC"):
            return MachineZone("UTC")  # as in the C library
        return MachineZone(None, f"there is no {path}, so the machine's clock is in UTC, and {named_in} says {named}")
    except OSError as error:
        return MachineZone(None, f"{path}: {error.strerror}")
    if (found := _find_name(content, named, int(now / _YEAR))) is not None:
        return MachineZone(found)
    other = f", and {named_in} says {named}, which differs from it" if named is not None else ""
    return MachineZone(None, f"{path} is a file without the name of its zone{other}")


def _read_name(path: str) -> str | None:
    """Return the name in /etc/timezone; None without a name of a zone."""
    try:
        name = Path(path).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return None
    return name if is_zone(name) else None


@lru_cache(maxsize=4)
def _find_name(content: bytes, named: str | None, year: int) -> str | None:
    """Return the name of the zone that has this content; None when no name is certain. `year`: since 1970."""
    if named is not None and content in _read_zone_files(named):
        return named
    same = _list_same(content)
    if same:
        return min(same, key=_make_rank)
    return named if named is not None and _has_same_offsets(content, named, year) else None


def _list_same(content: bytes) -> frozenset[str]:
    """Return the names of the zones whose files have this content."""
    return frozenset(
        name for name in available_timezones() if name not in _NO_PLACES and content in _read_zone_files(name)
    )


def _make_rank(name: str) -> tuple[bool, bool, bool, str]:
    """Return the order in which names of one zone are preferred: those that tzdata lists with a place come first."""
    return name != "UTC", name not in _list_places(), "/" not in name, name


@lru_cache(maxsize=1)
def _list_places() -> frozenset[str]:
    for text in _read_files("zone1970.tab"):
        lines = [line.split("\t") for line in text.decode(errors="replace").splitlines() if not line.startswith("#")]
        return frozenset(line[2] for line in lines if len(line) > 2)
    return frozenset()


def _has_same_offsets(content: bytes, name: str, year: int) -> bool:
    """Return whether a file and a zone of another version of tzdata have the same offsets from this year on."""
    try:
        here, there = ZoneInfo.from_file(BytesIO(content)), ZoneInfo(name)
    except (ValueError, OSError, EOFError):  # it is not a zone file
        return False
    moments = (datetime.fromtimestamp(at, UTC) for at in range(year * _YEAR, (year + 3) * _YEAR, _SAMPLE))
    return all(moment.astimezone(here).utcoffset() == moment.astimezone(there).utcoffset() for moment in moments)


def _read_zone_files(name: str) -> list[bytes]:
    return list(_read_files(name))


def _read_files(name: str) -> Iterator[bytes]:
    """Yield a file of the system's tzdata, and that of the package."""
    for folder in TZPATH:
        try:
            yield (Path(folder) / name).read_bytes()
        except OSError:
            continue
    try:
        yield files("tzdata").joinpath("zoneinfo", *name.split("/")).read_bytes()
    except (OSError, ModuleNotFoundError):
        return
