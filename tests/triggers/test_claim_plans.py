"""Query plans of the statements of a claim: index searches only, and no visits to rows that are not claimed.

The table of these tests holds 20,000 triggers due soon and 20,000 settled ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import apsw
import pytest

from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.storage.transaction import Transaction
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.claim_service import Started
from craftcore.triggers.model import TriggerSpec
from craftcore.triggers.settlement import Outcome, Released, Succeeded
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore, a_trigger
from tests.support.trigger_steps import BROKEN

MANY = 20_000

SCANS = ("SCAN triggers", "SCAN executions", "SCAN events")
BOOT_SCAN = "SCAN triggers USING INDEX triggers_claimed"
"""A scan at boot of the partial index that holds only claimed triggers."""

FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)
INSERT INTO triggers (
    id, source, workflow, fire_at, due_at, priority, lane, session_id, payload_json,
    status, reason, dedup_key, dedup_scope, created_at, updated_at, settled_at
)
SELECT :prefix || n, 'IMMEDIATE', 'greet', :fire_at + n * 1e-3, :fire_at + n * 1e-3, 5 + n % 5, :lane, :lane, '{}',
       :status, :reason, :prefix || n, 'ever', :now, :now, :settled_at
  FROM numbers
"""


def fill(tx, prefix, *, fire_at, lane=None, settled=False, many=MANY):
    tx.run(
        FILL,
        many=many,
        prefix=prefix,
        fire_at=fire_at,
        lane=lane,
        status="DONE" if settled else "PENDING",
        reason="succeeded" if settled else None,
        settled_at=NEW_YEAR if settled else None,
        now=NEW_YEAR,
    )


@pytest.fixture(scope="module")
def large(tmp_path_factory) -> Iterator[VirtualCore]:
    core = VirtualCore(tmp_path_factory.mktemp("crowded") / "agent.db", VirtualClock())
    with core.transaction() as tx:
        fill(tx, "soon-", fire_at=NEW_YEAR + 10)
        fill(tx, "done-", fire_at=NEW_YEAR - 1e6, settled=True)
    yield core
    core.close()


@pytest.fixture(scope="module")
def empty(tmp_path_factory) -> Iterator[VirtualCore]:
    core = VirtualCore(tmp_path_factory.mktemp("empty") / "agent.db", VirtualClock())
    yield core
    core.close()


@contextmanager
def undone(core: VirtualCore) -> Iterator[Transaction]:
    """Yield a transaction that is rolled back."""
    connection = core.database.connect()
    connection.execute("BEGIN IMMEDIATE")
    yield Transaction(connection, core.clock.now())
    connection.execute("ROLLBACK")
    connection.close()


def connection_of(tx: Transaction) -> apsw.Connection:
    return tx._connection


def steps_of(tx: Transaction, work: Callable[[], object]) -> int:
    """Return the number of VM steps of some work, which grows with the visited rows."""
    steps = 0

    def count(event):
        nonlocal steps
        steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    connection_of(tx).trace_v2(apsw.SQLITE_TRACE_PROFILE, count)
    work()
    connection_of(tx).trace_v2(0, None)
    return steps


def run_all_rules(core: VirtualCore, tx: Transaction) -> None:
    """Run each rule that the engine uses, and each that finds a row by id or key."""
    triggers, leases, recorder = core.triggers, core.claims, Recorder()
    specs = [
        a_trigger(dedup_key="key", session_id="s"),
        a_trigger(id="mine"),
        a_trigger(task_id="t", priority=1),
        a_trigger(session_id="s", source="MESSAGE", supersedes="session"),
        a_trigger(dedup_key="soon-7"),
        a_trigger(dedup_key="soon-8", on_duplicate="replace"),
    ]
    triggers.emit_all(tx, [triggers.accept(spec) for spec in specs])
    claims = leases.claim(tx, epoch=1, limit=10, busy_lanes=["x", "y"]).claims
    leases.extend_leases(tx, 1)
    leases.cancel_requests(tx, 1)
    leases.reclaim_strays(tx, 1, {(claim.seq, claim.lease_token) for claim in claims[1:]})
    answers = leases.start_all(tx, claims)
    started = [answer.claim for answer in answers if isinstance(answer, Started)]
    records = recorder.open_all(tx, 1, [AttemptInfo(claim, Routed("greet", "explicit workflow")) for claim in started])
    outcomes: list[Outcome] = [Succeeded(), BROKEN, Released(reason="shutdown"), Succeeded()]
    leases.settle_all(tx, list(zip(started, outcomes, strict=False)), lambda _: RetryPolicy())
    recorder.close_all(tx, list(zip(records, outcomes, strict=False)))
    leases.claim(tx, epoch=1, limit=1, before_rank=NEW_YEAR + 1e6)
    leases.release_epoch(tx, 1)
    leases.claim(tx, epoch=1, limit=1)
    leases.reclaim(tx, 2)
    triggers.cancel(tx, "soon-9")


