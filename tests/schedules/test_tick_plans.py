"""Query plans of ticks: an idle tick costs the same with many schedules and a long past.

The large database of these tests has 10,000 schedules due in an hour or later, each with an occurrence, a settled
trigger and an ended task. The small database has ten of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import anyio
import pytest

from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.events import EngineEvents
from craftcore.engine.scheduler import ClockState, Scheduler
from craftcore.schedules.model import Overlap
from craftcore.schedules.tick_service import Ticked
from craftcore.storage.transaction import Transaction
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.schedule_steps import DAY, HOUR, put, tick
from tests.support.task_steps import enter_next, finish
from tests.triggers.test_claim_plans import connection_of, steps_of, undone

FEW, MANY = 10, 10_000

SCANS = ("SCAN schedules", "SCAN schedule_occurrences", "SCAN triggers", "SCAN tasks", "SCAN waiting")
BUFFERED_SCAN = "SCAN waiting USING INDEX occurrences_buffered"
"""A scan of the partial index that holds only buffered occurrences."""

CHANGED_COLUMNS = {
    "schedules": {"id": "'job-' || n", "next_at": "next_at + n * 1e-3"},
    "triggers": {"seq": "seq + n", "id": "id || n", "dedup_key": "dedup_key || n", "schedule_id": "'job-' || n"},
    "tasks": {"seq": "seq + n", "id": "id || n", "trigger_id": "id || n", "schedule_id": "'job-' || n"},
    "schedule_occurrences": {"seq": "seq + n", "trigger_id": "trigger_id || n", "schedule_id": "'job-' || n"},
}
"""Table -> columns in which the n-th copy of the first row differs."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCore]:
    with fill_database(tmp_path_factory.mktemp("handful") / "agent.db", FEW) as core:
        yield core


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualCore]:
    with fill_database(tmp_path_factory.mktemp("crowd") / "agent.db", MANY) as core:
        yield core


@contextmanager
def fill_database(path: Path, number: int) -> Iterator[VirtualCore]:
    """Yield a database with `number` schedules that have fired, each copied from the first."""
    core = VirtualCore(path, VirtualClock())
    put(core, overlap=Overlap.ALLOW)
    cast(VirtualClock, core.clock).advance(hours=1)
    tick(core)
    finish(core, enter_next(core))
    with core.transaction() as tx:
        for table, changes in CHANGED_COLUMNS.items():
            columns = [row[1] for row in tx.fetch_tuples(f"PRAGMA table_info({table})")]
            values = ", ".join(changes.get(name, name) for name in columns)
            tx.run(
                f"""
                WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :more)
                INSERT INTO {table} ({", ".join(columns)})
                SELECT {values} FROM {table}, numbers WHERE {table}.rowid = 1
                """,
                more=number - 1,
            )
    yield core
    core.close()


@dataclass
class Observer:
    """A scheduler, with an observation for its passes on the writer's thread."""

    scheduler: Scheduler
    seen: ClockState

    @classmethod
    def create(cls, core: VirtualCore) -> Observer:
        async def create() -> Observer:  # the constructor reads the clock of the event loop
            scheduler = Scheduler(core, cast(DurableCommits, None), cast(EngineEvents, None), epoch=1)
            return cls(scheduler, scheduler._observe())

        return anyio.run(create)

    def run_pass(self, tx: Transaction) -> Ticked:
        ticked = self.scheduler._poll(tx, self.seen)
        assert ticked is not None
        return ticked


def make_due(tx: Transaction, condition: str) -> None:
    """Make schedules due half an hour ago, without occurrences since then."""
    tx.run(
        f"""
        UPDATE schedules
           SET anchor_at     = anchor_at - 1800,
               high_water_at = :now - 3000,
               next_at       = :now - 1800
         WHERE {condition}
        """,
        now=tx.now,
    )


