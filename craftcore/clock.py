"""Time, ids and chance: the only place that asks the operating system for any of them.

Wall time is UTC epoch seconds, as in the tables. Everything that needs it is given a `Clock`, so that a test or a
seeded simulation decides what time it is and which ids come next.
"""

from __future__ import annotations

import os
import random
import time
from datetime import UTC, datetime
from typing import Protocol

from craftcore.machine_zone import MachineZone, find_machine_zone

YEAR_10000 = 253_402_300_800.0
"""An upper bound of moments: no calendar can print this one."""


BEFORE_1970 = "the clock of this machine is before 1970. Set it, or wait until it is synchronized"


def utc_iso(moment: float | None) -> str | None:
    """Return `2026-01-02T03:04:05.678Z`; None for None and for what no calendar can print."""
    if moment is None or not 0 <= moment < YEAR_10000:
        return None
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """A source of times and ids."""

    def now(self) -> float:
        """Return the wall time in UTC epoch seconds."""

    def boot_time(self) -> float:
        """Return the seconds since the machine started, suspend included; never set back."""

    def awake_time(self) -> float:
        """Return the seconds that the machine was awake since some moment; suspend is left out."""

    def zone(self) -> str | None:
        """Return the IANA name of the machine's time zone; None when it is not known."""

    def new_id(self) -> str:
        """Return a UUIDv7 (RFC 9562 §5.7), greater than every one this clock made before."""

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop."""


class SystemClock:
    """The machine's own time, and ids from it."""

    def __init__(self) -> None:
        self._ids = Uuid7(random.Random())

    def now(self) -> float:
        return time.time()

    def boot_time(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def awake_time(self) -> float:
        return time.monotonic()

    def zone(self) -> str | None:
        return self.machine_zone().name

    def machine_zone(self) -> MachineZone:
        """Return the machine's time zone, or why it is not known."""
        return find_machine_zone(os.environ.get("TZ"), time.time())

    def new_id(self) -> str:
        return self._ids.generate(time.time())

    async def sleep(self, seconds: float) -> None:
        import anyio  # the command line has no event loop

        await anyio.sleep(seconds)


class Uuid7:
    """UUIDv7 that only grow: the millisecond, a 12-bit counter within it, 62 random bits.

    They grow also when the clock is set back or a millisecond makes more than 4,096: then the millisecond runs ahead.
    Growing keys are what keeps inserts at one edge of each index.
    """

    def __init__(self, rng: random.Random) -> None:
        self._random_bits = rng.getrandbits
        self._last = 0  # millisecond << 12 | counter
        self._head = (0, "00000000-0000")
        """A millisecond and its text: thousands of ids share it."""

    def generate(self, now: float) -> str:
        tick = int(now * 1000) << 12
        if tick <= self._last:
            tick = self._last + 1
        self._last = tick
        millisecond, head = self._head
        if millisecond != tick >> 12:
            text = f"{tick >> 12:012x}"
            head = f"{text[:8]}-{text[8:]}"
            self._head = (tick >> 12, head)  # one assignment: threads may share a clock
        bits = self._random_bits(62)
        fields = (head, tick & 0xFFF, 0x8000 | bits >> 48, bits & 0xFFFFFFFFFFFF)
        return "%s-7%03x-%x-%012x" % fields  # noqa: UP031 - an f-string takes half as long again
