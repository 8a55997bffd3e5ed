"""The fault matrix of irreversible actions: one call, cut off at every place, for each policy and kind of provider.

    python -m tests.crash.act_matrix --some        # as the normal tests do
    python -m tests.crash.act_matrix               # each cell
    python -m tests.crash.act_matrix --thorough    # on both event loops, in every shape, and more faults

Each cell is a task of its own with one fault. The engine, the policy and a person who reads the provider's book act
until the task has ended. The result is read from that book and the ledger.

The tables it prints are those of `docs/explanation/irreversible-actions.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import anyio

from craftcore import App, TriggerSpec
from craftcore.errors import ConfigInvalid
from tests.crash.act_app import (
    AFTER,
    ANSWERED,
    BEFORE,
    BUSY,
    CALLED,
    CANCEL,
    CRASH,
    EFFECT,
    HALF,
    HOW,
    IGNORED,
    LATE,
    PAIRS,
    REFUSED,
    REPLY,
    RESET,
    REWRITTEN,
    STOP,
    TIME_OUT,
    WHERE,
    WRITTEN,
    Deeds,
    Fault,
    Pair,
    declare,
)
from tests.crash.act_checker import COUNTED, check
from tests.crash.act_child import ActLife, live
from tests.crash.act_client import ask_in_thread, quiet
from tests.crash.act_provider import Kind, Provider, a_provider
from tests.crash.crews import check_in_process, logged_errors, run_life, to_json
from tests.crash.forks import fork, prepare_forks, wait
from tests.crash.task_matrix import memory

PLACES = {
    BEFORE: "before INTENT",
    CALLED: "after INTENT",
    HALF: "request half sent",
    EFFECT: "effect, no reply",
    REPLY: "reply, no DONE",
    AFTER: "after DONE",
}

WAYS = {
    CRASH: "The process is killed",
    TIME_OUT: "The call, or around it the attempt, times out",
    CANCEL: "A person cancels the task",
    RESET: "The connection is reset (before INTENT and after DONE: another one, which the workflow used)",
    STOP: "The engine is stopped, and goes on later",
}

PROVIDERS = {
    Kind.DEDUPES: "dedupes",
    Kind.FORGETS: "does not",
    Kind.WINDOWED: "inside its window",
    Kind.BEYOND: "beyond its window",
    Kind.RECONCILABLE: "reconcilable",
    Kind.UNSURE: "reconcilable that cannot tell",
    Kind.SLOW: "reconcilable that acts late",
}

REFUSED_AT_REGISTRATION = "refused at registration"

IN_THE_TABLES = [(Fault(how, where),) for how in HOW for where in WHERE]

DOUBT = Fault(RESET, EFFECT)

BESIDE = [
    *((DOUBT, Fault(how, ANSWERED)) for how in (BUSY, REFUSED)),
    *(
        plan
        for how in (TIME_OUT, CANCEL, STOP)
        for plan in [(Fault(how, WRITTEN),), *((DOUBT, Fault(how, where)) for where in (BEFORE, WRITTEN, REWRITTEN))]
    ),
]
"""The second call comes to nothing, where the first has left a doubt; and while INTENT is on its way to disk."""

MORE = [
    *((Fault(how, where),) for how in (CRASH, TIME_OUT, CANCEL, STOP) for where in (IGNORED, LATE)),
    *((DOUBT, Fault(how, where)) for how in HOW for where in (CALLED, HALF, EFFECT, REPLY, AFTER)),
]
"""In the thorough matrix: the provider takes the whole request and does nothing, or does it when the caller is gone; or
the second call fails, too."""

SHAPES = (("asyncio", 4), ("trio", 4), ("asyncio", 1), ("trio", 1))

SOME = 8
"""One of so many cells of each row is taken by `--some`, and in the next row the one beside it."""

LIVES_MAX = 2000


class Cell(NamedTuple):
    """What happens to the one act of a task, one after the other."""

    pair: Pair
    faults: tuple[Fault, ...]

    @property
    def name(self) -> str:
        return f"{self.pair.action}:{'+'.join(map(str, self.faults))}"

    def spec(self) -> TriggerSpec:
        payload = {"action": self.pair.action, "text": self.name, "faults": [*map(str, self.faults)]}
        return TriggerSpec(workflow="single", payload=payload, dedup_key=self.name, dedup_scope="ever")


@dataclass(slots=True)
class Result:
    """What it came to. `cells`: what became of each, by its name; `found`: what the checker counts."""

    seconds: float = 0.0
    kills: int = 0
    stops: int = 0
    cells: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    found: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: dict[str, Any]) -> None:
        self.kills += other["kills"]
        self.stops += other["stops"]
        self.found.update(other["found"])
        self.wrong += other["wrong"]
        for name, outcome in other["cells"].items():
            if self.cells.setdefault(name, outcome) != outcome and WRITTEN not in name:  # who is first wins there
                self.wrong.append(f"{name} came to {outcome!r} in one shape and to {self.cells[name]!r} in another")

    def last_line(self) -> str:
        return (
            f"{len(self.cells)} cells, {self.kills} kills, {self.found['doubts']} times in doubt: "
            f"{self.found['duplicates']} silent duplicates, {self.found['losses']} silent losses"
        )


def tables(cells: Mapping[str, str], refused: Mapping[str, str]) -> str:
    """As they stand in the docs: for each way to fail, a line for each policy, and for providers that fare alike."""
    return "\n\n".join(f"### {said}\n\n{_table(how, cells, refused)}" for how, said in WAYS.items())


def read_tables(text: str) -> dict[str, str]:
    """Return what the tables in the docs say of each cell, by its name."""
    found: dict[str, str] = {}
    for how, section in zip(WAYS, text.split("### ")[1:], strict=True):
        for line in section.strip().splitlines()[4:]:
            policy, providers, *fares = (column.strip() for column in line.strip("| ").split("|"))
            alike = [pair for pair in PAIRS if f"`{pair.policy.name}`" == policy]
            for pair in alike if fares != [REFUSED_AT_REGISTRATION] else []:
                if PROVIDERS[pair.kind] in providers.split(", "):
                    names = (Cell(pair, (Fault(how, where),)).name for where in WHERE)
                    found |= zip(names, fares, strict=True)
    return found


def _table(how: str, cells: Mapping[str, str], refused: Mapping[str, str]) -> str:
    alike: dict[tuple[str, ...], list[str]] = {}
    for pair in PAIRS:
        fares = [cells[Cell(pair, (Fault(how, where),)).name] for where in WHERE] if pair.action not in refused else []
        fares = fares or [REFUSED_AT_REGISTRATION] + [""] * (len(PLACES) - 1)
        alike.setdefault((f"`{pair.policy.name}`", *fares), []).append(PROVIDERS[pair.kind])
    head = ["policy", "provider", *PLACES.values()]
    rows = [[policy, ", ".join(providers), *fares] for (policy, *fares), providers in alike.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def matrix(*, thorough: bool, workers: int, only: str | None = None, some: bool = False) -> Result:
    """Every cell, an eighth of them, or those with this in their name; what went wrong is kept on disk."""
    began = time.monotonic()
    prepare_forks()
    result = Result()
    with tempfile.TemporaryDirectory(prefix="craftcore-acts-", dir=memory()) as folder:
        home = Path(folder)
        result.refused = _refused(home)
        jobs = [
            (shape, cells[n::workers])
            for shape in (SHAPES if thorough else SHAPES[:1])
            for cells in [_cells(result.refused, only, thorough=thorough, some=some)]
            for n in range(workers)
        ]
        at_work = []
        for crew in range(workers):
            answer = home / f"answer-{crew}.json"
            mine = jobs[crew::workers]
            at_work.append((fork(_crew, home / f"crew-{crew}", mine, answer), answer))
        for process, answer in at_work:
            status = os.waitpid(process, 0)[1]
            if status or not answer.exists():
                result.wrong.append(f"a crew of the matrix ended with wait status {status}")
            else:
                result.add(json.loads(answer.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-acts-kept-"))
            shutil.copytree(home, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.bell"))
            result.wrong.append(f"kept in {kept}")
    result.seconds = time.monotonic() - began
    return result


def _cells(refused: dict[str, str], only: str | None, *, thorough: bool, some: bool) -> list[Cell]:
    """All that may be declared, and suffered; or an eighth of it, with each row of faults and each pair."""
    plans = [*IN_THE_TABLES, *BESIDE, *(MORE if thorough else [])]
    pairs = [pair for pair in PAIRS if pair.action not in refused]
    cells = [
        Cell(pair, plan)
        for row, plan in enumerate(plans)
        for column, pair in enumerate(pairs)
        if not some or (row + column) % SOME == 0
    ]
    return [cell for cell in cells if only is None or only in f"{cell.name}$"]


def _refused(home: Path) -> dict[str, str]:
    """What may not be declared, and what is said of it: at its declaration, or when the app is started."""
    answer = home / "refused.json"
    assert wait(fork(_try_each, home, answer), None) == 0
    refused: dict[str, str] = json.loads(answer.read_text())
    return refused


def _try_each(home: Path, answer: Path) -> None:
    """Declare each pair in an app of its own. They share a database, which takes most of the time to make."""
    refused = {}
    for pair in PAIRS:
        app = App("tried")
        try:
            declare(app, Deeds(), pair)
            anyio.run(_start, app, home / "tried.db")
        except ConfigInvalid as error:
            refused[pair.action] = error.message
    answer.write_text(json.dumps(refused))


async def _start(app: App, db: Path) -> None:
    async with app.running(db):
        pass


def _crew(home: Path, jobs: list[tuple[tuple[str, int], list[Cell]]], answer: Path) -> None:
    result = Result()
    for n, (shape, cells) in enumerate(jobs):
        folder = home / str(n)
        folder.mkdir(parents=True)
        with a_provider(folder) as provider:
            see_through(folder, provider, shape, [cell.spec() for cell in cells], result)
        if result.wrong:
            break
    answer.write_text(to_json(result))


def see_through(
    folder: Path, provider: Provider, shape: tuple[str, int], specs: Sequence[TriggerSpec], result: Result
) -> None:
    """One life after the other, until all tasks are over: each fault that ends a life is followed by another one."""
    for number in range(1, LIVES_MAX):
        life = ActLife(
            folder=folder,
            number=number,
            provider=provider,
            specs=tuple(specs),
            one_by_one=True,
            backend=shape[0],
            concurrency=shape[1],
        )
        ended = wait(fork(run_life, life, live), None)
        ask_in_thread(provider.port, quiet(clock=0.0))
        result.kills += ended == -signal.SIGKILL
        if ended not in (0, -signal.SIGKILL):
            result.wrong.append(f"life {number} ({shape}, {folder}) ended with {ended}: {logged_errors(folder)}")
            return
        if life.over.exists():
            break
        result.stops += ended == 0
    ask_in_thread(provider.port, quiet())
    verdict = check_in_process(folder, lambda: check(folder))
    result.wrong += [f"{shape}: {wrong}" for wrong in verdict["wrong"]]
    result.cells.update(verdict["outcomes"])
    result.found.update({name: verdict[name] for name in COUNTED})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thorough", action="store_true", help="on both event loops, and more kinds of faults")
    parser.add_argument("--some", action="store_true", help="an eighth of the cells, always the same")
    parser.add_argument("--only", help="cells with this in their name, which ends with a $")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the result for another program")
    args = parser.parse_args()
    result = matrix(thorough=args.thorough, workers=args.workers, only=args.only, some=args.some)
    print(
        tables(result.cells, result.refused)
        if args.only is None and not args.some
        else "\n".join(f"{name}  {result.cells[name]}" for name in result.cells)
    )
    for wrong in result.wrong:
        print(f"WRONG: {wrong}")
    print()
    print(result.last_line())
    if args.json:
        args.json.write_text(to_json(result))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
