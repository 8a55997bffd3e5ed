"""The report of a crash matrix: a table of the crashes, and the timeline of each that broke a promise."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from craftcore.serialization.plurals import format_count
from craftcore.testing.crash_cell import CellResult
from craftcore.testing.crash_point import CrashPoint, find_points
from craftcore.testing.life_log import Called, Delayed, Noted, Passed, Record, Returned

SHOWN = 3
"""The crashes whose timelines are shown."""

LINES_MAX = 120
"""The lines of one life that are shown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CrashReport:
    """The results of a matrix; the first is that of the run without a crash. `seconds`: of real time."""

    results: Sequence[CellResult]
    seconds: float

    @property
    def broken(self) -> list[CellResult]:
        """The cells in which a promise was broken, those of a single crash first."""
        return sorted((result for result in self.results if result.broken), key=lambda result: len(result.points))

    @property
    def reached(self) -> int:
        """How many of the crashes happened: the scenario came to their points."""
        return sum(result.was_reached for result in self.results[1:])

    def rows(self) -> list[Row]:
        """Return a row for each first crash, in the order of the scenario."""
        groups: dict[CrashPoint, list[CellResult]] = {point: [] for point in find_points(self.results[0].records)}
        for result in self.results[1:]:
            groups.setdefault(result.points[0], []).append(result)
        names = _label_points(self.results[0].records)
        return [Row.of(point, names.get(point, ""), cells) for point, cells in groups.items() if cells]

    @property
    def repeated_steps(self) -> list[str]:
        """The names of the steps whose functions ran again after a crash, in order."""
        usual = self.results[0].steps
        return sorted(
            {name for result in self.results for name, ran in result.steps.items() if ran > usual.get(name, 0)}
        )

    def document(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "crashes": len(self.results) - 1,
            "reached": self.reached,
            "broken": [{"at": " ".join(map(str, cell.points)), "promises": list(cell.broken)} for cell in self.broken],
            "repeated_steps": self.repeated_steps,
            "points": [
                {
                    "at": str(row.point),
                    "where": row.where,
                    "pairs": row.pairs,
                    "reached": row.was_reached,
                    "kept": not row.broken,
                }
                for row in self.rows()
            ],
            "seconds": round(self.seconds, 3),
        }

    def summary(self) -> str:
        """Return the result in one line."""
        count = format_count(len(self.results) - 1, "crash", "crashes")
        if not self.broken:
            missed = len(self.results) - 1 - self.reached
            but = f", {missed} not reached" if missed else ""
            return f"{count} in {self.seconds:.1f} s{but}: every promise holds"
        if self.results[0].broken:
            return "a promise is broken without a crash"
        return f"{len(self.broken)} of {count} break a promise, in {self.seconds:.1f} s"

    def failures(self) -> Iterator[str]:
        """Yield the lines that explain the first broken cells."""
        for result in self.broken[:SHOWN]:
            yield from _explain(result)
        if len(self.broken) > SHOWN:
            yield f"… and {len(self.broken) - SHOWN} more"

    def __str__(self) -> str:
        return "\n".join([self.summary(), "", *self.failures()]).rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A first crash. `where`: the step, action or commit. `pairs`: how many second crashes were tried after it;
    `broken`: the promises that do not hold after it, alone or with a second crash."""

    point: CrashPoint
    where: str
    pairs: int
    broken: Sequence[str]
    was_reached: bool

    @property
    def verdict(self) -> str:
        """The outcome as a word: broken, kept or not reached."""
        if self.broken:
            return "broken"
        return "kept" if self.was_reached else "not reached"

    @classmethod
    def of(cls, point: CrashPoint, where: str, results: Sequence[CellResult]) -> Row:
        """Return the row of the cells that begin with a point."""
        return cls(
            point=point,
            where=where,
            pairs=sum(len(result.points) > 1 for result in results),
            broken=list(dict.fromkeys(text for result in results for text in result.broken)),
            was_reached=any(result.crashes for result in results),
        )


class CrashMatrixFailed(AssertionError):
    """A promise was broken after a crash. `report` has every cell."""

    def __init__(self, report: CrashReport) -> None:
        super().__init__(f"\n{report}")
        self.report = report


def _label_points(records: Sequence[Record]) -> dict[CrashPoint, str]:
    """Return the place of each pass: the name of its step or action, or of the work that a commit writes."""
    labels: dict[CrashPoint, str] = {}
    unnamed: list[CrashPoint] = []
    for record in records:
        if not isinstance(record, Passed):
            continue
        point = CrashPoint(record.point, record.number)
        if record.point.startswith("writer."):
            unnamed.append(point)
            continue
        labels[point] = record.name
        commit = f"{record.point} {record.name}".rstrip()
        labels.update((earlier, f"commit of {commit}") for earlier in unnamed)
        unnamed.clear()
    return labels


def _explain(result: CellResult) -> Iterator[str]:
    at = " ".join(map(str, result.points))
    yield f"crash at {', then at '.join(map(str, result.points))}" if at else "without a crash"
    yield from (f"  {line}" for text in result.broken for line in text.splitlines())
    for number, life in enumerate(result.split_lives(), 1):
        yield f"  life {number}"
        shown = [record for record in life if not _is_noise(record) or record is life[-1]]
        lines = [f"    {line}" for record in shown for line in _describe(record)]
        yield from lines[-LINES_MAX:]
        if number <= result.crashes:
            yield "    SIGKILL"
    if result.output.strip():
        yield "  the end of its output"
        yield from (f"    {line}" for line in result.output.strip().splitlines()[-10:])
    if at:
        yield f'  this crash alone: crash_matrix(…, at="{at}")'
    yield ""


def _is_noise(record: Record) -> bool:
    """Return whether a record is of the engine's own loops, and no point at which the story turns."""
    return isinstance(record, Passed) and record.point.startswith(("writer.", "tick.", "claim."))


def _describe(record: Record) -> Iterator[str]:
    match record:
        case Called(_, method):
            yield f"lab.{method}"
        case Returned(_, _, error) if error is not None:
            yield f"raised {type(error).__name__}: {error}"
        case Passed(point, number, name, at):
            yield f"{_time(at)}  {f'{point}:{number}':22} {name}".rstrip()
        case Noted(effect):
            arguments = json.dumps(dict(effect.arguments), default=repr, ensure_ascii=False)
            yield f"{_time(effect.at)}  effect                 {effect.action} {arguments:.120}"
        case Delayed(call):
            yield f"{_time(call.at)}  acts late              {call.action}"


def _time(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}"
