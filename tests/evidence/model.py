"""The results of experiments, with their counts, place and time, as JSON values."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import apsw

ROOT = Path(__file__).parents[2]

Progress = Callable[[str], object]


@dataclass(slots=True, kw_only=True)
class Findings:
    """The outcome of one experiment.

    count     the number of crashes, disk states or years
    lost      accepted work or effects that are gone
    repeated  effects and settlements that happened again, without a person's decision
    wrong     all faults that a checker found, with the lost and the repeated items
    more      other figures for the reader
    """

    count: int = 0
    lost: int = 0
    repeated: int = 0
    wrong: list[str] = field(default_factory=list)
    more: str = ""

    @property
    def holds(self) -> bool:
        return not (self.lost or self.repeated or self.wrong)


class Experiment(NamedTuple):
    """One row of the page. `run(count, seed, folder)` makes at least `count` of its unit."""

    name: str
    title: str
    unit: str
    checked: str
    quick: int
    full: int
    run: Callable[[int, int, Path], Findings]


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One measured row: a result, with its seed, time, commit and machine."""

    name: str
    title: str
    unit: str
    checked: str
    count: int
    lost: int
    repeated: int
    wrong: list[str]
    more: str
    seed: int
    seconds: float
    commit: str
    date: str
    python: str
    sqlite: str
    machine: str


def make_row(experiment: Experiment, found: Findings, seed: int, seconds: float) -> Row:
    """Return the row of a new result, measured now on this machine."""
    return Row(
        name=experiment.name,
        title=experiment.title,
        unit=experiment.unit,
        checked=experiment.checked,
        **asdict(found),
        seed=seed,
        seconds=round(seconds, 1),
        commit=read_commit(),
        date=datetime.now(UTC).date().isoformat(),
        python=platform.python_version(),
        sqlite=apsw.sqlite_lib_version(),
        machine=f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    )


def read_commit() -> str:
    """Return the short commit of the checkout, with a `+` when its files have changed since."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    try:
        changed = git("status", "--porcelain", "--", ".", ":!docs/explanation/evidence.*")
        return git("rev-parse", "--short=10", "HEAD") + ("+" if changed else "")
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def load(path: Path) -> dict[str, Row]:
    """Return the stored rows by the name of their experiment."""
    if not path.exists():
        return {}
    return {row["name"]: Row(**row) for row in json.loads(path.read_text())}


def store(path: Path, rows: dict[str, Row]) -> None:
    path.write_text(json.dumps([asdict(row) for row in rows.values()], indent=1) + "\n")
