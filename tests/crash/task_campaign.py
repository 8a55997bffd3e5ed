"""The kill campaign of tasks: many concurrent tasks, random kills, and a second program that sends their messages.

    python -m tests.crash.task_campaign --kills 2000 --seed 2026

Each life accepts new tasks of every kind and continues the tasks of earlier lives. It is killed at a named place, in
the function of a step, or from outside. Some lives stop in order while tasks run. Some run beside a second program that
emits, answers and signals, and is also killed. The last life completes all tasks, and `task_checker` checks the result.
`task_matrix` tests small scenarios, interrupted at every place.
"""

from __future__ import annotations

import random
import signal
import sys
from dataclasses import dataclass
from pathlib import Path

from craftcore import TriggerSpec
from craftcore.failpoints import Failpoint
from tests.crash import crews
from tests.crash.child import FROM_OUTSIDE, PRODUCER, QUIET
from tests.crash.crews import check_in_process, command, logged_errors, run_life
from tests.crash.forks import fork, wait
from tests.crash.task_checker import check
from tests.crash.task_child import IN_STEP, ORDERLY_STOP, POINTS, TaskLife, live, run_second_program
from tests.crash.task_matrix import FOUND
from tests.crash.task_outside import Scenario, a_chat, a_routed_task, a_task

LIVES_PER_DATABASE = 40
LIVES_WITH_NEW_TASKS = 20
QUIET_PERIOD = 13
"""One of this many lives runs until it is idle."""

SHAPES = (("asyncio", 16), ("trio", 16), ("asyncio", 1), ("trio", 4))
"""The backend and the concurrency of one database after the other.

On every second database each kill counts as a restart of the machine. No trigger is blamed, so every task must end.
"""

KILLS = (*POINTS, IN_STEP, Failpoint.STEP_RAN, Failpoint.TURN_SUSPENDED, *(FROM_OUTSIDE,) * 4)
WAYS = (*KILLS, ORDERLY_STOP)
"""The ways in which a life ends. A way that is repeated in the tuple is taken more often."""

PASSES = {
    Failpoint.RECLAIM_COMMITTED: 1,
    Failpoint.ROUTE_DECIDED: 1,
    Failpoint.EMIT_COMMITTED: 4,
    Failpoint.ANSWER_COMMITTED: 2,
    Failpoint.WRITER_FLUSHING: 40,
    Failpoint.WRITER_FLUSHED: 40,
}
"""The last pass of a place at which a life may be killed."""

KINDS = ("work", "waits", "beside", "loop", "routed", "parent", "shaky", "mended", "race", "victim")
CHATS = 3


@dataclass(slots=True)
class Result(crews.CountedResult):
    """The result of a campaign: the kills by the place of the kill, and the counts of the checker in `found`."""

    def table(self) -> str:
        return "\n".join(
            [
                *(f"{way!s:<20}{self.kills[way]:>7}" for way in sorted({*KILLS, PRODUCER})),
                f"{'killed':<20}{sum(self.kills.values()):>7} on {self.databases} databases in {self.seconds:.1f} s",
                ", ".join(f"{self.found[name]} {name.replace('_', ' ')}" for name in FOUND),
            ]
        )


def campaign(kills: int, seed: int, workers: int) -> Result:
    """Kill at least `kills` lives, on databases of about forty lives each."""
    return crews.campaign(Result(), Result, _one_database, kills=kills, seed=seed, crews=workers)


def _one_database(home: Path, nth: int, kills: int, chance: random.Random, ways: list[str], result: Result) -> None:
    backend, concurrency = shape = SHAPES[nth % len(SHAPES)]
    reboots = bool(nth % 2)
    specs: list[TriggerSpec] = []
    for number in range(1, LIVES_PER_DATABASE + 1):
        is_last = sum(result.kills.values()) >= kills or number == LIVES_PER_DATABASE
        if number <= LIVES_WITH_NEW_TASKS and not is_last:
            specs = [*_new_specs(number, chance), *specs]
        if not ways:
            ways.extend(chance.sample(WAYS, len(WAYS)))
        way = QUIET if is_last or number % QUIET_PERIOD == 0 else ways.pop()
        life = TaskLife(
            folder=home,
            number=number,
            scenario=Scenario("many", tuple(specs)),
            ends=way,
            at_pass=chance.randint(1, PASSES.get(Failpoint(way), 12)) if way in POINTS else chance.randint(1, 8),
            backend=backend,
            concurrency=concurrency,
            reboots=reboots,
        )
        pid = fork(run_life, life, live)
        if way != QUIET and chance.random() < 0.25:
            _run_second_program(life, chance, result)
        ended = wait(pid, chance.uniform(0.02, 0.2) if way == FROM_OUTSIDE else None)
        if ended == -signal.SIGKILL:
            result.kills[way] += 1
        elif ended != 0:
            result.wrong.append(f"life {number} ({way}, {shape}) ended with {ended}: {logged_errors(home)}")
        if is_last or result.wrong:
            break
    if result.wrong:
        return
    verdict = check_in_process(home, lambda: check(home))
    result.wrong += [f"{wrong} ({shape}, {home})" for wrong in verdict["wrong"]]
    result.found.update({name: verdict[name] for name in FOUND})
    if reboots and verdict["poisoned"]:
        result.wrong.append(
            f"{verdict['poisoned']} triggers are poison, although no crash is blamed on a trigger ({home})"
        )


def _run_second_program(life: TaskLife, chance: random.Random, result: Result) -> None:
    """Run another program on the same database for a while. In most cases it is killed."""
    place = chance.choice([Failpoint.EMIT_COMMITTED, Failpoint.ANSWER_COMMITTED, FROM_OUTSIDE])
    other = TaskLife(
        folder=life.folder,
        number=1000 + life.number,
        scenario=life.scenario,
        ends=place,
        at_pass=chance.randint(1, 3),
    )
    ended = wait(fork(run_life, other, _run_ten_rounds), chance.uniform(0.02, 0.1) if place == FROM_OUTSIDE else None)
    result.kills[PRODUCER] += ended == -signal.SIGKILL
    if ended not in (0, -signal.SIGKILL):
        result.wrong.append(
            f"the second program of life {life.number} ended with {ended}: {logged_errors(life.folder)}"
        )


def _run_ten_rounds(life: TaskLife) -> None:
    run_second_program(life, 10)


def _new_specs(number: int, chance: random.Random) -> list[TriggerSpec]:
    """Return new triggers for this life: two tasks of any kind, and messages in one session."""
    kinds = chance.sample(KINDS, 2)
    tasks = [a_task(kind, f"{kind}-{number}") for kind in kinds if kind != "routed"]
    tasks += [a_routed_task(f"routed-{number}")] if "routed" in kinds else []
    messages = a_chat(f"session-{number % CHATS}", 2, 4 + number % CHATS, begin=10 * number)
    return [*tasks, *messages]


if __name__ == "__main__":
    sys.exit(command(__doc__, campaign, kills=500))
