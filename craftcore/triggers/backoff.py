"""How long a failed trigger waits. Pure."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """`max_attempts` in all; the wait after the n-th is `min(cap, base * 2**(n-1))`, half of it jittered.

    Seconds. The jitter comes from (id, n), so the same trigger waits the same time in every run:
    after n = 1, 2, 3 with base 10 it waits between 5 and 10, 10 and 20, 20 and 40 seconds.
    """

    max_attempts: int = 5
    base: float = 10.0
    cap: float = 3600.0

    def __post_init__(self) -> None:
        if self.max_attempts < 1:
            raise ValueError(f"max_attempts is {self.max_attempts}; it must be at least 1")
        if not 0 <= self.base <= self.cap < float("inf"):
            raise ValueError(f"base is {self.base} and cap is {self.cap}; it must be 0 <= base <= cap")

    def backoff(self, trigger_id: str, attempt: int) -> float:
        """Seconds to wait after this attempt, counted from 1."""
        longest = min(self.cap, self.base * 2.0 ** min(attempt - 1, 64))
        return longest / 2 + longest / 2 * random.Random(f"{trigger_id}:{attempt}").random()
