"""One cell of a crash matrix: a scenario that is killed at given points, and what it comes to."""

from __future__ import annotations

import shutil
import signal
from collections import Counter
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from craftcore.failpoints import Failpoint
from craftcore.testing.crash_life import BROKE_OFF, LOG, OUTPUT, Story, fork_life
from craftcore.testing.crash_point import CrashPoint
from craftcore.testing.life_log import Ended, LifeBegan, Passed, Record, read_log
from craftcore.testing.promises import ScenarioEnd

HUNG = -signal.SIGALRM
"""The exit code of a life that was ended because it took too long."""

OUTPUT_BYTES = 4000


@dataclass(frozen=True, slots=True, kw_only=True)
class CellResult:
    """The result of one cell.

    points    where it was to be killed, life by life
    kills     how often it was
    ending    how the scenario ended; None: its last life did not get there
    broken    the promises that do not hold; none: all hold
    steps     how often each step ran to its end, by name, in all lives
    records   the log of all lives
    output    the end of what its processes printed
    """

    points: tuple[CrashPoint, ...]
    kills: int
    ending: ScenarioEnd | None
    broken: Sequence[str]
    steps: Mapping[str, int]
    records: Sequence[Record]
    output: str

    @property
    def was_reached(self) -> bool:
        """Every life was killed at its point."""
        return self.kills == len(self.points)

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
    """A cell to be played. `origin`: the folder that it begins with, in which the first `killed` of the `points` have
    been. `keep`: where to copy its folder after its last kill; None: nowhere."""

    points: tuple[CrashPoint, ...]
    killed: int
    folder: Path
    origin: Path
    keep: Path | None = None

    def play(self, story: Story, baseline: ScenarioEnd | None) -> Generator[int, int, CellResult]:
        """Yield the process id of each life, take its exit code, and return the result."""
        shutil.copytree(self.origin, self.folder)
        kills = self.killed
        for point in (*self.points[kills:], None):
            code = yield fork_life(story, self.folder, point, baseline)
            if code != -signal.SIGKILL:
                break
            kills += 1
            if self.keep is not None and kills == len(self.points):
                shutil.copytree(self.folder, self.keep, ignore=shutil.ignore_patterns("*.bell"))  # a socket
        result = self._judge(code, kills)
        shutil.rmtree(self.folder)
        return result

    def _judge(self, code: int, kills: int) -> CellResult:
        records = read_log(self.folder / LOG)
        ending = next((record.ending for record in records if isinstance(record, Ended)), None)
        output = (self.folder / OUTPUT).read_bytes()[-OUTPUT_BYTES:].decode(errors="replace")
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
            points=self.points, kills=kills, ending=ending, broken=broken, steps=steps, records=records, output=output
        )
