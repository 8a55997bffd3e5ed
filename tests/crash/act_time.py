"""The clocks of the campaigns of irreversible actions, which skip every wait.

A life may set the wall clock forward for all lives in its folder, so that windows end at once. The time of the event
loop jumps to the next timeout, so that a call times out exactly at the chosen place.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from trio.abc import Clock as LoopClock

from craftcore.clock import SystemClock


class ShiftedClock(SystemClock):
    """The clock of the machine, shifted by the seconds in a file of the folder: equal in all processes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "shift"

    def now(self) -> float:
        return super().now() + self._shift()

    def boot_time(self) -> float:
        return super().boot_time() + self._shift()

    def advance(self, seconds: float) -> None:
        """Set the clock forward. Only the current life of the folder may do so."""
        new_file = self._file.with_suffix(".new")
        new_file.write_text(str(self._shift() + seconds))
        new_file.replace(self._file)  # a kill at any moment leaves a complete file

    def _shift(self) -> float:
        try:
            return float(self._file.read_text())
        except FileNotFoundError:
            return 0.0


class LoopTime(LoopClock):
    """The time of one event loop, which can be set forward. Trio takes it as its clock; asyncio needs `install`."""

    def __init__(self) -> None:
        self._shift = 0.0

    def jump(self, seconds: float) -> None:
        """Set the time forward, so that each timeout within these seconds ends now."""
        self._shift += seconds

    def options(self, backend: str) -> dict[str, Any]:
        """Return the backend options for `anyio.run`."""
        return {"clock": self} if backend == "trio" else {}

    def install(self, backend: str) -> None:
        """Replace the time of the running event loop, if it is one of asyncio."""
        if backend == "asyncio":
            asyncio.get_running_loop().time = self.current_time  # type: ignore[method-assign]

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return time.monotonic() + self._shift

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
