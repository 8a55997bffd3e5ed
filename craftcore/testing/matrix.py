"""The crash matrix: a scenario is killed at each point of its life, goes on, and must keep its promises."""

from __future__ import annotations

import os
import select
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple

import anyio

from craftcore.app import App
from craftcore.clock import SystemClock
from craftcore.errors import ConfigInvalid, InvalidInput
from craftcore.registry.registry import Registry
from craftcore.storage.database import Database
from craftcore.storage.migrate import migrate
from craftcore.storage.sqlite_errors import NO_ROOM, storage_full_error
from craftcore.testing.crash_cell import Cell, CellResult
from craftcore.testing.crash_life import WORK, Scenario, Story
from craftcore.testing.crash_point import CrashPoint, find_points, parse_points
from craftcore.testing.crash_report import CrashMatrixFailed, CrashReport
from craftcore.testing.lab import DATABASE
from craftcore.testing.promises import Invariant, ScenarioEnd
from craftcore.testing.running_life import RunningLife
from craftcore.testing.story_check import (
    require_backend,
    require_invariants,
    require_jobs,
    require_progress,
    require_scenario,
)
from craftcore.version import installed_version

CELLS_MAX = 20_000

Progress = Callable[[int, int], object]
"""(cells that are done, cells that are known)"""

