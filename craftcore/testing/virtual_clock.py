"""A clock that only a test moves. The same seed makes the same ids."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta
from itertools import count

import anyio

from craftcore.clock import Uuid7
from craftcore.errors import InvalidInput
from craftcore.serialization.arguments import Duration, seconds

RESOLUTION = 1e-6
"""Seconds: epoch seconds as floats are a quarter of this apart."""

CENTURY = 100 * 366 * 86_400.0
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


class VirtualClock:
    """A Clock for tests. `now`: where it begins, in epoch seconds. `zone_name`: the IANA name of the machine's zone;
    None: it is not known."""

    def __init__(self, now: float = NEW_YEAR, *, seed: int = 0, zone_name: str | None = "UTC") -> None:
        self._now = now
        self._boot_time = 1_000.0
        self._zone = zone_name
        self._ids = Uuid7(random.Random(seed))
        self._numbers = count()
        self._sleepers: dict[int, tuple[float, anyio.Event]] = {}

    def now(self) -> float:
        return self._now

    def boot_time(self) -> float:
        return self._boot_time

    def awake_time(self) -> float:
        return self._boot_time

    def zone(self) -> str | None:
        return self._zone

    def new_id(self) -> str:
        return self._ids.generate(self._now)

    async def sleep(self, seconds: float) -> None:
        """Wait until so much time has passed. Only `advance` lets time pass."""
        number, woken = next(self._numbers), anyio.Event()
        self._sleepers[number] = (self._boot_time + max(0.0, seconds), woken)
        self._wake()
        try:
            await woken.wait()
        finally:
            self._sleepers.pop(number, None)

    @property
    def sleeping(self) -> int:
        """How many sleep now."""
        return len(self._sleepers)

    @property
    def next_wake(self) -> float | None:
        """The moment at which the first of them wakes, in epoch seconds; None: no task sleeps."""
        ends = [at for at, _ in self._sleepers.values()]
        return self._now + min(ends) - self._boot_time if ends else None

    def advance(self, seconds: float = 0.0, *, minutes: float = 0.0, hours: float = 0.0) -> None:
        """Let time pass."""
        passed = seconds + 60 * minutes + 3600 * hours
        assert passed >= 0, passed
        self._now += passed
        self._boot_time += passed
        self._wake()

    def set_back(self, seconds: float) -> None:
        """Set the wall clock back, as NTP or a person does. The boot clock goes on, and sleepers sleep on."""
        self._now -= seconds

    def put(self, now: float, boot_time: float) -> None:
        """Put both clocks to these moments, in seconds."""
        self._now, self._boot_time = now, boot_time

    def _wake(self) -> None:
        for number, (at, woken) in list(self._sleepers.items()):
            if at <= self._boot_time + RESOLUTION:
                del self._sleepers[number]
                woken.set()


def sum_up(duration: Duration, minutes: float, hours: float, days: float) -> float:
    """Return a length of time in seconds. Raises InvalidInput for one that is negative or longer than a century."""
    length = seconds("advance: duration", duration, InvalidInput, most=CENTURY)
    return length + timedelta(minutes=minutes, hours=hours, days=days).total_seconds()