def test_statements_of_a_claim_seek_and_never_scan_the_table(large):
    statements: dict[str, Any] = {}

    def record_statement(_cursor, sql, bindings):
        statements.setdefault(sql, bindings)
        return True

    with undone(large) as tx:
        connection_of(tx).exec_trace = record_statement
        run_all_rules(large, tx)
        connection_of(tx).exec_trace = None

        plans = {
            sql: [row[3] for row in connection_of(tx).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
            for sql, bindings in statements.items()
        }

    assert len(plans) > 15
    lines = {(line, sql) for sql, plan in plans.items() for line in plan}
    scans = {(line, sql) for line, sql in lines if line.startswith(SCANS) and line != BOOT_SCAN}
    sorts = {(line, sql) for line, sql in lines if "TEMP B-TREE" in line and "triggers" in sql}
    assert scans == set()
    assert sorts == set()


def test_plan_check_detects_a_table_scan(large):
    with undone(large) as tx:
        plan = [row[3] for row in tx.fetch_tuples("EXPLAIN QUERY PLAN SELECT id FROM triggers WHERE reason = 'x'")]

    assert plan == ["SCAN triggers"]


def claim_steps(core: VirtualCore, tx: Transaction, **how: Any) -> int:
    """Return the VM steps of a claim with ten due triggers."""
    due = [TriggerSpec(workflow="greet", priority=priority, at=NEW_YEAR - 1) for priority in [5, 6, 7, 8, 9] * 2]
    core.triggers.emit_all(tx, [core.triggers.accept(spec) for spec in due])
    arguments = {"epoch": 1, "limit": 100, **how}
    return steps_of(tx, lambda: core.claims.claim(tx, **arguments))


def test_claim_cost_is_independent_of_future_and_settled_triggers(large, empty):
    with undone(empty) as tx:
        alone = claim_steps(empty, tx)
    with undone(large) as tx:
        among_many = claim_steps(large, tx)

    assert among_many <= alone + 1_000


def test_idle_poll_visits_no_row_that_is_not_due(large):
    with undone(large) as tx:
        steps = steps_of(tx, lambda: large.claims.claim(tx, epoch=1, limit=100))

    assert steps < 1_000


def test_claim_visits_no_due_trigger_beyond_the_limit(large, empty):
    """A claim of ten among twenty thousand due triggers without a lane costs the same as among twenty."""
    with undone(empty) as tx:
        fill(tx, "due-", fire_at=NEW_YEAR - 1e5, many=20)
        few = claim_steps(empty, tx, limit=10)
    with undone(large) as tx:
        tx.run("UPDATE triggers SET fire_at = fire_at - 1e5, due_at = due_at - 1e5 WHERE status = 'PENDING'")
        many = claim_steps(large, tx, limit=10)

    assert many <= few + 1_000


def test_claim_visits_a_crowded_free_lane_only_up_to_its_share_of_the_window(empty):
    """A claim takes one of twenty thousand due messages of a session, and visits only a few others."""
    with undone(empty) as tx:
        fill(tx, "crowd-", fire_at=NEW_YEAR - 1e5, lane="crowd")
        steps = claim_steps(empty, tx, limit=10)

    assert steps < 5_000


def test_boot_finds_orphans_without_visiting_other_rows(large):
    with undone(large) as tx:
        large.claims.claim(tx, epoch=1, limit=0)
        steps = steps_of(tx, lambda: large.claims.reclaim(tx, 2))

    assert steps < 100
