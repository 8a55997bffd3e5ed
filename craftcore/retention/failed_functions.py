"""The failure of a function of `app.on_retention`, as the database keeps it until a pass in which none fails."""

from __future__ import annotations

import json
from dataclasses import dataclass

from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Reader

RETENTION_FAILED = "retention_failed"


@dataclass(frozen=True, slots=True)
class RetentionFailure:
    """Which function failed, why, and when: epoch seconds."""

    function: str
    error: str
    at: float


def read_failure(tx: Reader) -> RetentionFailure | None:
    """Return the failure of the last pass. None: there was none, or what is kept of it is damaged."""
    try:
        found = json.loads(get_fact(tx, RETENTION_FAILED) or "null")
        return RetentionFailure(str(found["function"]), str(found["error"]), float(found["at"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
