"""Query plans of record lists: cost in proportion to the rows shown or to the index, without a table scan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from craftcore.executions.listing_store import ExecutionListStore, RecordFilter, RecordSummary
from craftcore.executions.model import Status
from craftcore.executions.record_store import RecordStore
from craftcore.storage.transaction import Transaction, keys_like
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.filled_cores import filled_core
from tests.triggers.test_claim_plans import connection_of, steps_of, undone

LISTING = ExecutionListStore()
MANY, FEW = 20_000, 200
SPECIAL = 10

FILL = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)
INSERT INTO executions (
    id, trigger_id, attempt, epoch, workflow, created_at, ended_at, status, replayable, replayable_reason,
    envelope_json, envelope_hash, response_json, error_code, latency_ms
)
SELECT 'exec-' || :prefix || n || '.1', :prefix || n, 1, 1, 'greet', :now + n, :now + n, :status,
       :response IS NOT NULL, CASE WHEN :response IS NULL THEN 'execution_incomplete' END, '{}', 'sha256:' || n,
       :response, :code, 1.5
  FROM numbers
"""


def fill(tx: Transaction, prefix: str, many: int, status: Status, *, code: str | None = None) -> None:
    response = "{}" if status in (Status.SUCCESS, Status.ERROR) else None
    tx.run(FILL, prefix=prefix, many=many, status=status, code=code, response=response, now=NEW_YEAR)


def build(path: Path, number: int) -> VirtualCore:
    """Write a few old records that failed or have no end, and then `number` records that succeeded."""
    core = VirtualCore(path, VirtualClock())
    with core.transaction() as tx:
        fill(tx, "lost-", SPECIAL, Status.INCOMPLETE)
        fill(tx, "late-", SPECIAL, Status.ERROR, code="AGENT_TIMEOUT")
        fill(tx, "bad-", SPECIAL, Status.ERROR, code="VALIDATION_ERROR")
        fill(tx, "fine-", number, Status.SUCCESS)
    return core


large, small = filled_core(build, MANY), filled_core(build, FEW)


BACKWARDS = "SCAN executions"
AUDIT = "SEARCH audit_log USING INDEX audit_log_subject (subject=?)"

PLANS: dict[str, tuple[RecordFilter, str]] = {
    "nothing": (RecordFilter(), BACKWARDS),
    "success": (RecordFilter(status=Status.SUCCESS), BACKWARDS),
    "suspended": (RecordFilter(status=Status.SUSPENDED), BACKWARDS),
    "error": (RecordFilter(status=Status.ERROR), f"{BACKWARDS} USING INDEX executions_error"),
    "incomplete": (RecordFilter(status=Status.INCOMPLETE), f"{BACKWARDS} USING INDEX executions_incomplete"),
    "error code": (RecordFilter(error_code="AGENT_TIMEOUT"), f"{BACKWARDS} USING INDEX executions_error"),
    "workflow": (RecordFilter(workflow="greet"), BACKWARDS),
    "since": (RecordFilter(since=NEW_YEAR), BACKWARDS),
    "until": (RecordFilter(until=4e9), BACKWARDS),
    "envelope hash": (RecordFilter(envelope_hash="sha256:7"), BACKWARDS),
}


def plans_of(core: VirtualCore, work: Callable[[Transaction], object]) -> list[str]:
    """Return the lines of the query plans of all statements that `work` runs."""
    statements: list[tuple[str, Any]] = []

    def record_statement(_cursor: object, sql: str, bindings: Any) -> bool:
        statements.append((sql, bindings))
        return True

    with undone(core) as tx:
        connection_of(tx).exec_trace = record_statement
        work(tx)
        connection_of(tx).exec_trace = None
        return [
            row[3] for sql, bindings in statements for row in tx.fetch_tuples(f"EXPLAIN QUERY PLAN {sql}", bindings)
        ]


