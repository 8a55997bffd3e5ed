"""Power cuts at random moments of a recorded workload, each with a random subset of the unflushed writes."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from tests.crash.test_power_loss import Workload, cut, run_workload
from tests.evidence.model import Findings

STATES_EACH = 2_500
"""The number of disk states of one recorded workload."""


def power_cuts(states: int, seed: int, folder: Path) -> Findings:
    """Cut the power `states` times."""
    chance = random.Random(seed)
    found = Findings()
    writes = accepted = 0
    while found.count < states and found.holds:
        workload = run_workload(folder / f"workload-{found.count}", "full")
        writes, accepted = writes + workload.disk.moment, accepted + len(workload.accepted)
        for _ in range(min(STATES_EACH, states - found.count)):
            _cut(workload, folder / "cut", chance, found)
    found.more = f"{accepted:,} triggers accepted in {writes:,} recorded writes and flushes"
    return found


def _cut(workload: Workload, folder: Path, chance: random.Random, found: Findings) -> None:
    moment = chance.randrange(workload.disk.moment + 1)
    try:
        present = cut(workload, moment, folder, chance)
    except AssertionError as error:
        found.wrong.append(f"moment {moment}: {error}")
        present = set()
    lost = [id for acknowledged, id in workload.accepted if acknowledged <= moment and id not in present]
    found.lost += len(lost)
    found.count += 1
    shutil.rmtree(folder, ignore_errors=True)
