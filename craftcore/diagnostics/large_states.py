"""The check of `craftcore doctor` on states near their limit: a chat that keeps its messages there ends at it."""

from __future__ import annotations

from typing import NamedTuple

from craftcore.diagnostics.finding import Finding, make_passed, warn
from craftcore.serialization.plurals import format_count
from craftcore.storage.transaction import Reader
from craftcore.tasks.outcomes import NEAR_LIMIT

LARGE = """
SELECT id, octet_length(state_json) AS bytes
  FROM tasks
 WHERE status IN ('RUNNING', 'WAITING')
   AND octet_length(state_json) > :least
 ORDER BY bytes DESC
"""


class LargeStates(NamedTuple):
    """Live tasks with a state above 80 % of the limit: their number, the one with the largest, and its bytes."""

    tasks: int
    largest: str | None
    bytes: int
    limit: int


def find_large_states(reader: Reader, limit: int) -> LargeStates:
    """Read them from one snapshot. `limit` in bytes."""
    rows = reader.fetch_all(LARGE, least=NEAR_LIMIT * limit)
    return LargeStates(len(rows), rows[0]["id"] if rows else None, rows[0]["bytes"] if rows else 0, limit)


def state_finding(large: LargeStates) -> Finding:
    """Check that no live task comes near the limit of its state."""
    if large.largest is None:
        return make_passed("states", "every live task is below 80 % of tasks.state_max_bytes")
    over = ", so its next turn is refused" if large.bytes > large.limit else ""
    text = (
        f"{format_count(large.tasks, 'live task')} above 80 % of tasks.state_max_bytes. The largest has "
        f"{large.bytes:,} of {large.limit:,} bytes{over}. "
        "Keep messages in ctx.history and what is large elsewhere, or raise the limit"
    )
    return warn("states", text, "craftcore", "task", "show", large.largest)
