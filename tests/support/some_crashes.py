"""Crash matrices of which the default run has some cells. Tests marked `acceptance` have all cells."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, Literal

from craftcore import App
from craftcore.testing import CrashMatrixFailed, ScenarioEnd
from craftcore.testing.crash_life import Story
from craftcore.testing.crash_point import CHANGED_HERE, CrashPoint
from craftcore.testing.crash_report import CrashReport
from craftcore.testing.matrix import Choose, run_crash_matrix
from tests.support.cells import some_cells


def after_changes(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Return each point after a step, a mark of a call, or an answer of a provider."""
    return [point for point in points if point.point in CHANGED_HERE]


def choose_some(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Return the first point after each kind of change of the world, and a fifth of the others."""
    changed = first_changes(points)
    others = some_cells([point for point in points if point not in changed])
    return [point for point in points if point in changed or point in others]


def first_changes(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Return the first point after a step, after a mark of a call, and after an answer of a provider."""
    return [point for point in after_changes(points) if point.number == 1]


def after_first_step(points: Sequence[CrashPoint]) -> list[CrashPoint]:
    """Return the first point after a step."""
    return [point for point in points if str(point) == "step.ran:1"]


def crash_some(
    app: App,
    scenario: Callable[[Any], Awaitable[Any]],
    invariants: Iterable[Callable[[ScenarioEnd], Any]] = (),
    *,
    choose: Choose = choose_some,
    pairs: bool = False,
    backend: Literal["asyncio", "trio"] = "asyncio",
) -> CrashReport:
    """Run crash_matrix at the points that `choose` returns."""
    story = Story(app=app, scenario=scenario, invariants=[*invariants], backend=backend)
    report = run_crash_matrix(story, pairs=pairs, at=None, choose=choose)
    if report.broken:
        raise CrashMatrixFailed(report)
    return report
