"""What recording costs: a no-op workflow with full records against the same engine that writes none, in one run."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from benchmarks.engine import anew, end_to_end_rate
from craftcore.engine import engine
from craftcore.executions.recorder import AttemptInfo, Record, Recorder
from craftcore.storage.transaction import Transaction
from craftcore.triggers.settlement import Outcome

ROUNDS = 21
"""Short ones, one beside the other: what else the machine does falls on both."""
COUNT = 5_000
ONE_BY_ONE = 300


class Unrecorded(Recorder):
    """Writes nothing. There is no such setting: it is here to be compared with."""

    def open_all(self, tx: Transaction, epoch: int, attempts: Sequence[AttemptInfo]) -> list[Record]:
        return [Record(0, "", tx.now, attempt.routed, tx.now) for attempt in attempts]

    def close_all(self, tx: Transaction, ends: Sequence[tuple[Record, Outcome]]) -> None:
        pass


def main() -> None:
    """Each round measures both, one after the other; medians of the rounds' ratios."""
    found: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as name:
        for number in range(ROUNDS):
            path = Path(name) / f"round-{number}" / "bench.db"
            with unrecorded():
                bare = asyncio.run(end_to_end_rate(anew(path), COUNT, 100))
                bare_alone = asyncio.run(end_to_end_rate(anew(path), ONE_BY_ONE, 1))
            recorded = asyncio.run(end_to_end_rate(anew(path), COUNT, 100))
            alone = asyncio.run(end_to_end_rate(anew(path), ONE_BY_ONE, 1))
            for key, value in (
                ("recording off, 100 at once /s", bare),
                ("full records, 100 at once /s", recorded),
                ("full records / off, 100 at once", recorded / bare),
                ("full records / off, one by one", alone / bare_alone),
                ("a record takes, µs of the whole engine", 1e6 / recorded - 1e6 / bare),
            ):
                found.setdefault(key, []).append(value)
    wanted = {"full records / off, 100 at once": "at least 0.50, aim 0.67; "}
    for key, values in found.items():
        print(f"  {key:42} {median(values):12,.2f}    ({wanted.get(key, '')}{min(values):,.2f} to {max(values):,.2f})")


@contextmanager
def unrecorded() -> Iterator[None]:
    """Engines that are started in this block keep no records."""
    vars(engine)["Recorder"] = Unrecorded
    try:
        yield
    finally:
        vars(engine)["Recorder"] = Recorder


if __name__ == "__main__":
    main()
