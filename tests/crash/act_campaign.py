"""The kill campaign of irreversible actions: many concurrent tasks, random kills and other faults.

    python -m tests.crash.act_campaign --kills 2000 --seed 2026 [--only POLICY]

Each life accepts new tasks of every kind and continues the tasks of earlier lives. It is killed at a named place,
around a call, or from outside. Some lives stop in order during a call. Calls time out, lose their connection and are
cancelled, and a person answers the questions. The last lives complete all tasks, and `act_checker` compares the result
with the provider's book. `act_matrix` tests each fault by itself, at every place.
"""

from __future__ import annotations

import random
import signal
import sys
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from craftcore import OnUnknown, TriggerSpec
from craftcore.failpoints import Failpoint
from tests.crash import crews
from tests.crash.act_app import (
    ANSWERED,
    BUSY,
    CANCEL,
    HOW,
    IGNORED,
    LATE,
    REFUSED,
    REWRITTEN,
    STOP,
    TIME_OUT,
    WHERE,
    WRITTEN,
    Fault,
)
from tests.crash.act_checker import COUNTS, check
from tests.crash.act_child import APP, POINTS, POINTS_OF_PERSON, ActLife, live, run_person
from tests.crash.act_client import quiet_request, send_in_thread
from tests.crash.act_person import UNIMPORTANT
from tests.crash.act_provider import Provider, a_provider
from tests.crash.child import FROM_OUTSIDE, PRODUCER, QUIET
from tests.crash.crews import check_in_process, command, logged_errors, run_life
from tests.crash.forks import fork, wait
from tests.crash.task_child import ORDERLY_STOP

LIVES_WITH_NEW_TASKS = 20
LIVES_PER_DATABASE = 30
LIVES_MAX = 300
NEW_TASKS = 4

SHAPES = (("asyncio", 16), ("trio", 16), ("asyncio", 1), ("trio", 4))
"""The backend and the concurrency of one database after the other."""

AROUND_A_CALL = (
    Failpoint.INTENT_COMMITTED,
    Failpoint.CALL_MARKED,
    Failpoint.PROVIDER_ANSWERED,
    Failpoint.ACTIVITY_SETTLED,
)
WAYS = (*POINTS, *AROUND_A_CALL, *(FROM_OUTSIDE,) * 8, ORDERLY_STOP, QUIET)
"""The ways in which a life ends, unless a fault of a task ends it before. A repeated way is taken more often."""

PASSES = {
    Failpoint.RECLAIM_COMMITTED: 1,
    Failpoint.EMIT_COMMITTED: 1,
    Failpoint.WRITER_FLUSHING: 20,
    Failpoint.WRITER_FLUSHED: 20,
}
"""The last pass of a place at which a life may be killed."""

FAULTS = [
    *(Fault(how, at) for how in (TIME_OUT, CANCEL, STOP) for at in (WRITTEN, REWRITTEN)),
    *(Fault(how, where) for how in HOW for where in (*WHERE, IGNORED, LATE)),
    *(Fault(BUSY, ANSWERED), Fault(REFUSED, ANSWERED)),
]


@dataclass(slots=True)
class Result(crews.CountedResult):
    """The result of a campaign: the kills by their fault or place, and the counts of the checker in `found`."""

    def table(self) -> str:
        return "\n".join(
            [
                *(f"{fault:<20}{self.kills[fault]:>7}" for fault in sorted(self.kills)),
                f"{'killed':<20}{sum(self.kills.values()):>7} on {self.databases} databases in {self.seconds:.1f} s",
                ", ".join(f"{self.found[name]} {name.replace('_', ' ')}" for name in COUNTS),
            ]
        )


def campaign(kills: int, seed: int, workers: int, policy: str | None = None) -> Result:
    """Kill at least `kills` lives, on databases of about thirty lives each. `policy` selects the actions with it."""
    one_database = partial(_one_database, actions_of(policy))
    return crews.campaign(Result(), Result, one_database, kills=kills, seed=seed, crews=workers)


def actions_of(policy: str | None) -> list[str]:
    """Return the names of the actions with a policy, or of all actions."""
    return [name for name in APP.actions if policy is None or name.partition(".")[0] == policy]


