"""Kills right after `emit`: each accepted trigger is on disk when `emit` returns its id."""

from __future__ import annotations

from pathlib import Path

from tests.crash.after_emit import WAYS, kill_after_emits
from tests.evidence.model import Findings


def kills_after_emit(kills: int, seed: int, folder: Path) -> Findings:
    """Kill `kills` processes, equally many for each way to emit. The seed has no effect."""
    found = Findings()
    for way in WAYS:
        home = folder / way
        home.mkdir()
        result = kill_after_emits(home, way, -(-kills // len(WAYS)))
        found.count += len(result.accepted)
        found.lost += len(result.lost)
        if result.damage is not None:
            found.wrong.append(f"{way}: {result.damage}")
        if len(result.accepted) != len(set(result.accepted)):
            found.wrong.append(f"{way}: two triggers have the same id")
    found.more = f"{found.count:,} triggers accepted by a Producer and by engines on asyncio and trio"
    return found
