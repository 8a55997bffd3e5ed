"""The kill matrix of tasks: small stories, each cut off at every point it passes, and then at a second point.

    python -m tests.crash.task_matrix --part 40 --pairs 1      # as the normal tests do
    python -m tests.crash.task_matrix --thorough --pairs all   # every pass of every point, and every pair of them

An uninterrupted life of each story shows how it ends. A second life is stopped (SIGSTOP) at every pass of every point,
and its files are copied meanwhile. The kernel keeps the same bytes of a stopped process as of a killed one. Each copy
is the state after one kill. A life boots the copy and completes the story, and the checker checks it. For a pair that
life is also stopped, and another life continues from its files.

A relay uses real kills: every life on one database, at the same point, until the story has ended.
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
from tests.crash.task_child import COUNTED, STOPPED, WAYS, TaskLife, live
from tests.crash.task_outside import LONG_CHAT, STORIES, Story

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
"""Of these the normal run takes every so-manieth pass. Before a commit the file is as it is after the one before it, so
every second pass of both of the writer's points is each state of the file, once. At the others nothing has happened
since the point before: not in the file, and user code has not run."""

PR_SET_PDEATHSIG = 1  # <linux/prctl.h>

SHAPES = (("asyncio", 4), ("trio", 1), ("trio", 4), ("asyncio", 1))
"""Backend and concurrency: one for each story, or all of them."""

ALL = -1

BOTH = (*STORIES, LONG_CHAT)

RELAY_MAX = 200
"""Lives of a relay: more means that it does not come to an end."""


class Spot(NamedTuple):
    """The so-manieth pass of a place."""

    place: str
    at_pass: int


class Job(NamedTuple):
    """What a crew does with one story: all that follows from a life of it, or a relay at one place."""

    story: int
    shape: tuple[str, int]
    relay: str | None


class Plan(NamedTuple):
    """How much of the matrix. `part`: one of so many cuts, and each place once. `pairs`: how many cuts of a story
    are followed by another, at a place that chance picks; ALL: all of them, by one at each place."""

    thorough: bool
    part: int
    pairs: int
    places: Sequence[str]
    crew: int
    crews: int

    def takes(self, spot: Spot, story: str, first_places: Sequence[str]) -> bool:
        """Return whether this crew plays the spot. Lives pass points unequally often, so the name of a spot decides.

        `first_places`: the places that this story passes, and none before it."""
        stride = 1 if self.thorough else STRIDE.get(spot.place, 1)
        nth, left = divmod(spot.at_pass - 1, stride)
        is_first = spot.at_pass == 1 and spot.place in first_places
        if not is_first and crc32(f"{story} {spot.place} {spot.at_pass}".encode()) % self.part:
            return False
        return spot.place in self.places and not left and (WAYS.index(spot.place) + nth) % self.crews == self.crew


class Known(NamedTuple):
    """What an uninterrupted life of a story passes, and how it ends."""

    passes: dict[str, int]
    ending: Any
    first_places: Sequence[str] = ()


NOTHING = Known({}, None)


@dataclass(slots=True)
class Result:
    """What it came to. `cuts` by the place where a story was cut off first, `kills` those of the relays."""

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
                *(f"{place!s:<20}{self.cuts[place]:>8}{self.kills[place]:>18}" for place in WAYS),
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
    places: Sequence[str] = WAYS,
    part: int = 1,
) -> Result:
    """Every row of the matrix, or those of one story, or of some places; what went wrong is kept on disk."""
    began = time.monotonic()
    prepare_forks()
    result = Result()
    with tempfile.TemporaryDirectory(prefix="craftcore-matrix-", dir=memory()) as folder:
        home = Path(folder)
        _made(home / "empty.db")
        known = [
            _uninterrupted(home / f"whole-{n}", home, story, result) if only in (None, story.name) else NOTHING
            for n, story in enumerate(BOTH)
        ]
        known = [*_with_first_places(known)]
        at_work = []
        for crew in range(0 if result.wrong else workers):
            answer = home / f"answer-{crew}.json"
            plan = Plan(thorough, part, pairs, places, crew, workers)
            jobs = [job for job in _jobs(known, thorough=thorough, part=part) if only in (None, BOTH[job.story].name)]
            at_work.append((fork(_crew, home / f"crew-{crew}", home, jobs, known, plan, seed + crew, answer), answer))
        for process, answer in at_work:
            status = os.waitpid(process, 0)[1]
            if status or not answer.exists():
                result.wrong.append(f"a crew of the matrix ended with wait status {status}")
            else:
                result.add(json.loads(answer.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-matrix-kept-"))
            shutil.copytree(home, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.bell"))
            result.wrong.append(f"kept in {kept}, seed {seed}")
    result.seconds = time.monotonic() - began
    return result


def _with_first_places(known: Sequence[Known]) -> Iterator[Known]:
    seen: set[str] = set()
    for one in known:
        yield one._replace(first_places=sorted({*one.passes} - seen))
        seen |= {*one.passes}


def memory() -> str | None:
    """A file system in memory, if there is one: a dead process leaves the same there, and nobody waits for a disk."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _jobs(known: Sequence[Known], *, thorough: bool, part: int) -> list[Job]:
    """Each story, and a relay of the long one at every place. Crews share the cuts of a story, and the relays."""
    jobs = [
        Job(number, shape, None)
        for number in range(len(BOTH if thorough else STORIES))
        for shape in (SHAPES if thorough else [SHAPES[number % 4]])
    ]
    long = len(STORIES)
    met = [place for place in WAYS if known[long].passes.get(place, 0) > 1]  # whoever dies in each boot gets nowhere
    return [*jobs, *(Job(long, SHAPES[n % 4], place) for n, place in enumerate(met) if n % part == 0)]


