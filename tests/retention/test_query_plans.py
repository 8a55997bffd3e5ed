"""Query plans of retention: a batch costs the same in a large database, without a scan of a whole table."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from craftcore.executions.recorder import AttemptInfo, Recorder, Routed
from craftcore.retention.body_store import OLD_ARGUMENTS, OLD_BODIES
from craftcore.retention.cutoffs import NEVER, Cutoffs
from craftcore.retention.execution_store import OldLooseRecords, OldRecords
from craftcore.retention.history_store import OLD_OCCURRENCES, OldAudit
from craftcore.retention.task_store import OLD_TASKS
from craftcore.retention.trigger_store import OLD_TRIGGERS
from craftcore.storage.transaction import Transaction
from craftcore.triggers.settlement import Succeeded
from tests.retention.test_tasks import run_task_with_all_rows
from tests.support.activity_steps import DONE, an_activity
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.task_steps import begin
from tests.support.trigger_steps import emit, run_one, start_one
from tests.triggers.test_claim_plans import connection_of, steps_of, undone

FEW, MANY = 10, 20_000
ALL = Cutoffs(*[1e12] * len(Cutoffs._fields))
"""Cutoffs that every row is older than."""

TABLES = (
    *("triggers", "executions", "events", "blobs", "tasks", "waits", "questions", "mailbox", "activity_log"),
    *("activity_decisions", "schedule_occurrences", "audit_log"),
)

KINDS: dict[str, Any] = {
    "triggers": OLD_TRIGGERS,
    "bodies": OLD_BODIES,
    "arguments": OLD_ARGUMENTS,
    "tasks": OLD_TASKS,
    "records": OldRecords(),
    "loose records": OldLooseRecords(),
    "occurrences": OLD_OCCURRENCES,
    "log": OldAudit(),
}

COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :count)
INSERT INTO {table} ({columns}) SELECT {values} FROM {table}, numbers WHERE {table}.seq = :seq
"""


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
    """Yield a database with one removable row of each kind, and `number` dependent rows of a task that is kept."""
    core = VirtualCore(path, clock := VirtualClock())
    run_task_with_all_rows(core, clock)
    emit(core)
    recorder = Recorder()
    [record] = core.do(recorder.open_all, 1, [AttemptInfo(start_one(core), Routed("greet", "workflow"))])
    core.do(recorder.close_all, [(record, Succeeded(result_json="1"))])
    emit(core)
    run_one(core)
    kept = begin(core)
    an_activity(core, kept, DONE)
    with core.transaction() as tx:
        task, (activity,) = kept.task.seq, tx.fetch_tuples("SELECT max(seq) FROM activity_log")
        insert_copies(tx, "activity_log", activity[0], number, idem_key="idem_key || n")
        tx.run(
            "INSERT INTO questions (id, task_seq, kind, question, status, created_at, closed_at) "
            "SELECT 'q' || seq, :task, 'stale', '?', 'WITHDRAWN', 1, 1 FROM activity_log",
            task=task,
        )
        tx.run(
            "INSERT INTO mailbox (task_seq, event, payload_json, status, created_at) "
            "SELECT :task, 'x', '1', 'LEFT', 1 FROM activity_log",
            task=task,
        )
        tx.run(
            "INSERT INTO activity_decisions (activity_seq, decision, decided_by, decided_at) "
            "SELECT seq, 'happened', 'ada', 1 FROM activity_log WHERE task_seq = :task",
            task=task,
        )
        tx.run(
            "INSERT INTO waits (id, task_seq, turn, name, kind, due_at, status, resolved_by, created_at, resolved_at) "
            "SELECT 'w' || seq, :task, 1, 'n' || seq, 'timer', 1, 'RESOLVED', 'timer', 1, 1 FROM activity_log",
            task=task,
        )
        insert_copies(tx, "triggers", 1, number, id="id || n", status="'DONE'")
    yield core
    core.close()


def insert_copies(tx: Transaction, table: str, seq: int, number: int, **changes: str) -> None:
    columns = [row[1] for row in tx.fetch_tuples(f"PRAGMA table_info({table})") if row[1] != "seq"]
    values = ", ".join(changes.get(name, f"{table}.{name}") for name in columns)
    tx.run(COPY.format(table=table, columns=", ".join(columns), values=values), seq=seq, count=number)


def make_take(core: VirtualCore, kind: str) -> Callable[[Transaction], Any]:
    old = ALL if kind != "triggers" else ALL._replace(triggers=NEVER)
    rows = KINDS[kind]

    def take(tx: Transaction) -> Any:
        found = rows.find(tx, old, 0)
        return rows.take(tx, old, found.seqs or [1])

    return take


@pytest.mark.parametrize("kind", KINDS)
def test_retention_batch_scans_no_whole_table(large, kind):
    statements: dict[str, Any] = {}

    def record_statement(_cursor: object, sql: str, bindings: Any) -> bool:
        statements.setdefault(sql, bindings)
        return True

    with undone(large) as tx:
        connection_of(tx).exec_trace = record_statement
        make_take(large, kind)(tx)
        connection_of(tx).exec_trace = None
        plans = {
            sql: [row[3] for row in connection_of(tx).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
            for sql, bindings in statements.items()
        }

    assert plans
    lines = {(line, " ".join(sql.split())) for sql, plan in plans.items() for line in plan}
    scans = {(line, sql) for line, sql in lines if line.startswith(tuple(f"SCAN {table}" for table in TABLES))}
    assert {(line, sql) for line, sql in scans if not is_limited_scan(line, sql)} == set()


def is_limited_scan(line: str, sql: str) -> bool:
    """Return whether a scan reads only the newest row, a limited number of rows, or the records without an end."""
    if line == "SCAN executions USING INDEX executions_incomplete" or "max(seq)" in sql.lower():
        return True
    return sql.endswith(("ORDER BY seq LIMIT :looked_at", "ORDER BY seq LIMIT :window)"))


@pytest.mark.parametrize("kind", ["tasks", "records", "bodies", "arguments", "loose records", "log", "occurrences"])
def test_retention_batch_cost_does_not_grow_with_unrelated_rows(small, large, kind):
    """The rows belong to a live task. Each deletion checks whether one of them refers to the deleted row."""

    def steps(core: VirtualCore) -> int:
        rows = KINDS[kind]
        with undone(core) as tx:
            found = rows.find(tx, ALL, 0)
            return steps_of(tx, lambda: rows.take(tx, ALL, found.seqs[:20] or [1]))

    assert steps(large) <= steps(small) + 500


@pytest.mark.parametrize("index", ["questions_task", "mailbox_task", "activity_log_task", "questions_of"])
def test_deletion_scans_the_table_without_the_retention_index(large, index):
    """Without the index, the same batch scans twenty thousand rows."""

    def steps(*, without: bool) -> int:
        with undone(large) as tx:
            if without:
                tx.run(f"DROP INDEX {index}")
            old = KINDS["tasks"]
            found = old.find(tx, ALL, 0)
            assert found.seqs
            return steps_of(tx, lambda: old.take(tx, ALL, found.seqs))

    assert steps(without=True) > steps(without=False) + MANY


def test_retention_indexes_exist_only_on_activity_log_questions_and_mailbox():
    sql = (Path(__file__).parents[2] / "migrations" / "0006_retention.sql").read_text()
    indexed = [line.split(" ON ")[1].split()[0] for line in sql.splitlines() if line.startswith("CREATE INDEX")]
    assert set(indexed) == {"activity_log", "questions", "mailbox"}