def steps_of_a_pass(
    core: VirtualCore, *, fires: int, due: str | None = None, after: Callable[[Transaction], None] | None = None
) -> int:
    """Return the VM steps of the second pass. Before it, `after` changes rows, and schedules with `due` become due."""
    observer = Observer.create(core)
    with undone(core) as tx:
        assert observer.run_pass(tx).fired == 0
        if after is not None:
            after(tx)
        if due is not None:
            make_due(tx, due)
        fired = []
        steps = steps_of(tx, lambda: fired.append(observer.run_pass(tx).fired))
    assert fired == [fires]
    return steps


def statements_of_a_pass(core: VirtualCore, tx: Transaction) -> list[tuple[str, Any]]:
    """Return each statement of a pass with its bindings."""
    statements: list[tuple[str, Any]] = []

    def record_statement(_cursor: object, sql: str, bindings: Any) -> bool:
        statements.append((sql, bindings))
        return True

    observer = Observer.create(core)
    connection_of(tx).exec_trace = record_statement
    observer.run_pass(tx)
    connection_of(tx).exec_trace = None
    return statements


def plans_of_a_pass(core: VirtualCore) -> set[tuple[str, str]]:
    """Return the lines of the plans, with their statements, of a pass with a due and a buffered occurrence."""
    with undone(core) as tx:
        make_due(tx, "id = 'job-7'")
        tx.run("UPDATE schedules SET overlap = 'buffer_one' WHERE id = 'job-7'")
        tx.run("UPDATE schedule_occurrences SET outcome = 'buffered', trigger_id = NULL WHERE seq = 5")
        tx.run("DELETE FROM triggers WHERE seq = 5")
        plans = {
            sql: [row[3] for row in connection_of(tx).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
            for sql, bindings in statements_of_a_pass(core, tx)
        }
        assert tx.fetch_value("SELECT count(*) FROM triggers WHERE status = 'PENDING'") == 2

    assert len(plans) > 10
    return {(line, sql) for sql, plan in plans.items() for line in plan}


def test_tick_statements_scan_no_table(large):
    lines = plans_of_a_pass(large)

    assert {(line, sql) for line, sql in lines if line.startswith(SCANS) and line != BUFFERED_SCAN} == set()


def test_tick_statements_use_no_temporary_sort(large):
    assert {(line, sql) for line, sql in plans_of_a_pass(large) if "TEMP B-TREE" in line} == set()


def test_query_plan_check_detects_a_scan_and_a_sort(large):
    with undone(large) as tx:
        sql = "EXPLAIN QUERY PLAN SELECT id FROM schedules WHERE reason = 'x' ORDER BY updated_at"
        plan = [row[3] for row in tx.fetch_tuples(sql)]

    assert plan == ["SCAN schedules", "USE TEMP B-TREE FOR ORDER BY"]


def test_idle_tick_cost_does_not_grow_with_the_number_of_schedules(small, large):
    assert steps_of_a_pass(large, fires=0) == steps_of_a_pass(small, fires=0) < 500


def test_due_schedule_cost_does_not_grow_with_the_number_of_schedules(small, large):
    one = "id = 'job-7'"

    assert steps_of_a_pass(large, fires=1, due=one) == steps_of_a_pass(small, fires=1, due=one)


def test_idle_tick_cost_does_not_grow_with_waiting_tasks(small, large):
    def wait_all(tx: Transaction) -> None:
        tx.run("UPDATE tasks SET status = 'WAITING', ended_at = NULL")

    assert steps_of_a_pass(large, fires=0, after=wait_all) == steps_of_a_pass(small, fires=0, after=wait_all) < 500


def test_tick_among_ten_thousand_due_schedules_visits_only_a_batch(large):
    batch = 100

    few = steps_of_a_pass(large, fires=batch, due=f"rowid <= {2 * batch}")
    many = steps_of_a_pass(large, fires=batch, due="id <> ''")

    assert many <= few + 1_000


def test_tick_after_a_year_of_seconds_runs_as_many_statements_as_after_an_hour(core, clock):
    put(core, when="every 1s")
    put(core, id="first", when="immediate")
    assert tick(core).fired, "the first tick also reads the id of the database"
    found = []
    for seconds in (HOUR, 365 * DAY):
        clock.advance(seconds)
        with undone(core) as tx:
            found.append(len(statements_of_a_pass(core, tx)))

    assert found[0] == found[1] < 30
