"""How long a failed trigger waits. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass

from craftcore.serialization.arguments import require_whole_number, seconds

ATTEMPTS_MAX = 1000
LONGEST_BACKOFF = 36_525 * 86_400.0
"""A hundred years, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """`max_attempts` in all; the wait after the n-th is `min(cap, base * 2**(n-1))`, half of it jittered.

    Seconds, a timedelta, or text like "10m". Raises ValueError for a policy that cannot be followed. The jitter comes
    from (id, n), so the same trigger waits the same time in every run. After n = 1, 2, 3 with base 10 it waits between
    5 and 10, 10 and 20, 20 and 40 seconds.
    """

    max_attempts: int = 5
    base: float = 10.0
    cap: float = 3600.0

    def __post_init__(self) -> None:
        require_whole_number("RetryPolicy: max_attempts", self.max_attempts, 1, ATTEMPTS_MAX, ValueError)
        for name in ("base", "cap"):
            length = seconds(f"RetryPolicy: {name}", getattr(self, name), ValueError, most=LONGEST_BACKOFF)
            object.__setattr__(self, name, length)
        if self.base > self.cap:
            raise ValueError(f"RetryPolicy: base {self.base:g} must not be more than cap {self.cap:g}")

    def backoff(self, trigger_id: str, attempt: int) -> float:
        """Return the seconds to wait after this attempt, counted from 1."""
        longest = min(self.cap, self.base * 2.0 ** min(attempt - 1, 64))
        return longest / 2 + longest / 2 * random.Random(f"{trigger_id}:{attempt}").random()
