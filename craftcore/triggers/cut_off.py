"""How many triggers are in each state that is not over, once it is known whether any daemon works on the claims.

Before a daemon has booted, and while none runs, nothing is claimed and nothing runs. The claims that a dead daemon left
are due: the next boot takes them back.
"""

from __future__ import annotations

from collections.abc import Mapping


def counts_document(counts: Mapping[str, int], *, claims_live: bool) -> dict[str, int]:
    """Return the counts of the table. `cut_off`: how many of those due were running when their daemon ended."""
    if claims_live:
        return {**counts, "cut_off": 0}
    due = counts["due"] + counts["claimed"] + counts["running"]
    return {**counts, "due": due, "claimed": 0, "running": 0, "cut_off": counts["running"]}