Choose = Callable[[Sequence[CrashPoint]], Sequence[CrashPoint]]
"""A function of the points of a scenario that returns the points at which the scenario is killed."""


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
    time. `invariants`: functions of a ScenarioEnd, checked after those of craftcore's guarantees. `pairs`: a second
    crash follows the first. The process that goes on stops at each point, and a third goes on from a copy of its
    folder. The first of those points is taken that leave the same disk and world. `at`: only these kills, one for each
    life, as a report names them. `jobs`: how many run at once; None: one for each core.

    Raises StorageFull when the temporary directory has no space for the folders of the runs.
    Raises CrashMatrixFailed, with the timeline of all lives, when a promise is broken, also without a crash.
    Raises InvalidInput within an event loop, for arguments of other types, and for a scenario that is not async.
    Raises InvalidInput for an `at` that names no points or a point to which the scenario does not come.
    """
    points = None if at is None else parse_points(at)
    require_scenario(scenario)
    found = require_invariants(invariants)
    story = Story(app=require_app(app), scenario=scenario, invariants=found, backend=backend)
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
    choose: Choose = list,
) -> CrashReport:
    """Do as crash_matrix does, and return the report also when a promise is broken.

    `choose`: returns the points that are played; all of them by default.
    """
    if _is_in_loop():
        raise InvalidInput("call crash_matrix in a plain function, outside of an event loop: it forks processes")
    require_jobs(jobs)
    require_progress(progress)
    require_backend(story.backend)  # imports here, once, what every forked life needs
    began = time.monotonic()
    installed_version()  # reads here, once, what every boot shows
    with (
        _refuse_full_disk(),
        tempfile.TemporaryDirectory(prefix="craftcore-crash-", ignore_cleanup_errors=True) as folder,
    ):
        matrix = Matrix(story, Path(folder), jobs or os.cpu_count() or 1, pairs, progress)
        results = matrix.play(at, choose)
    last = results[-1]  # with `at` its only cell, or the run without a crash, when that broke a promise
    if at is not None and not last.broken and not last.was_reached:
        raise InvalidInput(f"the scenario ended before it came to {at[last.crashes]}: it was not killed there")
    return CrashReport(results=results, seconds=time.monotonic() - began)


@contextmanager
def _refuse_full_disk() -> Iterator[None]:
    """Raise StorageFull where a folder of a cell finds no space."""
    try:
        yield
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        raise storage_full_error(tempfile.gettempdir(), NO_ROOM[error.errno]) from error


def require_app(app: Registry) -> App:
    """Return the app. Raises ConfigInvalid for a registry that no engine can run."""
    if not isinstance(app, App):
        raise ConfigInvalid(f"a crash matrix needs an App, and not {type(app).__name__}")
    return app


def _is_in_loop() -> bool:
    try:
        anyio.get_cancelled_exc_class()  # of the loop that runs
    except RuntimeError:
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
        self._running: dict[RunningLife, Played] = {}
        self._known = 0
        self._results: list[CellResult] = []

    def play(self, at: tuple[CrashPoint, ...] | None, choose: Choose) -> list[CellResult]:
        """Play the scenario without a crash, then every chosen cell, or the one of the points `at`. Return the
        results."""
        self._add(())
        [whole] = self._play_waiting()
        self._baseline = whole.ending
        if not whole.broken:
            begin_pairs = set(find_points(whole.records, distinct=True)) if self._pairs and at is None else set()
            for points in [(point,) for point in choose([*find_points(whole.records)])] if at is None else [at]:
                self._add(points, stops=points[0] in begin_pairs)
            self._play_waiting()
        return self._results

    def _add(self, points: tuple[CrashPoint, ...], *, stops: bool = False) -> None:
        self._count(1)
        folder = self._folder / f"cell-{self._known}"
        self._waiting.append(Cell(points=points, crashed=0, folder=folder, stops=stops))

    def _count(self, cells: int) -> None:
        """Count further cells. Raises InvalidInput for too many."""
        self._known += cells
        if self._known > 1 + CELLS_MAX:
            raise InvalidInput(
                f"the scenario has more than {CELLS_MAX} crashes: make it shorter, or leave out the pairs"
            )

    def _play_waiting(self) -> list[CellResult]:
        """Play the cells that wait, and those of their pairs."""
        begin = len(self._results)
        try:
            while self._waiting or self._running:
                while len(self._running) < self._jobs and (cell := self._take_waiting()) is not None:
                    self._begin(cell)
                self._follow_running()
        finally:
            for life in self._running:
                life.end(hung=True)
        return self._results[begin:]

    def _take_waiting(self) -> Cell | None:
        """Return the next cell whose folder is free."""
        used = {playing.cell.folder for playing in self._running.values()}
        for place, cell in enumerate(self._waiting):
            if cell.folder not in used:
                del self._waiting[place]
                return cell
        return None

    def _begin(self, cell: Cell) -> None:
        cell.make_folder(self._template)
        lives = cell.play(self._story, self._baseline)
        self._running[next(lives)] = Played(cell, lives)

    def _follow_running(self) -> None:
        """Wait until a life stops, ends, or has taken too long, and see to it."""
        until = min(life.until for life in self._running)
        poll = select.poll()  # as select, for descriptors of any number
        for descriptor in (descriptor for life in self._running for descriptor in life.descriptors):
            poll.register(descriptor, select.POLLIN)
        ready = {descriptor for descriptor, _ in poll.poll(max(0.0, until - time.monotonic()) * 1000)}
        now = time.monotonic()
        for life, playing in list(self._running.items()):
            if life.ended in ready or life.until <= now:
                del self._running[life]
                self._go_on(playing, life.end(hung=life.ended not in ready))
            elif not ready.isdisjoint(life.descriptors) and (point := life.take_stop()) is not None:
                playing.cell.add_pair(point)
                life.resume()

    def _go_on(self, playing: Played, code: int) -> None:
        """Let a cell begin its next life, or take its result. `code`: how its last life ended."""
        try:
            life = playing.lives.send(code)
        except StopIteration as end:
            self._take(playing.cell, end.value)
        else:
            self._running[life] = playing

    def _take(self, cell: Cell, result: CellResult) -> None:
        """Keep a result. The pairs of the cell are next, so that few copies wait; a broken cell needs none."""
        if result.broken:
            cell.drop_pairs()
        self._count(len(cell.pairs))
        self._waiting.extendleft(reversed(cell.pairs))
        is_shown = result.broken or not cell.points
        self._results.append(result if is_shown else replace(result, records=(), output="", ending=None))
        if self._progress is not None:
            self._progress(len(self._results), self._known)


class Played(NamedTuple):
    """A cell, and its lives."""

    cell: Cell
    lives: Generator[RunningLife, int, CellResult]


def make_template(folder: Path) -> Path:
    """Make the folder that every first life begins with: an empty database with its schema."""
    (folder / WORK).mkdir(parents=True, mode=0o700)
    clock = SystemClock()
    database = Database(folder / DATABASE, clock)
    database.create()
    migrate(database, clock)
    return folder
