"""The clocks of the campaigns of irreversible actions, which skip every wait.

The wall clock may be set forward for all lives on one folder, so a day passes at once and windows end with it. The time
of the event loop jumps to the next timeout, so a call times out exactly at the chosen place.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from trio.abc import Clock as LoopClock

from craftcore.clock import SystemClock


class World(SystemClock):
    """The machine's clock, so much later as the folder's file says: the same for everybody."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self._file = folder / "later"

    def now(self) -> float:
        return super().now() + self._later()

    def boot_time(self) -> float:
        return super().boot_time() + self._later()

    def pass_by(self, seconds: float) -> None:
        """So many seconds pass. Only the life on this folder says so."""
        new = self._file.with_suffix(".new")
        new.write_text(str(self._later() + seconds))
        new.replace(self._file)  # whole, whenever this process dies

    def _later(self) -> float:
        try:
            return float(self._file.read_text())
        except FileNotFoundError:
            return 0.0


class LoopTime(LoopClock):
    """The time of one event loop, which can be set forward: of trio's as its clock, of asyncio's by `take_over`."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def jump(self, seconds: float) -> None:
        """Whatever would have ended within so many seconds ends now."""
        self._ahead += seconds

    def options(self, backend: str) -> dict[str, Any]:
        """What `anyio.run` is to be given."""
        return {"clock": self} if backend == "trio" else {}

    def take_over(self, backend: str) -> None:
        """Be the time of the loop that runs now."""
        if backend == "asyncio":
            asyncio.get_running_loop().time = self.current_time  # type: ignore[method-assign]

    def start_clock(self) -> None:
        pass

    def current_time(self) -> float:
        return time.monotonic() + self._ahead

    def deadline_to_sleep_time(self, deadline: float) -> float:
        return deadline - self.current_time()
