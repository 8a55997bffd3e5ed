"""The kill campaign: hundreds of processes killed on few databases, checked by an independent checker.

    python -m tests.crash.campaign --kills 500

Each life is a process forked from a warm parent (`forks.py`), so it costs tens of milliseconds. SIGKILL ends it, at a
failpoint or from outside. The next life boots the database of the killed one.
"""

from __future__ import annotations

import random
import signal
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash import crews
from tests.crash.checker import check
from tests.crash.child import FROM_OUTSIDE, KILLS, PRODUCER, QUIET, Life, live, produce
from tests.crash.crews import check_in_process, command, logged_errors, run_life
from tests.crash.forks import fork, wait

LIVES_A_DATABASE = 60
QUIET_EVERY = 15

SHAPES = (("asyncio", 16), ("asyncio", 1), ("asyncio", 16), ("trio", 16))
"""Backend and concurrency of one database after the other."""


@dataclass(slots=True)
class Result:
    """The result of a campaign, with counters by the way a life ended."""

    seconds: float = 0.0
    databases: int = 0
    accepted: int = 0
    poisoned: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    lost: Counter[str] = field(default_factory=Counter)
    doubled: Counter[str] = field(default_factory=Counter)
    interrupted: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: dict[str, Any]) -> None:
        self.databases += other["databases"]
        self.accepted += other["accepted"]
        self.poisoned += other["poisoned"]
        self.wrong += other["wrong"]
        for name in ("kills", "lost", "doubled", "interrupted"):
            getattr(self, name).update(other[name])

    def table(self) -> str:
        lines = [f"{'killed':<20}{'kills':>7}{'lost':>7}{'doubled':>9}{'attempts run again':>20}"]
        for name in [*KILLS, PRODUCER, *sorted({*self.lost, *self.doubled} - {*KILLS, PRODUCER})]:
            counts = (self.kills[name], self.lost[name], self.doubled[name], self.interrupted[name])
            lines.append("{:<20}{:>7}{:>7}{:>9}{:>20}".format(str(name), *counts))
        totals = [sum(counter.values()) for counter in (self.kills, self.lost, self.doubled, self.interrupted)]
        lines.append("{:<20}{:>7}{:>7}{:>9}{:>20}".format("all", *totals))
        lines.append(
            f"{self.accepted} triggers accepted on {self.databases} databases in {self.seconds:.1f} s; "
            f"{self.poisoned} ended as poison, cut off alone after two crashes or more"
        )
        return "\n".join(lines)


def campaign(kills: int, seed: int, workers: int) -> Result:
    """Kill at least `kills` lives, evenly over all points, on databases of about sixty lives each."""
    return crews.campaign(Result(), Result, _one_database, kills=kills, seed=seed, crews=workers)


def _one_database(home: Path, nth: int, kills: int, chance: random.Random, ways: list[str], result: Result) -> None:
    backend, concurrency = SHAPES[nth % len(SHAPES)]
    ends: dict[int, str] = {}
    life_of_pid: dict[int, int] = {}
    for number in range(1, LIVES_A_DATABASE + 1):
        enough = sum(result.kills.values()) >= kills or number == LIVES_A_DATABASE
        if not ways:
            ways.extend(chance.sample(KILLS, len(KILLS)))
        way = QUIET if enough or number % QUIET_EVERY == 0 else ways.pop()
        life = Life(
            folder=home, number=number, backend=backend, concurrency=concurrency, ends=way, seed=chance.getrandbits(32)
        )
        pid = fork(run_life, life, live)
        ends[number], life_of_pid[pid] = way, number
        if way != QUIET and chance.random() < 0.2:
            producer = wait(fork(produce, life), chance.uniform(0.002, 0.04))
            result.kills[PRODUCER] += producer == -signal.SIGKILL
            if producer not in (0, -signal.SIGKILL):
                result.wrong.append(f"the producer of life {number} ended with {producer}")
        ended = wait(pid, chance.uniform(0.004, 0.06) if way == FROM_OUTSIDE else None)
        if ended == -signal.SIGKILL:
            result.kills[way] += 1
        elif ended != 0:
            errors = logged_errors(home)
            result.wrong.append(f"life {number} ({way}, {backend}, {concurrency}) ended with {ended}: {errors}")
            return
        elif way != QUIET and number <= LIVES_A_DATABASE // 2:
            ways.insert(0, way)  # the life ended before its point: a later life of the first half tries again
        if enough:
            break
    verdict = check_in_process(home, lambda: check(home, life_of_pid))
    result.accepted += verdict["accepted"]
    result.poisoned += verdict["poisoned"]
    result.wrong += [f"{wrong} ({backend}, {concurrency}, {home})" for wrong in verdict["wrong"]]
    for name in ("lost", "doubled", "interrupted"):
        for life_number, count in verdict[name].items():
            getattr(result, name)[ends.get(int(life_number), "unknown")] += count


if __name__ == "__main__":
    sys.exit(command(__doc__, campaign, kills=500))
