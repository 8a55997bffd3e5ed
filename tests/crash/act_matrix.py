"""The fault matrix of irreversible actions: one call, cut off at every place, for each policy and kind of provider.

    python -m tests.crash.act_matrix --sample      # as the normal tests do
    python -m tests.crash.act_matrix               # each cell
    python -m tests.crash.act_matrix --thorough    # on both event loops, in every shape, and more faults

Each cell is a separate task with one fault. The engine, the policy and a person who reads the provider's book act
until the task has ended. The result is read from that book and from the ledger.

The printed tables are those of `docs/explanation/irreversible-actions.md`.
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
    ActRunner,
    Fault,
    Pair,
    declare,
)
from tests.crash.act_checker import COUNTS, check
from tests.crash.act_child import ActLife, live
from tests.crash.act_client import quiet_request, send_in_thread
from tests.crash.act_provider import Kind, Provider, a_provider
from tests.crash.crews import check_in_process, logged_errors, run_life, to_json
from tests.crash.forks import fork, prepare_forks, wait
from tests.crash.task_matrix import memory_folder

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
    TIME_OUT: "The call, or the attempt around it, times out",
    CANCEL: "A person cancels the task",
    RESET: "The connection is reset (before INTENT and after DONE: another connection of the workflow)",
    STOP: "The engine is stopped, and continues later",
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

TABLE_PLANS = [(Fault(how, where),) for how in HOW for where in WHERE]

DOUBT = Fault(RESET, EFFECT)

OTHER_PLANS = [
    *((DOUBT, Fault(how, ANSWERED)) for how in (BUSY, REFUSED)),
    *(
        plan
        for how in (TIME_OUT, CANCEL, STOP)
        for plan in [(Fault(how, WRITTEN),), *((DOUBT, Fault(how, where)) for where in (BEFORE, WRITTEN, REWRITTEN))]
    ),
]
"""Faults of INTENT on its way to disk, and faults of the second call after a doubt about the first call."""

THOROUGH_PLANS = [
    *((Fault(how, where),) for how in (CRASH, TIME_OUT, CANCEL, STOP) for where in (IGNORED, LATE)),
    *((DOUBT, Fault(how, where)) for how in HOW for where in (CALLED, HALF, EFFECT, REPLY, AFTER)),
]
"""The further faults of the thorough matrix.

