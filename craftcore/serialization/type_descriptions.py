"""The descriptions of types that msgspec reads. One thread builds each, before any thread reads with it.

msgspec builds the description of a class at its first use, and keeps it on the class before it is whole. A second
thread that reads the same class meanwhile ends the process: SIGSEGV, with msgspec 0.22.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import Any

import msgspec

from craftcore.serialization.kept_by_type import keep_by_type

_building = threading.Lock()


@keep_by_type()
def describe_type(kind: Any) -> None:
    """Build the description of a type, and of all in it. A type that msgspec cannot read is refused when it reads."""
    with _building, suppress(Exception):
        msgspec.json.Decoder(kind)
