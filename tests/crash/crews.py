"""The shared code of kill campaigns: crews of forked processes, each crew on its own databases, and their command.

A life is one process of a campaign, from its boot to its end.
"""

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

from tests.crash.forks import fork, prepare_forks, wait
from tests.support.warm_parent import start

ROOT = Path(__file__).parents[2]


class Result(Protocol):
    """The result of a campaign: a dataclass that can be written as JSON."""

    seconds: float
    databases: int
    kills: Counter[str]
    wrong: list[str]

    def add(self, other: dict[str, Any]) -> None:
        """Add the result of another crew."""

    def table(self) -> str:
        """Return a table for people."""


@dataclass(slots=True)
class CountedResult:
    """The result of most campaigns: `kills` by the way a life ended, `found` by the name of the checker's counter."""

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
"""A function that runs lives on one database.

Its arguments are the folder, the number of the database, the number of kills to reach, the randomness, the remaining
ways to end a life, and the result to update.
"""


def campaign(result: R, new: Callable[[], R], one_database: OneDatabase[R], *, kills: int, seed: int, crews: int) -> R:
    """Kill at least `kills` lives, in `crews` processes at once. Keeps the databases on disk when a check fails."""
    started = time.monotonic()
    prepare_forks()
    with tempfile.TemporaryDirectory(prefix="craftcore-crash-") as folder:
        running = []
        for crew in range(crews):
            share = kills // crews + (crew < kills % crews)
            result_file = Path(folder, f"result-{crew}.json")
            home = Path(folder, str(crew))
            running.append((fork(_run_crew, new(), one_database, home, share, seed + crew, result_file), result_file))
        for process, result_file in running:
            status = os.waitpid(process, 0)[1]
            if status or not result_file.exists():
                result.wrong.append(f"a crew of the campaign ended with wait status {status}")
            else:
                result.add(json.loads(result_file.read_text()))
        if result.wrong:
            kept = Path(tempfile.mkdtemp(prefix="craftcore-crash-kept-"))
            shutil.copytree(folder, kept, dirs_exist_ok=True, ignore=shutil.ignore_patterns("*.bell"))
            result.wrong.append(f"kept in {kept}, seed {seed}")
    result.seconds = time.monotonic() - started
    return result


def _run_crew(result: R, one_database: OneDatabase[R], folder: Path, kills: int, seed: int, result_file: Path) -> None:
    """Run lives on one database after another until `kills` of them were killed."""
    chance = random.Random(seed)
    ways: list[str] = []
    while sum(result.kills.values()) < kills and not result.wrong:
        home = folder / str(result.databases)
        home.mkdir(parents=True)
        one_database(home, seed + result.databases, kills, chance, ways, result)
        result.databases += 1
        if not result.wrong:
            shutil.rmtree(home)
    result_file.write_text(to_json(result))


class NumberedLife(Protocol):
    """A life with its number in the folder of its database."""

    @property
    def folder(self) -> Path: ...

    @property
    def number(self) -> int: ...


L = TypeVar("L", bound=NumberedLife)


def run_life(life: L, live: Callable[[L], None]) -> None:
    """Run a life in this process. Appends the traceback of an exception to the file `errors`."""
    try:
        live(life)
    except BaseException:
        with (life.folder / "errors").open("a") as errors:
            errors.write(f"life {life.number}\n{traceback.format_exc()}\n")
        raise


def logged_errors(home: Path) -> str:
    """Return the end of the tracebacks that lives on this database wrote."""
    return (home / "errors").read_text()[-4000:] if (home / "errors").exists() else ""


def check_in_process(home: Path, check: Callable[[], Any]) -> dict[str, Any]:
    """Run the checker in a forked process, because a process that forks lives must not open the database."""
    verdict_file = home / "verdict.json"
    status = wait(fork(lambda: verdict_file.write_text(to_json(check()))), None)
    assert status == 0, f"the checker ended with {status}"
    verdict: dict[str, Any] = json.loads(verdict_file.read_text())
    return verdict


def to_json(record: Any) -> str:
    """Return the fields of a dataclass as JSON."""
    return json.dumps({item.name: getattr(record, item.name) for item in fields(record)})


def command(description: str | None, run: Callable[..., Result], *, kills: int, only: Iterable[str] = ()) -> int:
    """Run `python -m tests.crash.… --kills N --seed S` and return its exit code.

    `only`: the values of the option `--only`, which becomes the fourth argument of `run`.
    """
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
        args.json.write_text(to_json(result))
    return 1 if result.wrong else 0


def campaign_result(module: str, folder: Path, kills: int, timeout: float, *options: str) -> dict[str, Any]:
    """Run a campaign's command with at least `kills` kills, and return its result."""
    return command_result(module, folder, timeout, "--kills", str(kills), *options)


def command_result(module: str, folder: Path, timeout: float, *options: str) -> dict[str, Any]:
    """Run a campaign's command in its own process, and return its result.

    A test has threads and open databases, so it must not fork.
    """
    result_file = folder / "result.json"
    child = run_command(module, result_file, *options, timeout=timeout)
    print(child.stdout)
    assert child.returncode == 0, child.stdout + child.stderr
    result: dict[str, Any] = json.loads(result_file.read_text())
    return result


def run_command(
    module: str, result_file: Path, *options: str, timeout: float | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a campaign's command, which writes its result into `result_file`."""
    return run_program("-m", module, "--json", str(result_file), *options, timeout=timeout)


def run_program(
    *arguments: str, timeout: float | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a test's program to its end, in a process that the warm parent of the tests forks."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        with start(arguments, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=out, stderr=err) as process:
            code = process.wait(timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(list(arguments), code, out.read().decode(), err.read().decode())