def _made(db: Path) -> None:
    """An empty database: no case has to make its own."""

    def make() -> None:
        core = Services(db, Config())
        core.prepare()
        core.close()

    assert wait(fork(make), None) == 0


def _uninterrupted(home: Path, root: Path, story: Story, result: Result) -> Known:
    case = Case(home, story, SHAPES[0], result)
    case.begin(root)
    ending = case.to_the_end(1, ends=COUNTED)
    return Known(json.loads(case.life(1).passes.read_text()) if ending else {}, ending)


def _crew(home: Path, root: Path, jobs: list[Job], known: list[Known], plan: Plan, seed: int, answer: Path) -> None:
    result = Result()
    chance = random.Random(seed)
    relays = [job for job in jobs if job.relay]
    for n, job in enumerate(jobs):
        case = Case(home / str(n), BOTH[job.story], job.shape, result)
        if not job.relay:
            case.begin(root)
            has_pairs = plan.part == 1 or n % plan.crews == plan.crew
            case.every_cut(known[job.story], plan if has_pairs else plan._replace(pairs=0), chance)
        elif relays.index(job) % plan.crews == plan.crew:
            case.begin(root)
            case.relay(job.relay, known[job.story], chance)
        if result.wrong:
            break
        shutil.rmtree(case.home, ignore_errors=True)
    answer.write_text(to_json(result))


