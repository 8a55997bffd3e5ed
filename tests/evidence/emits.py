"""Kills right after `emit`: each accepted trigger is on disk when the caller hears that it was accepted."""

from __future__ import annotations

from pathlib import Path

from tests.crash.after_emit import DOORS, kill_after_emits
from tests.evidence.model import Found


def kills_after_emit(kills: int, seed: int, folder: Path) -> Found:
    """Kill so many processes, as many for each way to emit. There is no chance in it, so the seed has no effect."""
    found = Found()
    for door in DOORS:
        home = folder / door
        home.mkdir()
        ended = kill_after_emits(home, door, -(-kills // len(DOORS)))
        found.count += len(ended.accepted)
        found.lost += len(ended.lost)
        if ended.damage is not None:
            found.wrong.append(f"{door}: {ended.damage}")
        if len(ended.accepted) != len(set(ended.accepted)):
            found.wrong.append(f"{door}: two triggers have the same id")
    found.more = f"{found.count:,} triggers accepted by a Producer and by engines on asyncio and trio"
    return found
