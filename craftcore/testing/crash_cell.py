"""One cell of a crash matrix: a scenario that crashes at given points, and what it comes to."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from craftcore.errors import InvalidInput
from craftcore.failpoints import Failpoint
from craftcore.testing.crash_life import BROKE_OFF, LOG, OUTPUT, Story, fork_life
from craftcore.testing.crash_point import CrashPoint
from craftcore.testing.folder_copy import copy_folder
from craftcore.testing.life_log import Ended, LifeBegan, Passed, Record, Refused, read_log
from craftcore.testing.life_stop import StopPipe
from craftcore.testing.promises import ScenarioEnd
from craftcore.testing.running_life import HUNG, RunningLife

OUTPUT_BYTES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """The result of one cell.

    points    where it was to crash, life by life
    crashes   how many of these crashes happened
    ending    how the scenario ended; None: its last life did not get there
    broken    the promises that do not hold; none: all hold
    steps     how often each step ran to its end, by name, in all lives
    records   the log of all lives
    output    the end of what its processes printed
    """

    points: tuple[CrashPoint, ...]
    crashes: int
    ending: ScenarioEnd | None
    broken: Sequence[str]
    steps: Mapping[str, int]
    records: Sequence[Record]
    output: str

    @property
    def was_reached(self) -> bool:
        """Every crash happened at its point."""
        return self.crashes == len(self.points)

    def split_lives(self) -> list[list[Record]]:
        """Return the records of each life."""
        lives: list[list[Record]] = []
        for record in self.records:
            if isinstance(record, LifeBegan):
                lives.append([])
            lives[-1].append(record)
        return lives


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A cell to be played.

    points    where it crashes, life by life
    crashed   how many of these crashes have happened in its folder
    folder    its folder. Cells with the same one are played one after the other: work may keep paths in it
    copy      the copy that becomes this folder when the cell is played; None: it begins with the template
    stops     its last life stops at each distinct point, where a pair begins
    pairs     the cells that began there, each with a copy of this folder
    """

    points: tuple[CrashPoint, ...]
    crashed: int
    folder: Path
    copy: Path | None = None
    stops: bool = False
    pairs: list[Cell] = field(default_factory=list)

    def play(self, story: Story, baseline: ScenarioEnd | None) -> Generator[RunningLife, int, CellResult]:
        """Yield each life, take its exit code, and return the result. Raises InvalidInput for a refused scenario."""
        crashes = self.crashed
        for point in (*self.points[crashes:], None):
            stops = StopPipe() if self.stops and point is None else None
            code = yield RunningLife(fork_life(story, self.folder, baseline, kill_at=point, stops=stops), stops)
            if code != -signal.SIGKILL:
                break
            crashes += 1
        result = self._judge(code, crashes)
        self._remove_folder()
        return result

    def make_folder(self, template: Path) -> None:
        """Make the folder as its first life finds it."""
        if self.copy is None:
            copy_folder(template, self.folder)
        else:
            self.copy.rename(self.folder)

    def _remove_folder(self) -> None:
        """Make way for the next cell with this folder. A program that the app has detached may still write into it."""
        ended = self.folder.with_name(f"ended-{self.folder.name} {' '.join(map(str, self.points))}")
        self.folder.rename(ended)
        shutil.rmtree(ended, ignore_errors=True)

    def add_pair(self, point: CrashPoint) -> None:
        """Copy the folder of the stopped life: what SIGKILL would leave. The cell of the pair goes on from there."""
        copy = self.folder.with_name(f"{self.folder.name}-{len(self.pairs)}")
        copy_folder(self.folder, copy)
        points = (*self.points, point)
        self.pairs.append(Cell(points=points, crashed=len(self.points) + 1, folder=self.folder, copy=copy))

    def drop_pairs(self) -> None:
        """Delete the cells of its pairs."""
        for pair in self.pairs:
            assert pair.copy is not None
            shutil.rmtree(pair.copy)
        self.pairs.clear()

    def _judge(self, code: int, crashes: int) -> CellResult:
        records = read_log(self.folder / LOG)
        if refused := next((record for record in records if isinstance(record, Refused)), None):
            raise InvalidInput(refused.reason)
        ending = next((record.ending for record in records if isinstance(record, Ended)), None)
        output = _read_end(self.folder / OUTPUT)
        if ending is not None:
            broken = ending.broken
        elif code == HUNG:
            broken = ("the scenario hangs",)
        else:
            reason = "an error" if code == BROKE_OFF else f"exit code {code}"
            broken = (f"the last life ended by {reason}: {(output.strip().splitlines() or ['no output'])[-1]}",)
        steps = Counter(
            record.name for record in records if isinstance(record, Passed) and record.point is Failpoint.STEP_RAN
        )
        return CellResult(
            points=self.points,
            crashes=crashes,
            ending=ending,
            broken=broken,
            steps=steps,
            records=records,
            output=output,
        )


def _read_end(path: Path) -> str:
    """Return the end of what the processes printed, which may be more than memory has."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - OUTPUT_BYTES))
        return file.read(OUTPUT_BYTES).decode(errors="replace")
