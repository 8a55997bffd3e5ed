"""One life of a scenario, in a forked process that dies for real."""

from __future__ import annotations

import gc
import inspect
import os
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, NoReturn

import anyio

from craftcore import failpoints
from craftcore.app import App
from craftcore.clock import Clock
from craftcore.engine.workers.worker_main import die_with_parent
from craftcore.failpoints import Failpoint
from craftcore.serialization.encode import describe_error
from craftcore.testing.crash_point import CHANGED_HERE, EDGES, CrashPoint
from craftcore.testing.folder_copy import list_versions
from craftcore.testing.lab import DATABASE
from craftcore.testing.life_log import Ended, LifeBegan, LifeLog, Passed, Refused, read_log
from craftcore.testing.life_stop import StopPipe
from craftcore.testing.promises import GUARANTEES, Invariant, ScenarioEnd, list_broken
from craftcore.testing.scenario_lab import ScenarioLab
from craftcore.testing.story_check import refuse_scenario

LOG = "lives.log"
OUTPUT = "output.txt"
WORK = "work"
"""The working directory of the scenario, within the folder of its lives."""

BROKE_OFF = 70
"""The exit code of a life that an error of the engine or of the lab has ended."""

Scenario = Callable[[Any], Awaitable[Any]]
"""An async function of a lab: it emits work, lets time pass, answers. It must do the same each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """An app, the scenario that it lives through, and the promises that must hold at the end."""

    app: App
    scenario: Scenario
    invariants: Sequence[Invariant] = ()
    backend: Literal["asyncio", "trio"] = "asyncio"


def fork_life(
    story: Story,
    folder: Path,
    baseline: ScenarioEnd | None,
    *,
    kill_at: CrashPoint | None = None,
    stops: StopPipe | None = None,
) -> int:
    """Fork a process that goes on with the scenario. Return its process id.

    `kill_at`: where it is killed; None: nowhere. `stops`: it stops at each distinct point, and says so there.
    """
    return _fork(partial(_run_life, story, folder, baseline, kill_at, stops), folder / OUTPUT)


def _fork(work: Callable[[], object], output: Path) -> int:
    sys.stdout.flush()
    sys.stderr.flush()
    matrix = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _separate(matrix)
        gc.freeze()
        _redirect_output(output)
        work()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(BROKE_OFF)


def _separate(matrix: int) -> None:
    """Leave the terminal, whose signals are for the matrix, and die with the matrix, even when stopped."""
    os.setsid()
    if not die_with_parent(matrix):
        os._exit(BROKE_OFF)


def _redirect_output(path: Path) -> None:
    """Send what the process prints to a file, so that the terminal shows the matrix only. It has no input."""
    file = path.open("a", encoding="utf-8", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    for descriptor in (1, 2):
        os.dup2(file.fileno(), descriptor)
    sys.stdout = sys.stderr = file


def _run_life(
    story: Story, folder: Path, baseline: ScenarioEnd | None, kill_at: CrashPoint | None, stops: StopPipe | None
) -> None:
    path = folder / LOG
    past = read_log(path, repair=True) if path.exists() else []
    life = 1 + sum(isinstance(record, LifeBegan) for record in past)
    log = LifeLog(path)
    lab = ScenarioLab(story.app, folder, past, log, life)
    log.append(LifeBegan())
    os.chdir(folder / WORK)
    witness = Witness(log, lab.clock, folder, kill_at, stops)
    failpoints.observe(witness.on_pass)
    anyio.run(partial(_play, story, lab, log, witness, folder, baseline), backend=story.backend)


async def _play(
    story: Story, lab: ScenarioLab, log: LifeLog, witness: Witness, folder: Path, baseline: ScenarioEnd | None
) -> NoReturn:
    """Run the scenario to its end, check the invariants, and end the process without shutting down."""
    async with lab:
        returned, error = None, None
        try:
            made: object = story.scenario(lab)
            if not inspect.isawaitable(made):
                log.append(Refused(refuse_scenario(story.scenario, made)))
                os._exit(BROKE_OFF)
            returned = await made
        except Exception as raised:
            if (refusal := lab.refusal) is not None:
                log.append(Refused(refusal))
                os._exit(BROKE_OFF)
            error = f"{describe_error(raised)} in {_place(raised)}"
        statuses = await lab.finish(None if baseline is None else baseline.statuses)
        witness.is_over = True
        ending = ScenarioEnd(
            returned=returned,
            error=error,
            statuses=statuses,
            effects=lab.effects(),
            database=folder / DATABASE,
            baseline=baseline,
        )
        broken = list_broken(ending, (*GUARANTEES, *story.invariants))
        log.append(Ended(replace(ending, baseline=None, broken=broken)))
        os._exit(0)


def _place(error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{Path(frame.filename).name}, line {frame.lineno}"


class Witness:
    """An observer of the failpoints: it writes down each pass, and kills or stops the process there."""

    def __init__(
        self, log: LifeLog, clock: Clock, folder: Path, kill_at: CrashPoint | None, stops: StopPipe | None
    ) -> None:
        self._log = log
        self._wal = folder / f"{DATABASE}-wal"
        self._work = folder / WORK
        self._clock = clock
        self._kill_at = kill_at
        self._stops = stops
        self._seen: object = None
        self._passes: Counter[Failpoint] = Counter()
        self._lock = threading.Lock()
        self.is_over = False

    def on_pass(self, point: Failpoint, name: str) -> None:
        """Write down a pass. Die at the point of this life; stop at each distinct one, if asked to."""
        if self.is_over:
            return
        with self._lock:
            self._passes[point] += 1
            passed = CrashPoint(point, self._passes[point])
            is_distinct = point in EDGES and self._has_changed(point)
            self._log.append(Passed(point, passed.number, name, self._clock.now(), is_distinct))
            if passed == self._kill_at:
                failpoints.kill_process()
            if is_distinct and self._stops is not None:
                self._stops.stop_at(passed)

    def _has_changed(self, point: Failpoint) -> bool:
        """Return whether the disk or the world may have changed since the edge before. A commit changes the WAL; the
        app may change its own files at any time."""
        now = (self._log.world_changes, self._stat_wal(), list_versions(self._work))
        before, self._seen = self._seen, now
        return point in CHANGED_HERE or before != self._seen

    def _stat_wal(self) -> tuple[int, int]:
        try:
            found = self._wal.stat()
        except FileNotFoundError:
            return 0, 0
        return found.st_size, found.st_mtime_ns