def _one_database(
    actions: list[str], home: Path, nth: int, kills: int, chance: random.Random, ways: list[str], result: Result
) -> None:
    with_new_tasks = min(kills, LIVES_WITH_NEW_TASKS)  # the later lives, which complete the tasks, are also killed
    with a_provider(home) as provider:
        _run_lives(home, provider, SHAPES[nth % len(SHAPES)], with_new_tasks, chance, ways, result, actions)
        send_in_thread(provider.port, quiet_request())
    if result.wrong:
        return
    verdict = check_in_process(home, lambda: check(home))
    result.wrong += [f"{wrong} ({home})" for wrong in verdict["wrong"]]
    result.found.update({name: verdict[name] for name in COUNTS})


def _run_lives(
    home: Path,
    provider: Provider,
    shape: tuple[str, int],
    with_new_tasks: int,
    chance: random.Random,
    ways: list[str],
    result: Result,
    actions: list[str],
) -> None:
    """Run one life after the other until everything is over. The first `with_new_tasks` lives accept new tasks."""
    specs: list[TriggerSpec] = []
    for number in range(1, LIVES_MAX):
        if number <= with_new_tasks:
            specs = [*(_random_task(f"{number}.{n}", chance, actions) for n in range(NEW_TASKS)), *specs]
        if not ways:
            ways.extend(chance.sample(WAYS, len(WAYS)))
        way = ways.pop() if number <= LIVES_PER_DATABASE else QUIET
        life = ActLife(
            folder=home,
            number=number,
            provider=provider,
            specs=tuple(specs),
            ends=way,
            at_pass=chance.randint(1, PASSES.get(Failpoint(way), 8)) if way in POINTS else chance.randint(1, 20),
            backend=shape[0],
            concurrency=shape[1],
        )
        pid = fork(run_life, life, live)
        if number > 1 and chance.random() < 0.3:
            _run_person_beside(life, chance, result)
        ended = wait(pid, chance.uniform(0.02, 0.2) if way == FROM_OUTSIDE else None)
        send_in_thread(provider.port, quiet_request(clock=0.0))
        if ended == -signal.SIGKILL:
            fault = life.killed_at.read_text() if life.killed_at.exists() else ""
            result.kills[fault or FROM_OUTSIDE] += 1
        elif ended != 0:
            result.wrong.append(f"life {number} ({way}, {shape}) ended with {ended}: {logged_errors(home)}")
            return
        if life.over.exists() and number > with_new_tasks:
            return
    result.wrong.append(f"{LIVES_MAX} lives were not enough ({home})")


def _run_person_beside(life: ActLife, chance: random.Random, result: Result) -> None:
    """Run a process beside the life in which a person answers questions. In most cases it is killed."""
    place = chance.choice([*POINTS_OF_PERSON, FROM_OUTSIDE])
    other = replace(life, number=1000 + life.number, ends=place, at_pass=chance.randint(1, 2))
    pid = fork(run_life, other, lambda one: run_person(one, 10))
    ended = wait(pid, chance.uniform(0.02, 0.1) if place == FROM_OUTSIDE else None)
    result.kills[PRODUCER] += ended == -signal.SIGKILL
    if ended not in (0, -signal.SIGKILL):
        result.wrong.append(f"the person beside life {life.number} ended with {ended}: {logged_errors(life.folder)}")


def _random_task(name: str, chance: random.Random, actions: list[str]) -> TriggerSpec:
    """Return a task of a random kind with random faults."""
    workflow = chance.choice(["single", "single", "twins", "crowd", "turns"])
    text = f"{name} {UNIMPORTANT}" if chance.random() < 0.1 else name
    if workflow == "crowd":
        payload: dict[str, Any] = {
            "text": text,
            "acts": [_random_act(chance, actions) for _ in range(chance.randint(2, 4))],
        }
    else:
        action, faults = _random_act(chance, actions)
        payload = {"text": text, "action": action, "faults": faults}
    return TriggerSpec(workflow=workflow, payload=payload, dedup_key=f"task:{name}", dedup_scope="ever")


def _random_act(chance: random.Random, actions: list[str]) -> tuple[str, list[str]]:
    """Return a random action, and faults for its first calls.

    Most cancellations are left out: a cancelled task would meet no further faults.
    """
    faults = chance.sample(FAULTS, chance.choice([0, 0, 1, 1, 1, 2, 3]))
    kept = [fault for fault in faults if fault.how != CANCEL or chance.random() < 0.3]
    return chance.choice(actions), [str(fault) for fault in kept]


if __name__ == "__main__":
    sys.exit(command(__doc__, campaign, kills=500, only=OnUnknown))
