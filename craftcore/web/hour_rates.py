"""The rates of the last hour, with what is known of past minutes kept between two reads."""

from __future__ import annotations

import threading
from functools import partial

from craftcore.storage.transaction import Reader
from craftcore.web.rates_store import RatesStore
from craftcore.web.spark import MINUTE, MINUTES, Minute, Rates, find_bound, first_minute, sum_minutes

HOUR = MINUTE * MINUTES


class HourRates:
    """Reads the rates for all viewers of one process. Threads may share it.

    The first number of each past minute is kept, and the figures of a full minute once all of its attempts ended. After
    the clock was set back, the numbers do not grow with the time for an hour: `Rates.uncertain` says so.
    """

    def __init__(self) -> None:
        self._store = RatesStore()
        self._lock = threading.Lock()
        self._bounds: dict[float, int] = {}
        self._minutes: dict[float, Minute] = {}
        self._newest, self._read_at = 0, 0.0

    def read(self, reader: Reader, now: float) -> Rates:
        """Return the rates of the sixty minutes that end with the current one."""
        with self._lock:
            low, high = self._store.find_bounds(reader)
            self._forget(now, high)
            starts = [first_minute(now) + number * MINUTE for number in range(MINUTES)]
            bounds = [*self._list_bounds(reader, starts, low, high), high]
            minutes = [self._minute(reader, at, bounds[number], bounds[number + 1]) for number, at in enumerate(starts)]
            back_at = self._store.find_step_back(reader)
            return sum_minutes(minutes, uncertain=back_at is not None and now - HOUR < back_at)

    def _forget(self, now: float, high: int) -> None:
        """Drop what is older than an hour; all of it when the clock or the file went back."""
        if now < self._read_at or high < self._newest:
            self._bounds, self._minutes = {}, {}
        self._newest, self._read_at = high, now
        oldest = first_minute(now)
        self._bounds = {at: seq for at, seq in self._bounds.items() if at >= oldest}
        self._minutes = {at: minute for at, minute in self._minutes.items() if at >= oldest}

    def _list_bounds(self, reader: Reader, starts: list[float], low: int, high: int) -> list[int]:
        """Return the first number of each minute. Each is looked for from the one before on."""
        bounds = []
        for at in starts:
            if at not in self._bounds:
                self._bounds[at] = find_bound(partial(self._store.created_at, reader), at, low, high)
            low = max(low, self._bounds[at])
            bounds.append(low)
        return bounds

    def _minute(self, reader: Reader, at: float, low: int, high: int) -> Minute:
        if (known := self._minutes.get(at)) is not None:
            return known
        minute = self._store.minute(reader, at, low, high)
        if at + MINUTE <= self._read_at and minute.open == 0:
            self._minutes[at] = minute
        return minute
