"""The descriptions of types that msgspec reads. One thread builds each, before any thread reads with it.

msgspec builds the description of a class at its first use, and keeps it on the class before it is whole. A second
thread that reads the same class meanwhile ends the process: SIGSEGV, with msgspec 0.22.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

TYPES_KEPT = 1024
"""Types that are known to be described. One that is not is described again, which costs little."""

_building = threading.Lock()


def describe_type(kind: Any) -> None:
    """Build the description of a type, and of all in it. A type that msgspec cannot read is refused when it reads."""
    try:
        _describe(kind)
    except TypeError:  # it cannot be hashed
        _describe.__wrapped__(kind)


@lru_cache(maxsize=TYPES_KEPT)
def _describe(kind: Any) -> None:
    with _building, suppress(Exception):
        msgspec.json.Decoder(kind)
