"""The kill matrix of tasks: small scenarios, each cut off at every point it passes, and then at a second point.

    python -m tests.crash.task_matrix --part 40 --pairs 1      # as the normal tests do
    python -m tests.crash.task_matrix --thorough --pairs all   # every pass of every point, and every pair of them

An uninterrupted life shows how each scenario ends. A second life is stopped (SIGSTOP) at every pass of every point,
and its files are copied meanwhile. The kernel keeps the same bytes of a stopped process as of a killed one, so each
copy is the state after one kill. A life boots the copy and completes the scenario, and the checker checks it. For a
pair, that life is also stopped, and another life continues from its files.

A relay uses real kills: every life on one database is killed at the same point, until the scenario has ended.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

from craftcore.config import Config
from craftcore.failpoints import Failpoint
from craftcore.services import Services
from tests.crash.child import QUIET
from tests.crash.crews import logged_errors, run_life, to_json
from tests.crash.forks import fork, prepare_forks, wait
from tests.crash.task_checker import check
from tests.crash.task_child import COUNTS_PASSES, KILL_PLACES, STOPS_EVERYWHERE, TaskLife, live
from tests.crash.task_outside import LONG_CHAT, SCENARIOS, Scenario

FOUND = (
    *("tasks", "turns", "steps", "waits", "answers", "messages", "children"),
    *("cut_off", "run_again", "poisoned"),
)

STRIDE: dict[str, int] = {
    Failpoint.WRITER_FLUSHING: 2,
    Failpoint.WRITER_FLUSHED: 2,
    Failpoint.EMIT_COMMITTED: 3,
    Failpoint.CLAIM_COMMITTED: 3,
    Failpoint.START_COMMITTED: 3,
    Failpoint.STEP_COMMITTED: 3,
    Failpoint.SETTLE_BEGUN: 3,
    Failpoint.SETTLE_COMMITTED: 3,
}
"""The normal run takes every second or every third pass of these places.

