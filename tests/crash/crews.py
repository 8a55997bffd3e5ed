"""The shared code of kill campaigns: crews of forked lives, each on its own databases, and their command."""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Protocol, TypeVar

from tests.crash.forks import be_a_warm_parent, fork, wait
from tests.support.warm_parent import start

ROOT = Path(__file__).parents[2]


class Result(Protocol):
    """What a campaign came to: a dataclass that goes through JSON."""

    seconds: float
    databases: int
    kills: Counter[str]
    wrong: list[str]

    def add(self, other: dict[str, Any]) -> None:
        """What another crew came to."""

    def table(self) -> str:
        """For people."""


@dataclass(slots=True)
class Counted:
    """What most campaigns count: `kills` by what a life died of, `found` by what their checker counts."""

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


R = TypeVar("R", bound=Result)
OneDatabase = Callable[[Path, int, int, random.Random, list[str], R], None]
"""Lives on one database: its folder, its number, how many kills are enough, chance, the ways that are still to be
taken, and the result to add to."""


def campaign(result: R, new: Callable[[], R], one_database: OneDatabase[R], *, kills: int, seed: int, crews: int) -> R:
    """Kill at least this often, in as many crews at once; what went wrong is kept on disk."""
    began = time.monotonic()
    be_a_warm_parent()
    with tempfile.TemporaryDirectory(prefix="craftcore-crash-") as folder:
        at_work = []
        for crew in range(crews):
            share = kills // crews + (crew < kills % crews)
            answer = Path(folder, f"answer-{crew}.json")
            home = Path(folder, str(crew))
            at_work.append((fork(_crew, new(), one_database, home, share, seed + crew, answer), answer))
        for process, answer in at_work:
            status = os.waitpid(process, 0)[1]
            if status or not answer.exists():
                result.wrong.append(f"a crew of the campaign ended with wait status {status}")
            else:
                result.add(json.loads(answer.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-crash-kept-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.bell"))
            result.wrong.append(f"kept in {kept}, seed {seed}")
    result.seconds = time.monotonic() - began
    return result


def _crew(result: R, one_database: OneDatabase[R], folder: Path, kills: int, seed: int, answer: Path) -> None:
    """One database after the other until there were enough kills."""
    chance = random.Random(seed)
    ways: list[str] = []
    while sum(result.kills.values()) < kills and not result.wrong:
        home = folder / str(result.databases)
        home.mkdir(parents=True)
        one_database(home, seed + result.databases, kills, chance, ways, result)
        result.databases += 1
        if not result.wrong:
            shutil.rmtree(home)
    answer.write_text(text_of(result))


class Numbered(Protocol):
    """One of several lives in a folder."""

    @property
    def folder(self) -> Path: ...

    @property
    def number(self) -> int: ...


L = TypeVar("L", bound=Numbered)


def one_life(life: L, live: Callable[[L], None]) -> None:
    """In a process of its own: live it; what it raises stands in `errors`."""
    try:
        live(life)
    except BaseException:
        with (life.folder / "errors").open("a") as errors:
            errors.write(f"life {life.number}\n{traceback.format_exc()}\n")
        raise


def last_words(home: Path) -> str:
    """What lives on this database raised."""
    return (home / "errors").read_text()[-4000:] if (home / "errors").exists() else ""


def judged_in_a_process(home: Path, check: Callable[[], Any]) -> dict[str, Any]:
    """The checker opens the database, and whoever forks lives must not: it gets a process of its own."""
    answer = home / "verdict.json"
    status = wait(fork(lambda: answer.write_text(text_of(check()))), None)
    assert status == 0, f"the checker ended with {status}"
    verdict: dict[str, Any] = json.loads(answer.read_text())
    return verdict


def text_of(found: Any) -> str:
    """The fields of a dataclass as JSON."""
    return json.dumps({item.name: getattr(found, item.name) for item in fields(found)})


def command(description: str | None, run: Callable[..., Result], *, kills: int, only: Iterable[str] = ()) -> int:
    """`python -m tests.crash.… --kills N --seed S`: the exit code. `only`: what `run` may be told as its fourth."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=kills)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--json", type=Path, help="where to write the result for another program")
    if only:
        parser.add_argument("--only", choices=sorted(only))
    args = parser.parse_args()
    seed = random.SystemRandom().getrandbits(31) if args.seed is None else args.seed
    result = run(args.kills, seed, args.workers, *([args.only] if only else []))
    print(result.table())
    for wrong in result.wrong:
        print(f"WRONG (seed {seed}): {wrong}")
    if args.json:
        args.json.write_text(text_of(result))
    return 1 if result.wrong else 0


def campaign_of(module: str, folder: Path, kills: int, timeout: float, *more: str) -> dict[str, Any]:
    """Run a campaign's command that kills at least so often."""
    return result_of(module, folder, timeout, "--kills", str(kills), *more)


def result_of(module: str, folder: Path, timeout: float, *options: str) -> dict[str, Any]:
    """Run a campaign's command in a process of its own: a test has threads and open databases, and must not fork."""
    answer = folder / "result.json"
    child = run_command(module, answer, *options, timeout=timeout)
    print(child.stdout)
    assert child.returncode == 0, child.stdout + child.stderr
    result: dict[str, Any] = json.loads(answer.read_text())
    return result


def run_command(
    module: str, answer: Path, *options: str, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a campaign's command, which writes its result into the file `answer`."""
    return run_program("-m", module, "--json", str(answer), *options, timeout=timeout)


def run_program(
    *arguments: str, timeout: float | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a program of a test to its end, in a process that the warm parent of the tests forks."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with start(arguments, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err) as process:
            code = process.wait(timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())