The provider has the whole request, and has no effect, or has the effect when the caller has left. Or the second call
fails after a doubt about the first call.
"""

SHAPES = (("asyncio", 4), ("trio", 4), ("asyncio", 1), ("trio", 1))

SAMPLE_PERIOD = 8
"""One of this many cells of each row is in the sample, shifted by one cell in each row."""

LIVES_MAX = 2000


class Cell(NamedTuple):
    """The faults of the single act of a task, in their order."""

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
    """The result of the matrix: the outcome of each cell by its name, and the counts of the checker in `found`."""

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
            if self.cells.setdefault(name, outcome) != outcome and WRITTEN not in name:  # a race decides these cells
                self.wrong.append(f"{name} has the outcome {outcome!r}, but {self.cells[name]!r} in another shape")

    def last_line(self) -> str:
        return (
            f"{len(self.cells)} cells, {self.kills} kills, {self.found['doubts']} times in doubt: "
            f"{self.found['duplicates']} silent duplicates, {self.found['losses']} silent losses"
        )


def tables(cells: Mapping[str, str], refused: Mapping[str, str]) -> str:
    """Return the tables of the docs: one for each kind of fault, with a row for each policy and equal providers."""
    return "\n\n".join(f"### {title}\n\n{_table(how, cells, refused)}" for how, title in WAYS.items())


def read_tables(text: str) -> dict[str, str]:
    """Return the outcome of each cell in the tables of the docs, by the name of the cell."""
    found: dict[str, str] = {}
    for how, section in zip(WAYS, text.split("### ")[1:], strict=True):
        for line in section.strip().splitlines()[4:]:
            policy, providers, *outcomes = (column.strip() for column in line.strip("| ").split("|"))
            pairs_of_policy = [pair for pair in PAIRS if f"`{pair.policy.name}`" == policy]
            for pair in pairs_of_policy if outcomes != [REFUSED_AT_REGISTRATION] else []:
                if PROVIDERS[pair.kind] in providers.split(", "):
                    names = (Cell(pair, (Fault(how, where),)).name for where in WHERE)
                    found |= zip(names, outcomes, strict=True)
    return found


def _table(how: str, cells: Mapping[str, str], refused: Mapping[str, str]) -> str:
    providers_by_row: dict[tuple[str, ...], list[str]] = {}
    for pair in PAIRS:
        outcomes = (
            [cells[Cell(pair, (Fault(how, where),)).name] for where in WHERE] if pair.action not in refused else []
        )
        outcomes = outcomes or [REFUSED_AT_REGISTRATION] + [""] * (len(PLACES) - 1)
        providers_by_row.setdefault((f"`{pair.policy.name}`", *outcomes), []).append(PROVIDERS[pair.kind])
    head = ["policy", "provider", *PLACES.values()]
    rows = [[policy, ", ".join(providers), *outcomes] for (policy, *outcomes), providers in providers_by_row.items()]
    return "\n".join(f"| {' | '.join(row)} |" for row in [head, ["---"] * len(head), *rows])


def matrix(*, thorough: bool, workers: int, only: str | None = None, sample: bool = False) -> Result:
    """Run every cell, the sample, or the cells whose name contains `only`. The files are kept when a check fails."""
    started_at = time.monotonic()
    prepare_forks()
    result = Result()
    with tempfile.TemporaryDirectory(prefix="craftcore-acts-", dir=memory_folder()) as folder:
        home = Path(folder)
        result.refused = _refused(home)
        jobs = [
            (shape, cells[index::workers])
            for shape in (SHAPES if thorough else SHAPES[:1])
            for cells in [_cells(result.refused, only, thorough=thorough, sample=sample)]
            for index in range(workers)
        ]
        crew_processes = []
        for crew in range(workers):
            result_file = home / f"answer-{crew}.json"
            own_jobs = jobs[crew::workers]
            crew_processes.append((fork(_crew, home / f"crew-{crew}", own_jobs, result_file), result_file))
        for process, result_file in crew_processes:
            status = os.waitpid(process, 0)[1]
            if status or not result_file.exists():
                result.wrong.append(f"a crew of the matrix ended with wait status {status}")
            else:
                result.add(json.loads(result_file.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-acts-kept-"))
            shutil.copytree(home, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.bell"))
            result.wrong.append(f"kept in {kept}")
    result.seconds = time.monotonic() - started_at
    return result


def _cells(refused: dict[str, str], only: str | None, *, thorough: bool, sample: bool) -> list[Cell]:
    """Return a cell for each valid pair and each plan of faults, or a sample with every plan and every pair."""
    plans = [*TABLE_PLANS, *OTHER_PLANS, *(THOROUGH_PLANS if thorough else [])]
    pairs = [pair for pair in PAIRS if pair.action not in refused]
    cells = [
        Cell(pair, plan)
        for row, plan in enumerate(plans)
        for column, pair in enumerate(pairs)
        if not sample or (row + column) % SAMPLE_PERIOD == 0
    ]
    return [cell for cell in cells if only is None or only in f"{cell.name}$"]


def _refused(home: Path) -> dict[str, str]:
    """Return the invalid pairs by action, with the message of the declaration or of the start of the app."""
    result_file = home / "refused.json"
    assert wait(fork(_declare_each, home, result_file), None) == 0
    refused: dict[str, str] = json.loads(result_file.read_text())
    return refused


def _declare_each(home: Path, result_file: Path) -> None:
    """Declare each pair in its own app. The apps share a database, whose creation takes most of the time."""
    refused = {}
    for pair in PAIRS:
        app = App("tried")
        try:
            declare(app, ActRunner(), pair)
            anyio.run(_start, app, home / "tried.db")
        except ConfigInvalid as error:
            refused[pair.action] = error.message
    result_file.write_text(json.dumps(refused))


async def _start(app: App, db: Path) -> None:
    async with app.running(db):
        pass


def _crew(home: Path, jobs: list[tuple[tuple[str, int], list[Cell]]], result_file: Path) -> None:
    result = Result()
    for index, (shape, cells) in enumerate(jobs):
        folder = home / str(index)
        folder.mkdir(parents=True)
        with a_provider(folder) as provider:
            run_to_end(folder, provider, shape, [cell.spec() for cell in cells], result)
        if result.wrong:
            break
    result_file.write_text(to_json(result))


def run_to_end(
    folder: Path, provider: Provider, shape: tuple[str, int], specs: Sequence[TriggerSpec], result: Result
) -> None:
    """Run one life after the other until all tasks have ended. A fault that ends a life leads to another life."""
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
        send_in_thread(provider.port, quiet_request(clock=0.0))
        result.kills += ended == -signal.SIGKILL
        if ended not in (0, -signal.SIGKILL):
            result.wrong.append(f"life {number} ({shape}, {folder}) ended with {ended}: {logged_errors(folder)}")
            return
        if life.over.exists():
            break
        result.stops += ended == 0
    send_in_thread(provider.port, quiet_request())
    verdict = check_in_process(folder, lambda: check(folder))
    result.wrong += [f"{shape}: {wrong}" for wrong in verdict["wrong"]]
    result.cells.update(verdict["outcomes"])
    result.found.update({name: verdict[name] for name in COUNTS})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--thorough", action="store_true", help="run on both event loops, with more kinds of faults")
    parser.add_argument("--sample", action="store_true", help="run an eighth of the cells, always the same")
    parser.add_argument("--only", help="run the cells whose name, followed by $, contains this text")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the result for another program")
    args = parser.parse_args()
    result = matrix(thorough=args.thorough, workers=args.workers, only=args.only, sample=args.sample)
    print(
        tables(result.cells, result.refused)
        if args.only is None and not args.sample
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