Before a commit, the database is as after the previous commit. So every second pass of the two points of the writer
covers each state of the database once. At the other places, the database has not changed since the previous point, and
no user code has run.
"""

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

SHAPES = (("asyncio", 4), ("trio", 1), ("trio", 4), ("asyncio", 1))
"""The backends and concurrencies: one for each scenario, or all of them."""

ALL = -1

ALL_SCENARIOS = (*SCENARIOS, LONG_CHAT)

RELAY_LIVES_MAX = 200
"""The maximum number of lives in a relay. A relay that needs more does not end."""


class Spot(NamedTuple):
    """One pass of a place, by its number."""

    place: str
    at_pass: int


class Job(NamedTuple):
    """The work of a crew with one scenario: every cut of it, or a relay at one place."""

    scenario: int
    shape: tuple[str, int]
    relay: str | None


class Plan(NamedTuple):
    """The part of the matrix that one crew runs.

    part   one of this many cuts is taken, and each place at least once
    pairs  the number of cuts of a scenario that a second cut follows at a random place; ALL: all cuts, at each place
    """

    thorough: bool
    part: int
    pairs: int
    places: Sequence[str]
    crew: int
    crews: int

    def takes(self, spot: Spot, scenario: str, first_places: Sequence[str]) -> bool:
        """Return whether this crew takes the spot.

        The name of the spot decides, because lives pass points unequally often. `first_places` are the places
        that this scenario passes and no scenario before it.
        """
        stride = 1 if self.thorough else STRIDE.get(spot.place, 1)
        index, remainder = divmod(spot.at_pass - 1, stride)
        is_first = spot.at_pass == 1 and spot.place in first_places
        if not is_first and crc32(f"{scenario} {spot.place} {spot.at_pass}".encode()) % self.part:
            return False
        return (
            spot.place in self.places
            and not remainder
            and (KILL_PLACES.index(spot.place) + index) % self.crews == self.crew
        )


class Baseline(NamedTuple):
    """The passes of an uninterrupted life, and the end of its scenario."""

    passes: dict[str, int]
    ending: Any
    first_places: Sequence[str] = ()


NO_BASELINE = Baseline({}, None)


@dataclass(slots=True)
class Result:
    """The result of the matrix: the cuts by their first place, and the kills of the relays."""

    seconds: float = 0.0
    pairs: int = 0
    relays: int = 0
    cuts: Counter[str] = field(default_factory=Counter)
    kills: Counter[str] = field(default_factory=Counter)
    found: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def add(self, other: dict[str, Any]) -> None:
        self.pairs += other["pairs"]
        self.relays += other["relays"]
        for name in ("cuts", "kills", "found"):
            getattr(self, name).update(other[name])
        self.wrong += other["wrong"]

    def table(self) -> str:
        return "\n".join(
            [
                f"{'':<20}{'cut off':>8}{'killed in relays':>18}",
                *(f"{place!s:<20}{self.cuts[place]:>8}{self.kills[place]:>18}" for place in KILL_PLACES),
                f"{'all':<20}{sum(self.cuts.values()):>8}{sum(self.kills.values()):>18}",
                f"{self.pairs} of them cut off twice, {self.relays} relays, in {self.seconds:.1f} s",
                ", ".join(f"{self.found[name]} {name.replace('_', ' ')}" for name in FOUND),
            ]
        )


def matrix(
    *,
    thorough: bool,
    pairs: int,
    seed: int,
    workers: int,
    only: str | None = None,
    places: Sequence[str] = KILL_PLACES,
    part: int = 1,
) -> Result:
    """Run the matrix, or its part for one scenario or some places. The files are kept when a check fails."""
    started_at = time.monotonic()
    prepare_forks()
    result = Result()
    with tempfile.TemporaryDirectory(prefix="craftcore-matrix-", dir=memory_folder()) as folder:
        home = Path(folder)
        _create_database(home / "empty.db")
        baselines = [
            _run_uninterrupted(home / f"whole-{n}", home, scenario, result)
            if only in (None, scenario.name)
            else NO_BASELINE
            for n, scenario in enumerate(ALL_SCENARIOS)
        ]
        baselines = [*_add_first_places(baselines)]
        crew_processes = []
        for crew in range(0 if result.wrong else workers):
            result_file = home / f"answer-{crew}.json"
            plan = Plan(thorough, part, pairs, places, crew, workers)
            jobs = [
                job
                for job in _jobs(baselines, thorough=thorough, part=part)
                if only in (None, ALL_SCENARIOS[job.scenario].name)
            ]
            crew_processes.append(
                (fork(_crew, home / f"crew-{crew}", home, jobs, baselines, plan, seed + crew, result_file), result_file)
            )
        for process, result_file in crew_processes:
            status = os.waitpid(process, 0)[1]
            if status or not result_file.exists():
                result.wrong.append(f"a crew of the matrix ended with wait status {status}")
            else:
                result.add(json.loads(result_file.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-matrix-kept-"))
            shutil.copytree(home, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.bell"))
            result.wrong.append(f"kept in {kept}, seed {seed}")
    result.seconds = time.monotonic() - started_at
    return result


def _add_first_places(baselines: Sequence[Baseline]) -> Iterator[Baseline]:
    earlier: set[str] = set()
    for baseline in baselines:
        yield baseline._replace(first_places=sorted({*baseline.passes} - earlier))
        earlier |= {*baseline.passes}


def memory_folder() -> str | None:
    """Return a folder in memory, if there is one. A killed process leaves the same files there, without a disk wait."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _jobs(baselines: Sequence[Baseline], *, thorough: bool, part: int) -> list[Job]:
    """Return a job for each scenario, and a relay of the long chat at every place.

    The crews share the cuts of a scenario, and the relays.
    """
    jobs = [
        Job(number, shape, None)
        for number in range(len(ALL_SCENARIOS if thorough else SCENARIOS))
        for shape in (SHAPES if thorough else [SHAPES[number % 4]])
    ]
    long_number = len(SCENARIOS)
    # A place that is passed once is passed in the boot: a life that is killed there makes no progress.
    passed = [place for place in KILL_PLACES if baselines[long_number].passes.get(place, 0) > 1]
    return [*jobs, *(Job(long_number, SHAPES[n % 4], place) for n, place in enumerate(passed) if n % part == 0)]


def _create_database(db: Path) -> None:
    """Create an empty database, which each case copies."""

    def create() -> None:
        core = Services(db, Config())
        core.prepare()
        core.close()

    assert wait(fork(create), None) == 0


