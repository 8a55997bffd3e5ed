"""The kill campaign: hundreds of real deaths on few databases, and what an independent checker makes of them.

    python -m tests.crash.campaign --kills 500

Each life is a process forked from a warm parent (`forks.py`), so it costs tens of milliseconds; it ends by SIGKILL, by
itself at a named point or from outside. The next one boots what it left.
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
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tests.crash.checker import check
from tests.crash.child import FROM_OUTSIDE, KILLS, PRODUCER, QUIET, Life, live, produce
from tests.crash.forks import be_a_warm_parent, fork, wait

LIVES_A_DATABASE = 60
QUIET_EVERY = 15

SHAPES = (("asyncio", 16), ("asyncio", 1), ("asyncio", 16), ("trio", 16))
"""Backend and concurrency of one database after the other."""


@dataclass(slots=True)
class Result:
    """What a campaign came to; counters are by the way a life ended."""

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
            f"{self.poisoned} died of poison, cut off alone after two crashes or more"
        )
        return "\n".join(lines)


def campaign(kills: int, seed: int, workers: int) -> Result:
    """Kill at least this often, evenly over all points, on databases of about sixty lives each."""
    began = time.monotonic()
    be_a_warm_parent()
    result = Result()
    with tempfile.TemporaryDirectory(prefix="craftcore-crash-") as folder:
        crews = []
        for worker in range(workers):
            share = kills // workers + (worker < kills % workers)
            answer = Path(folder, f"answer-{worker}.json")
            crews.append((fork(_crew, Path(folder, str(worker)), share, seed + worker, answer), answer))
        for process, answer in crews:
            status = os.waitpid(process, 0)[1]
            if status or not answer.exists():
                result.wrong.append(f"a crew of the campaign ended with wait status {status}")
            else:
                result.add(json.loads(answer.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-crash-kept-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True)
            result.wrong.append(f"kept in {kept}, seed {seed}")
    result.seconds = time.monotonic() - began
    return result


def _crew(folder: Path, kills: int, seed: int, answer: Path) -> None:
    """One database after the other until there were enough kills."""
    result = Result()
    chance = random.Random(seed)
    ways: list[str] = []
    while sum(result.kills.values()) < kills and not result.wrong:
        home = folder / str(result.databases)
        home.mkdir(parents=True)
        backend, concurrency = SHAPES[(result.databases + seed) % len(SHAPES)]
        _one_database(home, backend, concurrency, kills, chance, ways, result)
        result.databases += 1
        if not result.wrong:
            shutil.rmtree(home)
    answer.write_text(_text(result))


def _one_database(
    home: Path, backend: str, concurrency: int, kills: int, chance: random.Random, ways: list[str], result: Result
) -> None:
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
        pid = fork(_one_life, life)
        ends[number], life_of_pid[pid] = way, number
        if way != QUIET and chance.random() < 0.2:
            producer = wait(fork(produce, life), chance.uniform(0.002, 0.04))
            result.kills[PRODUCER] += producer == -signal.SIGKILL
            if producer not in (0, -signal.SIGKILL):
                result.wrong.append(f"the producer beside life {number} ended with {producer}")
        ended = wait(pid, chance.uniform(0.004, 0.06) if way == FROM_OUTSIDE else None)
        if ended == -signal.SIGKILL:
            result.kills[way] += 1
        elif ended != 0:
            said = (home / "errors").read_text() if (home / "errors").exists() else ""
            result.wrong.append(f"life {number} ({way}, {backend}, {concurrency}) ended with {ended}: {said[-4000:]}")
            return
        if enough:
            break
    verdict = check_in_a_process(home, life_of_pid)
    result.accepted += verdict["accepted"]
    result.poisoned += verdict["poisoned"]
    result.wrong += [f"{wrong} ({backend}, {concurrency}, {home})" for wrong in verdict["wrong"]]
    for name in ("lost", "doubled", "interrupted"):
        for life_number, count in verdict[name].items():
            getattr(result, name)[ends.get(int(life_number), "unknown")] += count


def check_in_a_process(home: Path, life_of_pid: dict[int, int]) -> dict[str, Any]:
    """The checker opens the database, and whoever forks lives must not: it gets a process of its own."""
    answer = home / "verdict.json"
    pid = fork(lambda: answer.write_text(_text(check(home, life_of_pid))))
    status = wait(pid, None)
    assert status == 0, f"the checker ended with {status}"
    verdict: dict[str, Any] = json.loads(answer.read_text())
    return verdict


def _one_life(life: Life) -> None:
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
    parser.add_argument("--kills", type=int, default=500)
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
