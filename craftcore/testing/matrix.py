"""The crash matrix: a scenario is killed at each point of its life, goes on, and must keep its promises."""

from __future__ import annotations

import os
import select
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import anyio
import sniffio

from craftcore.app import App
from craftcore.clock import SystemClock
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.registry.registry import Registry
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.testing.crash_cell import HUNG, Cell, CellResult
from craftcore.testing.crash_life import WORK, Scenario, Story
from craftcore.testing.crash_point import CrashPoint, find_distinct_points, find_points, parse_points
from craftcore.testing.crash_report import CrashMatrixFailed, CrashReport
from craftcore.testing.lab import DATABASE
from craftcore.testing.promises import Invariant, ScenarioEnd

LIFE_SECONDS = 120.0
"""Seconds of real time after which a life counts as hung."""

CELLS_MAX = 20_000

Progress = Callable[[int, int], object]
"""(cells that are done, cells that are known)"""


def crash_matrix(
    app: App,
    scenario: Scenario,
    invariants: Iterable[Invariant] = (),
    *,
    pairs: bool = False,
    at: str | None = None,
    jobs: int | None = None,
    backend: Literal["asyncio", "trio"] = "asyncio",
    progress: Progress | None = None,
) -> CrashReport:
    """Kill a scenario at each point, let it go on, and check that every promise holds. Return the report.

    The scenario runs once without a crash, which finds the points: both edges of each commit, step and provider call.
    Then it runs once for each point: SIGKILL ends its process there, a new process goes on, and the invariants are
    checked at the end. Questions about unknown outcomes are answered truthfully. Each run has a folder of its own,
    which is its working directory, and processes that are forked from this one. So nothing in memory outlives a kill.

    `scenario`: an async function of a lab. Its calls of the lab are made once over all lives; it must do the same each
    time. `invariants`: functions of a ScenarioEnd, checked after those of craftcore's guarantees. `pairs`: the process
    that goes on is killed, too, at each point; of points that leave the same disk and world, at the first. `at`: only
    these crashes, one for each life, as a report names them. `jobs`: how many run at once; None: one for each core.

    Raises CrashMatrixFailed, with the timeline of all lives, when a promise is broken, also without a crash.
    Raises InvalidInput within an event loop, for `jobs` below 1, and for an `at` that names no points or a point to
    which the scenario does not come.
    """
    points = None if at is None else parse_points(at)
    story = Story(app=require_app(app), scenario=scenario, invariants=tuple(invariants), backend=backend)
    report = run_crash_matrix(story, pairs=pairs, at=points, jobs=jobs, progress=progress)
    if report.broken:
        raise CrashMatrixFailed(report)
    return report


def run_crash_matrix(
    story: Story,
    *,
    pairs: bool,
    at: tuple[CrashPoint, ...] | None,
    jobs: int | None = None,
    progress: Progress | None = None,
) -> CrashReport:
    """Do as crash_matrix does, and return the report also when a promise is broken."""
    if _is_in_loop():
        raise InvalidInput("call crash_matrix in a plain function, outside of an event loop: it forks processes")
    if jobs is not None and jobs < 1:
        raise InvalidInput(f"jobs is {jobs}: give how many crashes run at once, 1 or more")
    began = time.monotonic()
    anyio.run(anyio.sleep, 0, backend=story.backend)  # imports here, once, what every forked life needs
    with tempfile.TemporaryDirectory(prefix="craftcore-crash-") as folder:
        matrix = Matrix(story, Path(folder), jobs or os.cpu_count() or 1, pairs, progress)
        results = matrix.play(at)
    last = results[-1]  # with `at` its only cell, or the run without a crash, when that broke a promise
    if at is not None and not last.broken and not last.was_reached:
        raise InvalidInput(f"the scenario ended before it came to {at[last.kills]}: it was not killed there")
    return CrashReport(results=results, seconds=time.monotonic() - began)


def require_app(app: Registry) -> App:
    """Return the app. Raises ConfigInvalid for a registry that no engine can run."""
    if not isinstance(app, App):
        raise ConfigInvalid(f"a crash matrix needs an App, and not {type(app).__name__}")
    return app


def _is_in_loop() -> bool:
    try:
        sniffio.current_async_library()
    except sniffio.AsyncLibraryNotFoundError:
        return False
    return True


