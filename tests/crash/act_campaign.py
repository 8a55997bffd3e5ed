"""The kill campaign of irreversible actions: many concurrent tasks, random kills and other faults.

    python -m tests.crash.act_campaign --kills 2000 --seed 2026 [--only POLICY]

Each life accepts new tasks of every kind and continues the tasks of earlier lives. It ends by SIGKILL at a named place,
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
from tests.crash.act_checker import COUNTED, check
from tests.crash.act_child import APP, POINTS, POINTS_BESIDE, ActLife, beside, live
from tests.crash.act_client import ask_in_thread, quiet
from tests.crash.act_person import SHRUGS
from tests.crash.act_provider import Provider, a_provider
from tests.crash.child import FROM_OUTSIDE, PRODUCER, QUIET
from tests.crash.crews import check_in_process, command, logged_errors, run_life
from tests.crash.forks import fork, wait
from tests.crash.task_child import LEAVES

LIVES_WITH_NEW_TASKS = 20
LIVES_A_DATABASE = 30
LIVES_AT_MOST = 300
NEW_TASKS = 4

SHAPES = (("asyncio", 16), ("trio", 16), ("asyncio", 1), ("trio", 4))
"""Backend and concurrency of one database after the other."""

AROUND_A_CALL = (
    Failpoint.INTENT_COMMITTED,
    Failpoint.CALL_MARKED,
    Failpoint.PROVIDER_ANSWERED,
    Failpoint.ACTIVITY_SETTLED,
)
WAYS = (*POINTS, *AROUND_A_CALL, *(FROM_OUTSIDE,) * 8, LEAVES, QUIET)
"""How lives end, unless one of their tasks ends them before; what stands here more than once does so more often."""

PASSES = {
    Failpoint.RECLAIM_COMMITTED: 1,
    Failpoint.EMIT_COMMITTED: 1,
    Failpoint.WRITER_FLUSHING: 20,
    Failpoint.WRITER_FLUSHED: 20,
}
"""At which of the first passes of a place a life may die."""

FAULTS = [
    *(Fault(how, at) for how in (TIME_OUT, CANCEL, STOP) for at in (WRITTEN, REWRITTEN)),
    *(Fault(how, where) for how in HOW for where in (*WHERE, IGNORED, LATE)),
    *(Fault(BUSY, ANSWERED), Fault(REFUSED, ANSWERED)),
]


@dataclass(slots=True)
class Result(crews.CountedResult):
    """What a campaign came to. `kills` by what a life died of, `found` by what the checker counts."""

    def table(self) -> str:
        return "\n".join(
            [
                *(f"{of:<20}{self.kills[of]:>7}" for of in sorted(self.kills)),
                f"{'killed':<20}{sum(self.kills.values()):>7} on {self.databases} databases in {self.seconds:.1f} s",
                ", ".join(f"{self.found[name]} {name.replace('_', ' ')}" for name in COUNTED),
            ]
        )


def campaign(kills: int, seed: int, workers: int, policy: str | None = None) -> Result:
    """Kill at least this often, on databases of about thirty lives each. `policy`: only its actions are taken."""
    one_database = partial(_one_database, actions_of(policy))
    return crews.campaign(Result(), Result, one_database, kills=kills, seed=seed, crews=workers)


def actions_of(policy: str | None) -> list[str]:
    """The actions of a policy, which stand for a class of providers; of None all."""
    return [name for name in APP.actions if policy is None or name.partition(".")[0] == policy]


def _one_database(
    actions: list[str], home: Path, nth: int, kills: int, chance: random.Random, ways: list[str], result: Result
) -> None:
    with_new_tasks = min(kills, LIVES_WITH_NEW_TASKS)  # the lives that end these tasks are killed as often
    with a_provider(home) as provider:
        _lives(home, provider, SHAPES[nth % len(SHAPES)], with_new_tasks, chance, ways, result, actions)
        ask_in_thread(provider.port, quiet())
    if result.wrong:
        return
    verdict = check_in_process(home, lambda: check(home))
    result.wrong += [f"{wrong} ({home})" for wrong in verdict["wrong"]]
    result.found.update({name: verdict[name] for name in COUNTED})


def _lives(
    home: Path,
    provider: Provider,
    shape: tuple[str, int],
    with_new_tasks: int,
    chance: random.Random,
    ways: list[str],
    result: Result,
    actions: list[str],
) -> None:
    """One life after the other, until everything is over. The first `with_new_tasks` of them accept new tasks."""
    specs: list[TriggerSpec] = []
    for number in range(1, LIVES_AT_MOST):
        if number <= with_new_tasks:
            specs = [*(_a_task(f"{number}.{n}", chance, actions) for n in range(NEW_TASKS)), *specs]
        if not ways:
            ways.extend(chance.sample(WAYS, len(WAYS)))
        way = ways.pop() if number <= LIVES_A_DATABASE else QUIET
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
            _somebody_beside(life, chance, result)
        ended = wait(pid, chance.uniform(0.02, 0.2) if way == FROM_OUTSIDE else None)
        ask_in_thread(provider.port, quiet(clock=0.0))
        if ended == -signal.SIGKILL:
            of = life.died.read_text() if life.died.exists() else ""
            result.kills[of or FROM_OUTSIDE] += 1
        elif ended != 0:
            result.wrong.append(f"life {number} ({way}, {shape}) ended with {ended}: {logged_errors(home)}")
            return
        if life.over.exists() and number > with_new_tasks:
            return
    result.wrong.append(f"{LIVES_AT_MOST} lives were not enough ({home})")


def _somebody_beside(life: ActLife, chance: random.Random, result: Result) -> None:
    """A person answers at a command line meanwhile, which is killed on the way, most of the time."""
    place = chance.choice([*POINTS_BESIDE, FROM_OUTSIDE])
    other = replace(life, number=1000 + life.number, ends=place, at_pass=chance.randint(1, 2))
    pid = fork(run_life, other, lambda one: beside(one, 10))
    ended = wait(pid, chance.uniform(0.02, 0.1) if place == FROM_OUTSIDE else None)
    result.kills[PRODUCER] += ended == -signal.SIGKILL
    if ended not in (0, -signal.SIGKILL):
        result.wrong.append(f"the person beside life {life.number} ended with {ended}: {logged_errors(life.folder)}")


def _a_task(name: str, chance: random.Random, actions: list[str]) -> TriggerSpec:
    """A task of any kind, and what is done to it."""
    workflow = chance.choice(["single", "single", "twins", "crowd", "turns"])
    text = f"{name} {SHRUGS}" if chance.random() < 0.1 else name
    if workflow == "crowd":
        payload: dict[str, Any] = {
            "text": text,
            "acts": [_an_act(chance, actions) for _ in range(chance.randint(2, 4))],
        }
    else:
        action, faults = _an_act(chance, actions)
        payload = {"text": text, "action": action, "faults": faults}
    return TriggerSpec(workflow=workflow, payload=payload, dedup_key=f"task:{name}", dedup_scope="ever")


def _an_act(chance: random.Random, actions: list[str]) -> tuple[str, list[str]]:
    """Any of these actions, and what becomes of its first calls. Few tasks are cancelled: what has ended is in nobody's
    way."""
    faults = chance.sample(FAULTS, chance.choice([0, 0, 1, 1, 1, 2, 3]))
    kept = [fault for fault in faults if fault.how != CANCEL or chance.random() < 0.3]
    return chance.choice(actions), [str(fault) for fault in kept]


if __name__ == "__main__":
    sys.exit(command(__doc__, campaign, kills=500, only=OnUnknown))
