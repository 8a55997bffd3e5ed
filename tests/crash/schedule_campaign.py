"""The kill campaign of schedules: hundreds of processes killed at every point of a tick, on few databases.

    python -m tests.crash.schedule_campaign --kills 200

The campaign works like `campaign`. Its lives have schedules and a clock that they move, and `schedule_checker` checks
their database.
"""

from __future__ import annotations

import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.crash import crews, schedule_checker
from tests.crash.child import FROM_OUTSIDE, QUIET, Life
from tests.crash.crews import check_in_process, command, logged_errors, run_life
from tests.crash.forks import fork, wait
from tests.crash.schedule_child import LAST, WAYS, live

LIVES_A_DATABASE = 50
QUIET_EVERY = 12

SHAPES = (("asyncio", 16), ("trio", 16), ("asyncio", 1), ("trio", 1))
"""Backend and concurrency of one database after the other."""

COUNTED = ("occurrences", "triggers", "one_time", "skipped", "run_again", "poisoned", "forgotten", "lost", "doubled")


@dataclass(slots=True)
class Result(crews.CountedResult):
    """The result of a campaign: `kills` by the way a life ended, `found` by the name of the checker's counter."""

    def table(self) -> str:
        found = self.found
        return "\n".join(
            [
                *(f"{way!s:<20}{self.kills[way]:>7}" for way in sorted(set(WAYS))),
                f"{'killed':<20}{sum(self.kills.values()):>7}",
                f"{found['occurrences']} occurrences on {self.databases} databases in {self.seconds:.1f} s, "
                f"{found['lost']} lost, {found['doubled']} doubled",
                f"{found['triggers']} fired, {found['skipped']} skipped, {found['one_time']} one-time jobs fired once",
                f"{found['run_again']} attempts run again, {found['poisoned']} triggers ended as poison, "
                f"{found['forgotten']} settled ones were deleted on the way",
            ]
        )


def campaign(kills: int, seed: int, workers: int) -> Result:
    """Kill at least `kills` lives, on databases of about fifty lives each."""
    return crews.campaign(Result(), Result, _one_database, kills=kills, seed=seed, crews=workers)


def _one_database(home: Path, nth: int, kills: int, chance: random.Random, ways: list[str], result: Result) -> None:
    backend, concurrency = shape = SHAPES[nth % len(SHAPES)]
    for number in range(1, LIVES_A_DATABASE + 1):
        is_last = sum(result.kills.values()) >= kills or number == LIVES_A_DATABASE
        if not ways:
            ways.extend(chance.sample(WAYS, len(WAYS)))
        way = LAST if is_last else QUIET if number % QUIET_EVERY == 0 else ways.pop()
        life = Life(
            folder=home, number=number, backend=backend, concurrency=concurrency, ends=way, seed=chance.getrandbits(32)
        )
        ended = wait(fork(run_life, life, live), chance.uniform(0.01, 0.15) if way == FROM_OUTSIDE else None)
        if ended == -signal.SIGKILL:
            result.kills[way] += 1
        elif ended != 0:
            result.wrong.append(f"life {number} ({way}, {shape}) ended with {ended}: {logged_errors(home)}")
            return
        elif way not in (QUIET, LAST) and number <= LIVES_A_DATABASE // 2:
            ways.insert(0, way)  # the life ended before its point: a later life of the first half tries again
        if is_last:
            break
    verdict = check_in_process(home, lambda: schedule_checker.check(home))
    result.wrong += [f"{wrong} ({shape}, {home})" for wrong in verdict["wrong"]]
    result.found.update({name: verdict[name] for name in COUNTED})


if __name__ == "__main__":
    sys.exit(command(__doc__, campaign, kills=200))
