"""The ratios that craftcore is held to, with the floor and the aim of each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

Samples = dict[tuple[str, str], list[float]]
"""The measurements by system and work: one value for each round, or the latencies of all rounds."""
VERDICTS = (MISSES_FLOOR, MISSES_AIM, MEETS_FLOOR, MEETS_AIM) = (
    "misses its floor",
    "misses its aim",
    "meets its floor",
    "meets its aim",
)
"""In the order of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A ratio of two measurements, with a floor, an aim or both. `at_most`: a smaller one is better. `is_difference`:
    what is above minus what is below, instead of a quotient."""

    title: str
    above: tuple[str, str]
    below: tuple[str, str]
    floor: float | None
    aim: float | None
    at_most: bool = False
    is_difference: bool = False

    def ratio(self, samples: Mapping[tuple[str, str], list[float]]) -> tuple[float, float, float] | None:
        """Return the median of the rounds' ratios, the least and the greatest. None when a side was not measured.

        Latencies are not measured in pairs: their ratio is that of the medians.
        """
        above, below = samples.get(self.above, []), samples.get(self.below, [])
        if not above or not below:
            return None
        if self.above[1] == "latency":
            above, below = [median(above)], [median(below)]
        found = [self._of(one, other) for one, other in zip(above, below, strict=False)]
        return median(found), min(found), max(found)

    def _of(self, above: float, below: float) -> float:
        return above - below if self.is_difference else above / below

    def verdict(self, value: float) -> str:
        """Return which bound a ratio misses or meets, of those that there are."""
        if self.floor is not None and not self._meets(value, self.floor):
            return MISSES_FLOOR
        if self.aim is None:
            return MEETS_FLOOR
        if self._meets(value, self.aim):
            return MEETS_AIM
        return MISSES_AIM if self.floor is None else MEETS_FLOOR

    def _meets(self, value: float, bound: float) -> bool:
        return value <= bound if self.at_most else value >= bound


OURS = "craftcore"
PROMISES = (
    Promise(
        title="drain, 100 at once / Huey", above=(OURS, "plain-100"), below=("Huey", "plain-100"), floor=2.5, aim=4
    ),
    *(
        promise
        for system in ("DBOS", "DBOS tuned")
        for promise in (
            Promise(
                title=f"drain, 100 at once / {system}",
                above=(OURS, "plain-100"),
                below=(system, "plain-100"),
                floor=45,
                aim=70,
            ),
            Promise(
                title=f"1 step, 100 at once / {system}",
                above=(OURS, "step-100"),
                below=(system, "step-100"),
                floor=25,
                aim=40,
            ),
            Promise(
                title=f"1 step, 1 at once / {system}",
                above=(OURS, "step-1"),
                below=(system, "step-1"),
                floor=2.5,
                aim=4,
            ),
            Promise(
                title=f"5 steps, 100 at once / {system}",
                above=(OURS, "steps-100"),
                below=(system, "steps-100"),
                floor=45,
                aim=70,
            ),
        )
    ),
    Promise(
        title="drain, 1 at once / persist-queue",
        above=(OURS, "plain-1"),
        below=("persist-queue", "plain-1"),
        floor=1,
        aim=None,
    ),
    Promise(title="drain, 1 at once / Huey", above=(OURS, "plain-1"), below=("Huey", "plain-1"), floor=None, aim=1),
    Promise(
        title="emit and drain, 100 at once / raw pipeline with a writer thread",
        above=(OURS, "pipeline"),
        below=("raw SQLite", "pipeline"),
        floor=0.30,
        aim=0.40,
    ),
    Promise(
        title="with records / without, 100 at once",
        above=(OURS, "pipeline"),
        below=("craftcore without records", "pipeline"),
        floor=0.67,
        aim=0.75,
    ),
    Promise(
        title="100 producers / raw single commits",
        above=(OURS, "emit-100"),
        below=("raw SQLite", "emit-1"),
        floor=7,
        aim=10,
    ),
    Promise(
        title="1 producer / raw single commits",
        above=(OURS, "emit-1"),
        below=("raw SQLite", "emit-1"),
        floor=0.65,
        aim=0.8,
    ),
    Promise(
        title="emit_many(1000) / raw batches of 1,000",
        above=(OURS, "bulk"),
        below=("raw SQLite", "bulk"),
        floor=0.5,
        aim=0.7,
    ),
    Promise(
        title="latency p50 / persist-queue",
        above=(OURS, "latency"),
        below=("persist-queue", "latency"),
        floor=1.5,
        aim=1,
        at_most=True,
    ),
    Promise(
        title="drain with 1,000,000 settled rows / with 1,000",
        above=(OURS, "history-1000000"),
        below=(OURS, "history-1000"),
        floor=0.85,
        aim=0.95,
    ),
    Promise(
        title="drain with 10,000,000 settled rows / with 1,000",
        above=(OURS, "history-10000000"),
        below=(OURS, "history-1000"),
        floor=0.85,
        aim=0.95,
    ),
    Promise(
        title="boot with 1,000,000 pending rows / with none",
        above=(OURS, "boot-pending"),
        below=(OURS, "boot-none"),
        floor=1.3,
        aim=1.1,
        at_most=True,
    ),
    Promise(
        title="memory with 1,000,000 pending rows above that with none, MB",
        above=(OURS, "memory-pending"),
        below=(OURS, "memory-none"),
        floor=20,
        aim=5,
        at_most=True,
        is_difference=True,
    ),
)
