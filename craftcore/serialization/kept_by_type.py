"""Results that are kept for each type, also for types of the user's that have no hash or no repr."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Generic, TypeVar

R = TypeVar("R")

TYPES_KEPT = 1024
"""Types whose results are kept."""


class KeptByType(Generic[R]):
    """A function of one type, or of a function with annotations. It raises nothing, and its results are kept.

    They are kept for the types met last. For a type that cannot be hashed or compared the function is called each time.
    `in_order`: also for one without a repr. `A | B` equals `B | A`, and has another result then.
    """

    def __init__(self, make: Callable[[Any], R], *, in_order: bool) -> None:
        self._make = make
        self._in_order = in_order
        self._make_once = lru_cache(maxsize=TYPES_KEPT)(lambda kind, _text: make(kind))

    def __call__(self, kind: Any) -> R:
        try:
            return self._make_once(kind, repr(kind) if self._in_order else "")
        except Exception:  # it cannot be hashed, or has no repr
            return self._make(kind)

    def clear(self) -> None:
        """Forget the results."""
        self._make_once.cache_clear()


def keep_by_type(*, in_order: bool = False) -> Callable[[Callable[[Any], R]], KeptByType[R]]:
    """Return the decorator that makes a KeptByType."""
    return lambda make: KeptByType(make, in_order=in_order)
