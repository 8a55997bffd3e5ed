"""The kill campaign with foreign SQLite programs that read, write, checkpoint and vacuum.

    python -m tests.crash.foreign_campaign --kills 500

The campaign works like `campaign`. It kills the lives and the programs of `foreign_child`.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import apsw

from tests.crash import crews
from tests.crash.checker import Verdict, check
from tests.crash.child import FROM_OUTSIDE, KILLS, QUIET, Life
from tests.crash.crews import check_in_process, command, logged_errors, run_life
from tests.crash.foreign_child import live, run_foreign_programs
from tests.crash.forks import fork, wait

LIVES_A_DATABASE = 40
QUIET_EVERY = 15
PROGRAMS = 2
FOREIGN = "a foreign program"

SHAPES = (("asyncio", 16), ("trio", 16))
"""Backend and concurrency of one database after the other."""


@dataclass(slots=True)
class Result(crews.CountedResult):
    """The result of a campaign: `kills` by the way a life ended, `found` by the name of the checkers' counters."""

    def table(self) -> str:
        found = self.found
        return "\n".join(
            [
                *(f"{way!s:<20}{self.kills[way]:>7}" for way in (*KILLS, FOREIGN)),
                f"{'killed':<20}{sum(self.kills.values()):>7}",
                f"{found['accepted']} triggers accepted on {self.databases} databases in {self.seconds:.1f} s, "
                f"{found['lost']} lost, {found['doubled']} doubled; {found['interrupted']} attempts run again, "
                f"{found['poisoned']} ended as poison",
                f"{found['foreign']} rows of foreign programs, {found['foreign_lost']} lost",
            ]
        )


def campaign(kills: int, seed: int, workers: int) -> Result:
    """Kill at least `kills` lives, on databases of about forty lives each."""
    return crews.campaign(Result(), Result, _one_database, kills=kills, seed=seed, crews=workers)


def _one_database(home: Path, nth: int, kills: int, chance: random.Random, ways: list[str], result: Result) -> None:
    backend, concurrency = shape = SHAPES[nth % len(SHAPES)]
    life_of_pid: dict[int, int] = {}
    for number in range(1, LIVES_A_DATABASE + 1):
        is_last = sum(result.kills.values()) >= kills or number == LIVES_A_DATABASE
        if not ways:
            ways.extend(chance.sample(KILLS, len(KILLS)))
        way = QUIET if is_last or number % QUIET_EVERY == 0 else ways.pop()
        life = Life(
            folder=home, number=number, backend=backend, concurrency=concurrency, ends=way, seed=chance.getrandbits(32)
        )
        programs = [
            fork(run_life, life, lambda life, n=n: run_foreign_programs(life, n))
            for n in range(PROGRAMS if number > 1 else 0)
        ]
        pid = fork(run_life, life, live)
        life_of_pid[pid] = number
        ended = wait(pid, chance.uniform(0.05, 0.5) if way == FROM_OUTSIDE else None)
        for program in programs:
            program_end = wait(program, chance.uniform(0.0, 0.05))
            with suppress(ProcessLookupError):
                os.killpg(program, signal.SIGKILL)
            result.kills[FOREIGN] += program_end == -signal.SIGKILL
            if program_end not in (0, -signal.SIGKILL):
                errors = logged_errors(home)
                result.wrong.append(f"a foreign program of life {number} ended with {program_end}: {errors}")
        if ended == -signal.SIGKILL:
            result.kills[way] += 1
        elif ended != 0:
            result.wrong.append(f"life {number} ({way}, {shape}) ended with {ended}: {logged_errors(home)}")
        if result.wrong:
            return
        if is_last:
            break
    verdict = check_in_process(home, lambda: check(home, life_of_pid))
    result.wrong += [f"{wrong} ({shape}, {home})" for wrong in verdict["wrong"]]
    result.found.update({name: verdict[name] for name in ("accepted", "poisoned")})
    result.found.update({name: sum(verdict[name].values()) for name in ("lost", "doubled", "interrupted")})
    foreign_rows = check_in_process(home, lambda: _check_foreign_rows(home))
    result.wrong += [f"{wrong} ({shape}, {home})" for wrong in foreign_rows["wrong"]]
    result.found.update({"foreign": foreign_rows["accepted"], "foreign_lost": len(foreign_rows["wrong"])})


def _check_foreign_rows(home: Path) -> Verdict:
    """Require that each row that a foreign program committed is still there."""
    committed = (home / "foreign").read_text().split() if (home / "foreign").exists() else []
    connection = apsw.Connection(str(home / "agent.db"), flags=apsw.SQLITE_OPEN_READONLY)
    connection.set_busy_timeout(60_000)
    try:
        present = {name for (name,) in connection.execute("SELECT name FROM foreign_rows")} if committed else set()
    finally:
        connection.close()
    lost = [f"the row {name} of foreign_rows is gone" for name in committed if name not in present]
    return Verdict(accepted=len(committed), wrong=lost)


if __name__ == "__main__":
    sys.exit(command(__doc__, campaign, kills=500))
