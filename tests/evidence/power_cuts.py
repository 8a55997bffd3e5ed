"""Power cuts: the writes of a day are recorded, and cut at random moments with any part of the unflushed ones."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.crash.test_power_loss import Past, a_day_of_work, cut
from tests.evidence.model import Found

STATES_A_DAY = 2_500
"""Disk states of one recorded day; then another day is recorded."""


def power_cuts(states: int, seed: int, folder: Path) -> Found:
    """Cut the power so many times."""
    chance = random.Random(seed)
    found = Found()
    writes = accepted = 0
    while found.count < states and found.holds:
        past = a_day_of_work(folder / f"day-{found.count}", "full")
        writes, accepted = writes + past.disk.moment, accepted + len(past.accepted)
        for _ in range(min(STATES_A_DAY, states - found.count)):
            _cut(past, folder / "cut", chance, found)
    found.more = f"{accepted:,} triggers accepted in {writes:,} recorded writes and flushes"
    return found


def _cut(past: Past, folder: Path, chance: random.Random, found: Found) -> None:
    moment = chance.randrange(past.disk.moment + 1)
    try:
        there = cut(past, moment, folder, chance)
    except AssertionError as error:
        found.wrong.append(f"moment {moment}: {error}")
        there = set()
    gone = [id for acknowledged, id in past.accepted if acknowledged <= moment and id not in there]
    found.lost += len(gone)
    found.count += 1
    shutil.rmtree(folder, ignore_errors=True)