class Matrix:
    """The cells of one matrix, played several at a time."""

    def __init__(self, story: Story, folder: Path, jobs: int, pairs: bool, progress: Progress | None) -> None:
        self._story = story
        self._folder = folder
        self._jobs = jobs
        self._pairs = pairs
        self._progress = progress
        self._template = make_template(folder / "template")
        self._baseline: ScenarioEnd | None = None
        self._waiting: deque[Cell] = deque()
        self._known = 0
        self._results: list[CellResult] = []

    def play(self, at: tuple[CrashPoint, ...] | None) -> list[CellResult]:
        """Play the scenario without a crash, then every cell, or the one of the points `at`. Return the results."""
        self._add((), self._template)
        [whole] = self._play_waiting()
        self._baseline = whole.ending
        if not whole.broken:
            begin_pairs = set(find_distinct_points(whole.records)) if self._pairs else set()
            for points in [(point,) for point in find_points(whole.records)] if at is None else [at]:
                self._add(points, self._template, keeps=at is None and points[0] in begin_pairs)
            self._play_waiting()
        return self._results

    def _add(self, points: tuple[CrashPoint, ...], origin: Path, *, killed: int = 0, keeps: bool = False) -> None:
        if self._known > CELLS_MAX:
            raise InvalidInput(
                f"the scenario has more than {CELLS_MAX} crashes: make it shorter, or leave out the pairs"
            )
        folder = self._folder / f"cell-{self._known}"
        keep = folder.with_name(f"kept-{self._known}") if keeps else None
        self._waiting.append(Cell(points=points, killed=killed, folder=folder, origin=origin, keep=keep))
        self._known += 1

    def _add_pairs(self, cell: Cell, result: CellResult) -> None:
        """Add a cell for each point of the life that followed a kill."""
        if cell.keep is not None and cell.keep.exists() and not result.broken:
            for point in find_distinct_points(result.split_lives()[-1]):
                self._add((*cell.points, point), cell.keep, killed=len(cell.points))

    def _play_waiting(self) -> list[CellResult]:
        """Play the cells that wait, and those that they add."""
        running: dict[int, RunningCell] = {}
        begin = len(self._results)
        try:
            while self._waiting or running:
                while self._waiting and len(running) < self._jobs:
                    cell = self._waiting.popleft()
                    self._go_on(running, cell, cell.play(self._story, self._baseline), None)
                limit = min((life.until for life in running.values()), default=0.0) - time.monotonic()
                ready, _, _ = select.select(list(running), [], [], max(0.0, limit))
                now = time.monotonic()
                for descriptor in ready or [key for key, life in running.items() if life.until <= now]:
                    life = running.pop(descriptor)
                    self._go_on(running, life.cell, life.lives, _reap(life.pid, descriptor, hung=not ready))
        finally:
            for descriptor, life in running.items():
                _reap(life.pid, descriptor, hung=True)
        return self._results[begin:]

    def _go_on(
        self, running: dict[int, RunningCell], cell: Cell, lives: Generator[int, int, CellResult], code: int | None
    ) -> None:
        """Let a cell begin its next life, or take its result. `code`: how its last life ended; None: it had none."""
        try:
            pid = next(lives) if code is None else lives.send(code)
        except StopIteration as end:
            result: CellResult = end.value
            self._add_pairs(cell, result)
            is_shown = result.broken or not cell.points
            self._results.append(result if is_shown else replace(result, records=(), output="", ending=None))
            if self._progress is not None:
                self._progress(len(self._results), self._known)
            return
        until = time.monotonic() + LIFE_SECONDS
        running[os.pidfd_open(pid)] = RunningCell(pid=pid, cell=cell, lives=lives, until=until)


class RunningCell(NamedTuple):
    """A cell whose life runs as process `pid`, until a moment of the monotonic clock at the latest."""

    pid: int
    cell: Cell
    lives: Generator[int, int, CellResult]
    until: float


def _reap(pid: int, descriptor: int, *, hung: bool) -> int:
    """Return the exit code of a process, or minus its signal; HUNG when it had to be ended."""
    if hung:
        os.kill(pid, signal.SIGKILL)
    os.close(descriptor)
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    return HUNG if hung else code


def make_template(folder: Path) -> Path:
    """Make the folder that every first life begins with: an empty database with its schema."""
    (folder / WORK).mkdir(parents=True, mode=0o700)
    clock = SystemClock()
    database = Database(folder / DATABASE, clock)
    database.create()
    migrate(database, clock)
    return folder
