"""The rates of the last hour: figures of sixty minutes, their sum, and the bars of their picture. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from craftcore.executions.statistics import rank

MINUTE = 60.0
MINUTES = 60

SAMPLED = 50
"""Attempts of a minute whose durations are read: all of a quiet minute, an even sample of a busy one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Minute:
    """The attempts that began within one minute.

    at         the begin of the minute
    begun      how many began
    open       those of them that have not ended
    failed     those of them that ended as an error
    durations  the seconds of at most SAMPLED that ended
    """

    at: float
    begun: int = 0
    open: int = 0
    failed: int = 0
    durations: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """The attempts that began within an hour. `median` and `p95` are seconds, None where none ended; `sampled`: they
    are those of a sample. `uncertain`: the clock went back within the hour, so the figures may be wrong."""

    ended: int
    failed: int
    open: int
    median: float | None
    p95: float | None
    sampled: bool
    uncertain: bool
    minutes: tuple[Minute, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One minute of the picture: the column of what ended, and the part of it that failed, both from the bottom."""

    left: float
    top: float
    width: float
    height: float
    failed_top: float
    failed_height: float
    minute: Minute


def first_minute(now: float) -> float:
    """Return the begin of the oldest of the sixty minutes that end with the current one."""
    return (now // MINUTE - MINUTES + 1) * MINUTE


def sum_minutes(minutes: Sequence[Minute], *, uncertain: bool) -> Rates:
    """Return the figures of the hour. A minute weighs as much in the durations as attempts of it are known."""
    durations = sorted(seconds for minute in minutes for seconds in minute.durations)
    begun, still_open = sum(one.begun for one in minutes), sum(one.open for one in minutes)
    return Rates(
        ended=max(0, begun - still_open),
        failed=sum(one.failed for one in minutes),
        open=still_open,
        median=rank(durations, 0.5),
        p95=rank(durations, 0.95),
        sampled=any(one.begun > SAMPLED for one in minutes),
        uncertain=uncertain,
        minutes=tuple(minutes),
    )


def draw_bars(minutes: Sequence[Minute], width: float = 240.0, height: float = 24.0) -> list[Bar]:
    """Return a bar for each minute. The highest minute has the full height; one that is not empty has at least a
    unit."""
    highest = max((one.begun - one.open for one in minutes), default=0)
    step = width / max(1, len(minutes))
    bars = []
    for number, minute in enumerate(minutes):
        tall = fit_height(minute.begun - minute.open, highest, height)
        failed = min(tall, fit_height(minute.failed, highest, height))
        bars.append(
            Bar(
                left=round(number * step, 2),
                top=round(height - tall, 2),
                width=round(step * 0.75, 2),
                height=round(tall, 2),
                failed_top=round(height - failed, 2),
                failed_height=round(failed, 2),
                minute=minute,
            )
        )
    return bars


def find_bound(created_at: Callable[[int], tuple[int, float] | None], at: float, low: int, high: int) -> int:
    """Return the first number of a row that began at or after `at`, by bisection; `high` when there is none below it.

    Numbers grow with the time, with gaps: `created_at(seq)` returns number and time of the first row from `seq` on.
    """
    while low < high:
        middle = (low + high) // 2
        found = created_at(middle)
        if found is None or found[0] >= high or found[1] >= at:
            high = middle
        else:
            low = found[0] + 1
    return high


def pick_sample(low: int, high: int, most: int = SAMPLED) -> list[int]:
    """Return at most that many numbers out of low..high-1, evenly spaced; all of them where there are fewer."""
    total = max(0, high - low)
    return [low + number * total // min(total, most) for number in range(min(total, most))]


def fit_height(value: int, highest: int, height: float) -> float:
    return 0.0 if value <= 0 or highest <= 0 else max(1.0, min(height, height * value / highest))
