"""The kill campaign of ticks: hundreds of real deaths at every point of a tick, on few databases.

    python -m tests.crash.schedule_campaign --kills 200

As `campaign`, with lives that have schedules and a clock that they move; `schedule_checker` judges what they leave.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.crash import schedule_checker
from tests.crash.child import FROM_OUTSIDE, QUIET, Life
from tests.crash.forks import be_a_warm_parent, fork, wait
from tests.crash.schedule_child import LAST, WAYS, live

LIVES_A_DATABASE = 50
QUIET_EVERY = 12

SHAPES = (("asyncio", 16), ("trio", 16), ("asyncio", 1), ("trio", 1))
"""Backend and concurrency of one database after the other."""

COUNTED = ("occurrences", "triggers", "one_time", "skipped", "run_again", "poisoned", "forgotten", "lost", "doubled")


@dataclass(slots=True)
class Result:
    """What a campaign came to. `kills` by the way a life ended, `found` by what the checker counts."""

    seconds: float = 0.0
    databases: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: dict[str, Any]) -> None:
        self.databases += other["databases"]
        self.kills.update(other["kills"])
        self.found.update(other["found"])
        self.wrong += other["wrong"]

    def table(self) -> str:
        found = self.found
        return "\n".join(
            [
                *(f"{way!s:<20}{self.kills[way]:>7}" for way in sorted(set(WAYS))),
                f"{'killed':<20}{sum(self.kills.values()):>7}",
                f"{found['occurrences']} occurrences on {self.databases} databases in {self.seconds:.1f} s, "
                f"{found['lost']} lost, {found['doubled']} doubled",
                f"{found['triggers']} fired, {found['skipped']} skipped, {found['one_time']} one-time jobs fired once",
                f"{found['run_again']} attempts run again, {found['poisoned']} triggers died of poison, "
                f"{found['forgotten']} settled ones were deleted on the way",
            ]
        )


def campaign(kills: int, seed: int, workers: int, live: Callable[[Life], None] = live) -> Result:
    """Kill at least this often, on databases of about fifty lives each."""
    began = time.monotonic()
    be_a_warm_parent()
    result = Result()
    with tempfile.TemporaryDirectory(prefix="craftcore-ticks-") as folder:
        crews = []
        for worker in range(workers):
            share = kills // workers + (worker < kills % workers)
            answer = Path(folder, f"answer-{worker}.json")
            crews.append((fork(_crew, Path(folder, str(worker)), share, seed + worker, answer, live), answer))
        for process, answer in crews:
            status = os.waitpid(process, 0)[1]
            if status or not answer.exists():
                result.wrong.append(f"a crew of the campaign ended with wait status {status}")
            else:
                result.add(json.loads(answer.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-ticks-kept-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            result.wrong.append(f"kept in {kept}, seed {seed}")
    result.seconds = time.monotonic() - began
    return result


def _crew(folder: Path, kills: int, seed: int, answer: Path, live: Callable[[Life], None]) -> None:
    """One database after the other until there were enough kills."""
    result = Result()
    chance = random.Random(seed)
    ways: list[str] = []
    while sum(result.kills.values()) < kills and not result.wrong:
        home = folder / str(result.databases)
        home.mkdir(parents=True)
        shape = SHAPES[(result.databases + seed) % len(SHAPES)]
        _one_database(home, shape, kills, chance, ways, result, live)
        result.databases += 1
        if not result.wrong:
            shutil.rmtree(home)
    answer.write_text(_text(result))


def _one_database(
    home: Path,
    shape: tuple[str, int],
    kills: int,
    chance: random.Random,
    ways: list[str],
    result: Result,
    live: Callable[[Life], None],
) -> None:
    backend, concurrency = shape
    for number in range(1, LIVES_A_DATABASE + 1):
        is_last = sum(result.kills.values()) >= kills or number == LIVES_A_DATABASE
        if not ways:
            ways.extend(chance.sample(WAYS, len(WAYS)))
        way = LAST if is_last else QUIET if number % QUIET_EVERY == 0 else ways.pop()
        life = Life(
            folder=home, number=number, backend=backend, concurrency=concurrency, ends=way, seed=chance.getrandbits(32)
        )
        ended = wait(fork(_one_life, life, live), chance.uniform(0.01, 0.15) if way == FROM_OUTSIDE else None)
        if ended == -signal.SIGKILL:
            result.kills[way] += 1
        elif ended != 0:
            said = (home / "errors").read_text() if (home / "errors").exists() else ""
            result.wrong.append(f"life {number} ({way}, {shape}) ended with {ended}: {said[-4000:]}")
            return
        if is_last:
            break
    verdict = _check_in_a_process(home)
    result.wrong += [f"{wrong} ({shape}, {home})" for wrong in verdict["wrong"]]
    result.found.update({name: verdict[name] for name in COUNTED})


def _check_in_a_process(home: Path) -> dict[str, Any]:
    """The checker opens the database, and whoever forks lives must not: it gets a process of its own."""
    answer = home / "verdict.json"
    status = wait(fork(lambda: answer.write_text(_text(schedule_checker.check(home)))), None)
    assert status == 0, f"the checker ended with {status}"
    verdict: dict[str, Any] = json.loads(answer.read_text())
    return verdict


def _one_life(life: Life, live: Callable[[Life], None]) -> None:
    try:
        live(life)
    except BaseException:
        with (life.folder / "errors").open("a") as errors:
            errors.write(f"life {life.number}\n{traceback.format_exc()}\n")
        raise


def _text(found: Any) -> str:
    return json.dumps({item.name: getattr(found, item.name) for item in fields(found)})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the result for another program")
    args = parser.parse_args()
    seed = random.SystemRandom().getrandbits(31) if args.seed is None else args.seed
    result = campaign(args.kills, seed, args.workers)
    print(result.table())
    for wrong in result.wrong:
        print(f"WRONG (seed {seed}): {wrong}")
    if args.json:
        args.json.write_text(_text(result))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
