"""How many triggers are in each state that is not over, as every command tells it.

While no daemon runs, nothing is claimed and nothing runs. What a dead one left CLAIMED is due when the next one starts.
"""

from __future__ import annotations

from collections.abc import Mapping

from craftcore.triggers.model import Trigger, TriggerStatus


def told_counts(counts: Mapping[str, int], *, daemon_runs: bool) -> dict[str, int]:
    """The counts of the table. `cut_off`: how many of those due were running when the daemon ended."""
    if daemon_runs:
        return {**counts, "cut_off": 0}
    due = counts["due"] + counts["claimed"] + counts["running"]
    return {**counts, "due": due, "claimed": 0, "running": 0, "cut_off": counts["running"]}


def is_cut_off(row: Trigger, *, daemon_runs: bool) -> bool:
    """Whether it was running when the daemon ended."""
    return row.is_started and not daemon_runs


def why_still_claimed(row: Trigger, *, daemon_runs: bool) -> str | None:
    """What CLAIMED means of a trigger while no daemon runs; None for every other."""
    if daemon_runs or row.status is not TriggerStatus.CLAIMED:
        return None
    left = "cut off when its daemon ended" if row.is_started else "claimed by a daemon that ended"
    if row.cancel_requested_at is not None:
        return f"{left}; cancelled when one starts"
    return f"{left}; due when one starts"