@pytest.mark.parametrize("name", PLANS)
def test_record_list_reads_newest_first_without_sorting(large, name):
    filter_, scan = PLANS[name]

    plan = plans_of(large, lambda tx: LISTING.list_newest(tx, 5, filter_))

    assert [line for line in plan if line != "CORRELATED SCALAR SUBQUERY 1"] == [scan, AUDIT]


@pytest.mark.parametrize("name", ["nothing", "success", "workflow", "since", "until"])
def test_frequent_filter_match_costs_only_the_listed_rows(small, large, name):
    def steps(core: VirtualCore) -> int:
        with undone(core) as tx:
            return steps_of(tx, lambda: LISTING.list_newest(tx, 5, PLANS[name][0]))

    assert steps(large) <= steps(small) + 10


@pytest.mark.parametrize("name", ["error", "incomplete", "error code"])
def test_rare_filter_match_is_found_below_twenty_thousand_successes(small, large, name):
    def steps(core: VirtualCore) -> int:
        with undone(core) as tx:
            return steps_of(tx, lambda: LISTING.list_newest(tx, MANY, PLANS[name][0]))

    assert steps(large) <= steps(small) + 10


def test_plan_check_detects_a_scan_of_records(small, large):
    def steps(core: VirtualCore) -> int:
        with undone(core) as tx:
            return steps_of(tx, lambda: LISTING.list_newest(tx, 5, PLANS["envelope hash"][0]))

    assert steps(large) > 10 * steps(small)


def test_record_is_found_by_its_id_and_by_its_trigger(large):
    plan = plans_of(large, lambda tx: keys_like(tx, "executions", "exec-fine-7"))
    plan += plans_of(large, lambda tx: LISTING.ids_of(tx, "fine-7", 1))

    seek = "SEARCH executions USING COVERING INDEX executions_id (id>? AND id<?)"
    assert [line for line in plan if "TEMP B-TREE" not in line] == [seek, seek]
    assert not any(line.startswith("SCAN") for line in plans_of(large, lambda tx: RecordStore().get(tx, "exec-x.1")))


def test_record_before_another_of_a_task_is_found_by_the_index_of_tasks(large):
    plan = plans_of(large, lambda tx: LISTING.find_earlier(tx, "exec-fine-7.1"))

    assert any("USING COVERING INDEX executions_task" in line or "USING INDEX executions_task" in line for line in plan)
    assert not any(line.startswith("SCAN") or "TEMP B-TREE" in line for line in plan)


def test_error_codes_in_use_are_read_from_the_index_of_failures(large):
    plan = plans_of(large, LISTING.error_codes)

    assert "SCAN executions USING COVERING INDEX executions_error" in plan
    with large.reading() as reader:
        assert LISTING.error_codes(reader) == {"AGENT_TIMEOUT", "VALIDATION_ERROR"}


def test_list_filters_find_matching_records(large):
    def found(limit: int = MANY, **filter_: Any) -> list[str]:
        with large.reading() as reader:
            found = LISTING.list_newest(reader, limit, RecordFilter(**filter_))
            return [row.trigger_id for row in found if isinstance(row, RecordSummary)]

    assert found(2) == ["fine-20000", "fine-19999"]
    assert found(status=Status.INCOMPLETE) == [f"lost-{n}" for n in range(10, 0, -1)]
    assert found(status=Status.ERROR) == [f"{name}-{n}" for name in ("bad", "late") for n in range(10, 0, -1)]
    assert found(1, error_code="AGENT_TIMEOUT") == ["late-10"]
    assert found(status=Status.SUCCESS, error_code="AGENT_TIMEOUT") == []
    assert found(workflow="nothing") == []
    assert found(since=NEW_YEAR + 19_999) == ["fine-20000", "fine-19999"]
    assert found(status=Status.ERROR, until=NEW_YEAR + 2) == ["bad-1", "late-1"]
    assert found(envelope_hash="sha256:7") == ["fine-7", "bad-7", "late-7", "lost-7"]