def _run_uninterrupted(home: Path, root: Path, scenario: Scenario, result: Result) -> Baseline:
    case = Case(home, scenario, SHAPES[0], result)
    case.begin(root)
    ending = case.run_to_end(1, ends=COUNTS_PASSES)
    return Baseline(json.loads(case.life(1).passes.read_text()) if ending else {}, ending)


def _crew(
    home: Path, root: Path, jobs: list[Job], baselines: list[Baseline], plan: Plan, seed: int, result_file: Path
) -> None:
    result = Result()
    chance = random.Random(seed)
    relays = [job for job in jobs if job.relay]
    for n, job in enumerate(jobs):
        case = Case(home / str(n), ALL_SCENARIOS[job.scenario], job.shape, result)
        if not job.relay:
            case.begin(root)
            has_pairs = plan.part == 1 or n % plan.crews == plan.crew
            case.cut_everywhere(baselines[job.scenario], plan if has_pairs else plan._replace(pairs=0), chance)
        elif relays.index(job) % plan.crews == plan.crew:
            case.begin(root)
            case.relay(job.relay, baselines[job.scenario], chance)
        if result.wrong:
            break
        shutil.rmtree(case.home, ignore_errors=True)
    result_file.write_text(to_json(result))


class Case:
    """One database and the lives on it, one after the other."""

    def __init__(self, home: Path, scenario: Scenario, shape: tuple[str, int], result: Result) -> None:
        self.home, self.scenario, self.shape, self.result = home, scenario, shape, result

    def begin(self, root: Path) -> None:
        self.home.mkdir(parents=True)
        shutil.copy(root / "empty.db", self.home / "agent.db")

    def copy_in(self, image: Path) -> Case:
        """Return a case of the same scenario for the copied files of a life."""
        return Case(image, self.scenario, self.shape, self.result)

    def cut_everywhere(self, baseline: Baseline, plan: Plan, chance: random.Random) -> None:
        """Cut the scenario off at every place that it passes, and after some of these cuts a second time."""
        spots: list[tuple[Spot, int, Path]] = []
        passed = 0
        for spot in self.stop_everywhere(1):
            passed += 1
            if plan.takes(spot, self.scenario.name, baseline.first_places):
                spots.append((spot, passed, copy_files(self.home, self.home / f"cut-{passed}")))
        cut_twice = spots if plan.pairs == ALL else chance.sample(spots, min(plan.pairs, len(spots)))
        for cut in spots:
            spot, before, image = cut
            if cut in cut_twice:
                following = range(passed - before)
                at = [*following] if plan.pairs == ALL else [chance.randrange(len(following) or 1)]
                self.copy_in(image).cut_again(spot, at, baseline)
            self.result.cuts[spot.place] += 1
            self.copy_in(image).continue_to_end(2, baseline, [spot])
            if self.result.wrong:
                return
            shutil.rmtree(image)

    def cut_again(self, first: Spot, at: Sequence[int], baseline: Baseline) -> None:
        """Cut the next life off as well, at these indexes in the sequence of its stops."""
        second = copy_files(self.home, self.home / "second")
        for n, spot in enumerate(self.copy_in(second).stop_everywhere(2)):
            if n not in at:
                continue
            third = copy_files(second, self.home / "third")
            self.result.pairs += 1
            self.copy_in(third).continue_to_end(3, baseline, [first, spot])
            if self.result.wrong:
                return
            shutil.rmtree(third)
            if n == at[-1]:
                break
        shutil.rmtree(second)

    def continue_to_end(self, number: int, baseline: Baseline, cut: Iterable[Spot]) -> None:
        """Run the scenario to its end, which must be the end of an uninterrupted life."""
        ending = self.run_to_end(number)
        if ending is not None and ending != baseline.ending:
            at = " and ".join(f"pass {spot.at_pass} of {spot.place}" for spot in cut)
            parts = [pair for pair in zip(ending, baseline.ending, strict=True) if pair[0] != pair[1]]
            self.result.wrong.append(
                f"{self.scenario.name} ({self.shape}, {self.home}), cut off at {at}, has another end: "
                f"{[(_difference(found, expected), _difference(expected, found)) for found, expected in parts]}"
            )

    def relay(self, place: str, baseline: Baseline, chance: random.Random) -> None:
        """Kill every life at this place, until the scenario is over."""
        share = 2 + baseline.passes[place] // 3
        for number in range(1, RELAY_LIVES_MAX):
            life = self.life(number, ends=place, at_pass=chance.randint(1 + share // 4, share), reboots=True)
            ended = wait(fork(run_life, life, live), None)
            if ended != -signal.SIGKILL:
                break
            self.result.kills[place] += 1
        else:
            self.result.wrong.append(f"{self.scenario.name}: {RELAY_LIVES_MAX} kills at {place} are not enough")
        self.result.relays += 1
        self.check_exit(number, ended)
        self.continue_to_end(number + 1, baseline, [Spot(place, 0)])

    def stop_everywhere(self, number: int) -> Iterator[Spot]:
        """Run a life that is stopped at each place it passes. Yield each spot, while the caller copies the files."""
        life = self.life(number, ends=STOPS_EVERYWHERE)
        pid = fork(_run_until_parent_exits, life)
        status = os.waitpid(pid, os.WUNTRACED)[1]
        try:
            while os.WIFSTOPPED(status):
                yield Spot(*json.loads(life.spot.read_text()))
                os.kill(pid, signal.SIGCONT)
                status = os.waitpid(pid, os.WUNTRACED)[1]
        finally:
            if os.WIFSTOPPED(status):  # the caller needs no more spots
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.check_exit(number, os.waitstatus_to_exitcode(status))

    def run_to_end(self, number: int, *, ends: str = QUIET) -> Any:
        """Run a life without an interruption, and the checker. Return the end of the scenario."""
        life = self.life(number, ends=ends)
        if not self.check_exit(number, wait(fork(run_life, life, _run_and_check), None)):
            return None
        verdict = json.loads((self.home / "verdict.json").read_text())
        self.result.found.update({name: verdict[name] for name in FOUND})
        self.result.wrong += [f"{self.scenario.name} ({self.shape}, {self.home}): {text}" for text in verdict["wrong"]]
        return verdict["summary"]

    def life(self, number: int, *, ends: str = QUIET, at_pass: int = 1, reboots: bool = False) -> TaskLife:
        return TaskLife(
            folder=self.home,
            number=number,
            scenario=self.scenario,
            ends=ends,
            at_pass=at_pass,
            backend=self.shape[0],
            concurrency=self.shape[1],
            reboots=reboots,
        )

    def check_exit(self, number: int, ended: int) -> bool:
        if ended not in (0, -signal.SIGKILL):
            errors = logged_errors(self.home)
            name = self.scenario.name
            self.result.wrong.append(f"{name}: life {number} ended with {ended} ({self.home}): {errors}")
        return ended == 0


def _difference(items: list[Any], others: list[Any]) -> list[Any]:
    return [item for item in items if item not in others]


def _run_until_parent_exits(life: TaskLife) -> None:
    """Run a life, which the kernel kills when its parent exits: a stopped process cannot end itself."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    run_life(life, live)


def _run_and_check(life: TaskLife) -> None:
    live(life)
    (life.folder / "verdict.json").write_text(to_json(check(life.folder)))


def copy_files(home: Path, to: Path) -> Path:
    """Copy the files of a killed process to a new folder, except the shared memory of the WAL. Return the folder."""
    to.mkdir()
    for path in home.iterdir():
        if path.is_file() and not path.name.endswith("-shm"):
            shutil.copy(path, to)
    return to


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--thorough", action="store_true", help="every pass of every point, in every shape, and cuts of the long chat"
    )
    parser.add_argument("--part", type=int, default=1, help="run one of this many cuts, always the same")
    parser.add_argument("--pairs", default="2", help="the number of second cuts of each scenario, or all")
    parser.add_argument("--scenario", choices=[scenario.name for scenario in ALL_SCENARIOS], help="run only this one")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the result for another program")
    args = parser.parse_args()
    pairs = ALL if args.pairs == "all" else int(args.pairs)
    result = matrix(
        thorough=args.thorough,
        part=args.part,
        pairs=pairs,
        seed=args.seed,
        workers=args.workers,
        only=args.scenario,
    )
    print(result.table())
    for wrong in result.wrong:
        print(f"WRONG (seed {args.seed}): {wrong}")
    if args.json:
        args.json.write_text(to_json(result))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
