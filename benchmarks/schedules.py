"""What a tick costs among 100, 10,000 and 100,000 schedules: when nothing is due, when one is, when a thousand are."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import apsw

from benchmarks import raw
from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.schedules.tick_service import Ticked
from craftcore.services import Services
from craftcore.storage.transaction import Transaction

SIZES = (100, 10_000, 100_000)
ROUNDS = 300
YEAR = 365 * 86_400.0

COPIES = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :more)
INSERT INTO schedules SELECT {values} FROM schedules, numbers WHERE schedules.id = 'job'
"""
DUE = """
UPDATE schedules
   SET anchor_at = anchor_at - 1800, high_water_at = :now - 3000, next_at = :now - 1800
 WHERE rowid BETWEEN :first AND :last
"""
LIVE = """
INSERT INTO triggers (id, source, workflow, schedule_id, nominal_at, fire_at, due_at, priority, payload_json,
                      created_at, updated_at)
SELECT 'trigger of ' || id, 'SCHEDULED', 'noop', id, :now, :now, :now, 30, '{}', :now, :now
  FROM schedules
 WHERE rowid <= :many
"""
WAITS = """
INSERT INTO schedule_occurrences (schedule_id, generation, cause, nominal_at, last_at, count, outcome, decided_at)
SELECT id, 0, 'time', :now, :now, 1, 'buffered', :now FROM schedules WHERE rowid <= :many
"""


class Stopped(SystemClock):
    """A clock that shows what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = float(int(time.time()))

    def now(self) -> float:
        return self.shown


@dataclass
class Cost:
    """Of one tick: what SQLite did for it, and the microseconds it took."""

    statements: int
    steps: int
    microseconds: float


class Bench:
    """A database with so many schedules, none of which is due."""

    def __init__(self, path: Path, number: int, **options: Any) -> None:
        self.clock = Stopped()
        self.core = Services(path, Config(), self.clock)
        self.core.prepare()
        spec = ScheduleSpec(**{"id": "job", "when": "every 1h", "workflow": "noop", **options})
        with self.core.transaction() as tx:
            self.core.schedules.put(tx, spec, Origin.OPERATOR)
            columns = [row[1] for row in tx.fetch_tuples("PRAGMA table_info(schedules)")]
            values = ["'job-' || n" if name == "id" else name for name in columns]
            if number > 1:
                tx.run(COPIES.format(values=", ".join(values)), more=number - 1)
        self.connection = self.core.database.connect()

    @contextmanager
    def undone(self) -> Iterator[Transaction]:
        """A transaction of which nothing stays."""
        self.connection.execute("BEGIN IMMEDIATE")
        yield Transaction(self.connection, self.clock.now())
        self.connection.execute("ROLLBACK")

    def cost(self, *, fires: int, before: Callable[[Transaction, int], object] | None = None) -> Cost:
        """Of a tick that fires so many; what `before` does is done before each and not counted."""
        times: list[float] = []
        counts = [0, 0]
        for number in range(ROUNDS):
            with self.undone() as tx:
                if before is not None:
                    before(tx, number)
                if number == 0:
                    self._count_into(counts)
                began = time.perf_counter()
                ticked = self.core.ticks.tick(tx)
                times.append(time.perf_counter() - began)
                self.connection.trace_v2(0, None)
                assert ticked.fired == fires, (ticked.fired, fires)
        return Cost(counts[0], counts[1], median(times) * 1e6)

    def _count_into(self, counts: list[int]) -> None:
        def count(event: dict[str, Any]) -> None:
            counts[0] += 1
            counts[1] += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

        self.connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, count)

    def tick_until_done(self) -> tuple[float, list[Ticked]]:
        """Ticks through the door, each on disk before the next; the seconds they took."""
        ticks: list[Ticked] = []
        began = time.perf_counter()
        while not ticks or ticks[-1].more:
            with self.core.transaction() as tx:
                ticks.append(self.core.ticks.tick(tx))
        return time.perf_counter() - began, ticks


def main() -> None:
    """Print what a tick costs, and how that grows."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        benches = {number: Bench(folder / f"{number}.db", number) for number in SIZES}
        one_tick("nothing is due", benches, at_most=1.1, fires=0)
        one_tick("one is due", benches, at_most=1.1, fires=1, before=lambda tx, n: due(tx, n % 90 + 1, n % 90 + 1))
        waiting(benches[10_000])
        many_due(folder, benches)
        a_year_of_seconds(folder)


def one_tick(what: str, benches: dict[int, Bench], *, at_most: float, **how: Any) -> None:
    """The cost of a tick by number of schedules, as ratios to the least."""
    costs = {number: bench.cost(**how) for number, bench in benches.items()}
    least = costs[SIZES[0]]
    for number, cost in costs.items():
        print(
            f"  {what:15} among {number:>7,}: {cost.statements:>3} statements {cost.steps:>7,} steps "
            f"{cost.microseconds:>8.0f} µs   steps {cost.steps / least.steps:.2f}  "
            f"time {cost.microseconds / least.microseconds:.2f}    (steps at most {at_most})"
        )


def waiting(bench: Bench) -> None:
    """Occurrences that wait for an earlier one are looked at by each tick: what a thousand of them add."""
    idle = bench.cost(fires=0)
    with bench.core.transaction() as tx:
        tx.run(LIVE, many=1000, now=tx.now)
        tx.run(WAITS, many=1000, now=tx.now)
    full = bench.cost(fires=0)
    with bench.core.transaction() as tx:
        tx.run("DELETE FROM schedule_occurrences")
        tx.run("DELETE FROM triggers")
    print(
        f"  1,000 that wait for an earlier one add {(full.steps - idle.steps) / 1000:.0f} steps and "
        f"{(full.microseconds - idle.microseconds) / 1000:.2f} µs each to a tick"
    )


def many_due(folder: Path, benches: dict[int, Bench]) -> None:
    """A thousand come due at one moment, alone and among others; ten thousand do."""
    base = raw.batches(raw.fresh(folder / "raw.db"), 20_000, size=100)
    print(f"  raw batches of 100 triggers                {base:10,.0f} /s")
    cases = [("1,000 due at once", number, 1_000) for number in SIZES[1:]]
    for what, number, many in [*cases, ("10,000 due at once", 10_000, 10_000)]:
        bench = benches[number]
        with bench.core.transaction() as tx:
            tx.run("DELETE FROM schedule_occurrences")
            tx.run("DELETE FROM triggers")
            due(tx, 1, many)
        seconds, ticks = bench.tick_until_done()
        assert sum(ticked.fired for ticked in ticks) == many
        print(
            f"  {what:18} among {number:>7,}: {many / seconds:10,.0f} /s in {len(ticks)} commits, "
            f"{seconds / len(ticks) * 1000:.1f} ms each, {many / seconds / base:.2f} of raw"
        )


def a_year_of_seconds(folder: Path) -> None:
    """`every 1s` and nothing ran for a year."""
    bench = Bench(folder / "year.db", 1, when="every 1s")
    bench.clock.shown += YEAR
    seconds, ticks = bench.tick_until_done()
    with bench.core.reading() as reader:
        rows, count = next(iter(reader.fetch_tuples("SELECT count(*), sum(count) FROM schedule_occurrences")))
    what = f"{count:,} occurrences in {rows} rows and {len(ticks)} commit"
    print(f"  every 1s after a year: {what}, {seconds * 1000:.1f} ms")


def due(tx: Transaction, first: int, last: int) -> None:
    """These came half an hour ago, and nothing of that is accounted for."""
    tx.run(DUE, now=tx.now, first=first, last=last)


if __name__ == "__main__":
    main()
