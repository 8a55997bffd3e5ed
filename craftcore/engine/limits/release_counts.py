"""How often triggers were handed back, so that it ends for one that is handed back again and again."""

from __future__ import annotations

KEPT_MAX = 10_000


class ReleaseCounts:
    """The counts of one engine for one reason. They are kept in memory for the newest KEPT_MAX triggers."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}

    def count(self, trigger: str) -> int:
        """Count one more, and return how many there were."""
        number = self._counts[trigger] = self._counts.pop(trigger, 0) + 1
        if len(self._counts) > KEPT_MAX:
            del self._counts[next(iter(self._counts))]
        return number