class Case:
    """One file and the lives on it."""

    def __init__(self, home: Path, story: Story, shape: tuple[str, int], result: Result) -> None:
        self.home, self.story, self.shape, self.result = home, story, shape, result

    def begin(self, root: Path) -> None:
        self.home.mkdir(parents=True)
        shutil.copy(root / "empty.db", self.home / "agent.db")

    def of(self, image: Path) -> Case:
        """The same story, on what a life left in another folder."""
        return Case(image, self.story, self.shape, self.result)

    def every_cut(self, known: Known, plan: Plan, chance: random.Random) -> None:
        """Cut the story off at every place it passes; of some of that, once more."""
        spots: list[tuple[Spot, int, Path]] = []
        passed = 0
        for spot in self.stops(1):
            passed += 1
            if plan.takes(spot, self.story.name, known.first_places):
                spots.append((spot, passed, copied(self.home, self.home / f"cut-{passed}")))
        twice = spots if plan.pairs == ALL else chance.sample(spots, min(plan.pairs, len(spots)))
        for cut in spots:
            spot, before, image = cut
            if cut in twice:
                still = range(passed - before)
                at = [*still] if plan.pairs == ALL else [chance.randrange(len(still) or 1)]
                self.of(image).cut_again(spot, at, known)
            self.result.cuts[spot.place] += 1
            self.of(image).goes_on(2, known, [spot])
            if self.result.wrong:
                return
            shutil.rmtree(image)

    def cut_again(self, first: Spot, at: Sequence[int], known: Known) -> None:
        """The life that goes on is cut off, too: at the so-manieth of the places that it passes."""
        second = copied(self.home, self.home / "second")
        for n, spot in enumerate(self.of(second).stops(2)):
            if n not in at:
                continue
            third = copied(second, self.home / "third")
            self.result.pairs += 1
            self.of(third).goes_on(3, known, [first, spot])
            if self.result.wrong:
                return
            shutil.rmtree(third)
            if n == at[-1]:
                break
        shutil.rmtree(second)

    def goes_on(self, number: int, known: Known, cut: Iterable[Spot]) -> None:
        """A life to the end; it must be the end that the story has when nobody cuts it off."""
        ending = self.to_the_end(number)
        if ending is not None and ending != known.ending:
            at = " and ".join(f"pass {spot.at_pass} of {spot.place}" for spot in cut)
            parts = [(told, want) for told, want in zip(ending, known.ending, strict=True) if told != want]
            self.result.wrong.append(
                f"{self.story.name} ({self.shape}, {self.home}), cut off at {at}, ended otherwise than it does: "
                f"{[(_only(told, want), _only(want, told)) for told, want in parts]}"
            )

    def relay(self, place: str, known: Known, chance: random.Random) -> None:
        """Every life is killed at this place, until the story is over."""
        share = 2 + known.passes[place] // 3
        for number in range(1, RELAY_MAX):
            life = self.life(number, ends=place, at_pass=chance.randint(1 + share // 4, share), reboots=True)
            ended = wait(fork(run_life, life, live), None)
            if ended != -signal.SIGKILL:
                break
            self.result.kills[place] += 1
        else:
            self.result.wrong.append(f"{self.story.name}: {RELAY_MAX} lives killed at {place} are not enough")
        self.result.relays += 1
        self.ended_well(number, ended)
        self.goes_on(number + 1, known, [Spot(place, 0)])

    def stops(self, number: int) -> Iterator[Spot]:
        """A life that stands still at each place it passes, for as long as the caller looks at its files."""
        life = self.life(number, ends=STOPPED)
        pid = fork(_until_we_die, life)
        status = os.waitpid(pid, os.WUNTRACED)[1]
        try:
            while os.WIFSTOPPED(status):
                yield Spot(*json.loads(life.spot.read_text()))
                os.kill(pid, signal.SIGCONT)
                status = os.waitpid(pid, os.WUNTRACED)[1]
        finally:
            if os.WIFSTOPPED(status):  # the caller has seen enough
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
        self.ended_well(number, os.waitstatus_to_exitcode(status))

    def to_the_end(self, number: int, *, ends: str = QUIET) -> Any:
        """A life that nobody cuts off, and the checker after it: how the story ended."""
        life = self.life(number, ends=ends)
        if not self.ended_well(number, wait(fork(run_life, life, _live_and_judge), None)):
            return None
        verdict = json.loads((self.home / "verdict.json").read_text())
        self.result.found.update({name: verdict[name] for name in FOUND})
        self.result.wrong += [f"{self.story.name} ({self.shape}, {self.home}): {text}" for text in verdict["wrong"]]
        return verdict["story"]

    def life(self, number: int, *, ends: str = QUIET, at_pass: int = 1, reboots: bool = False) -> TaskLife:
        return TaskLife(
            folder=self.home,
            number=number,
            story=self.story,
            ends=ends,
            at_pass=at_pass,
            backend=self.shape[0],
            concurrency=self.shape[1],
            reboots=reboots,
        )

    def ended_well(self, number: int, ended: int) -> bool:
        if ended not in (0, -signal.SIGKILL):
            said = logged_errors(self.home)
            self.result.wrong.append(f"{self.story.name}: life {number} ended with {ended} ({self.home}): {said}")
        return ended == 0


def _only(some: list[Any], others: list[Any]) -> list[Any]:
    return [one for one in some if one not in others]


def _until_we_die(life: TaskLife) -> None:
    """A process that stands still hears of nothing: the kernel ends it with the one that looks at it."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    run_life(life, live)


def _live_and_judge(life: TaskLife) -> None:
    live(life)
    (life.folder / "verdict.json").write_text(to_json(check(life.folder)))


def copied(home: Path, to: Path) -> Path:
    """What a dead process leaves: its files, without what several share of them in memory."""
    to.mkdir()
    for path in home.iterdir():
        if path.is_file() and not path.name.endswith("-shm"):
            shutil.copy(path, to)
    return to


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--thorough", action="store_true", help="every pass of every point, in every shape, the long chat, too"
    )
    parser.add_argument("--part", type=int, default=1, help="one of so many cuts, always the same")
    parser.add_argument("--pairs", default="2", help="cut off again how many of each story, or all")
    parser.add_argument("--story", choices=[story.name for story in BOTH], help="this one only")
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
        only=args.story,
    )
    print(result.table())
    for wrong in result.wrong:
        print(f"WRONG (seed {args.seed}): {wrong}")
    if args.json:
        args.json.write_text(to_json(result))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
