"""Query plans of the ledger with 10,000 settled activities: each statement visits only the rows it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from craftcore.activities.model import Activity, ActivityStatus, Decision, StartedCall
from craftcore.activities.store import ActivityStore
from craftcore.executions.model import EventType
from craftcore.storage.transaction import Transaction, keys_like
from craftcore.tasks.activity_events import ActEnd, NewAct
from craftcore.tasks.turn_event_store import NewEvent
from tests.support.activity_steps import DONE, LEDGER, LISTING, REFUSED, STORE, UNKNOWN, an_activity, an_intent, decide
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.task_steps import Running, begin, finish
from tests.triggers.test_claim_plans import connection_of, steps_of, undone

FEW, MANY = 10, 10_000

SCANS = tuple(f"SCAN {table}" for table in ("activity_log", "activity_decisions", "questions", "tasks", "events"))
DOUBT_SCAN = "SCAN activity_log USING INDEX activity_log_in_doubt"
"""A scan of the partial index that holds only activities in doubt."""

FOREIGN_KEY_SCAN = ("SCAN questions", "INSERT INTO activity_log")
"""SQLite runs this scan only while a foreign key is violated, which is never the case before an INSERT."""

COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :more)
INSERT INTO {table} ({columns})
SELECT {values} FROM {table}, numbers WHERE {table}.seq = :seq
"""


@dataclass(frozen=True)
class Filled:
    """A database with settled activities, and a running turn."""

    core: VirtualCore
    running: Running


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with fill_database(tmp_path_factory.mktemp("handful") / "agent.db", FEW) as filled:
        yield filled


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with fill_database(tmp_path_factory.mktemp("crowd") / "agent.db", MANY) as filled:
        yield filled


@contextmanager
def fill_database(path: Path, number: int) -> Iterator[Filled]:
    """Yield a database with `number` activities of each settled kind: done, refused and given up."""
    core = VirtualCore(path, VirtualClock())
    running = begin(core)
    ends = [DONE, REFUSED, UNKNOWN]
    doubt = [an_activity(core, running, end, f"1.{n}") for n, end in enumerate(ends, 1)][-1]
    decide(core, doubt, Decision.GIVE_UP)
    finish(core, running)
    with core.transaction() as tx:
        for seq, _ in enumerate(ends, 1):
            copy(tx, "activity_log", seq, number, idem_key="idem_key || '-' || n")
        tx.run(
            """
            INSERT INTO questions (id, task_seq, activity_seq, kind, question, status, created_at, closed_at)
            SELECT 'asked-' || seq, task_seq, seq, 'activity', 'Did it happen?', 'WITHDRAWN', :now, :now
              FROM activity_log
            """,
            now=tx.now,
        )
    yield Filled(core, begin(core))
    core.close()


def copy(tx: Transaction, table: str, seq: int, more: int, **changes: str) -> None:
    columns = [row[1] for row in tx.fetch_tuples(f"PRAGMA table_info({table})") if row[1] != "seq"]
    values = ", ".join(changes.get(name, name) for name in columns)
    tx.run(COPY.format(table=table, columns=", ".join(columns), values=values), seq=seq, more=more)


def event(running: Running, type_: EventType) -> NewEvent:
    claim, task = running.claim, running.task
    return NewEvent(claim.seq, claim.lease_token, running.record.seq, task.seq, task.turn, type_, "{}", None)


def begin_acts(filled: Filled, tx: Transaction, *places: str, again: Activity | None = None) -> list[Any]:
    intent_event = event(filled.running, EventType.ACTIVITY_INTENT)
    return filled.core.acts.begin_all(
        tx, [NewAct(an_intent(filled.running, place), intent_event, again) for place in places]
    )


def settle_acts(filled: Filled, tx: Transaction, *calls: StartedCall) -> None:
    end_event = event(filled.running, EventType.ACTIVITY_UNKNOWN)
    assert filled.core.acts.settle_all(tx, [ActEnd(call, UNKNOWN, end_event) for call in calls]) == [True] * len(calls)


def run_all_rules(filled: Filled, tx: Transaction) -> None:
    """Run each rule and each query of the ledger."""
    acts, task_seq = filled.core.acts, filled.running.task.seq
    settle_acts(filled, tx, *begin_acts(filled, tx, "1.1", "1.2", "1.3", "1.4"))
    acts.intent_of(tx, an_intent(filled.running, "1.1"))
    found = [ActivityStore().get(tx, an_intent(filled.running, f"1.{n}").key) for n in (1, 2, 3, 4)]
    first, second, third, fourth = [one for one in found if one is not None]
    acts.decide(tx, first, Decision.HAPPENED, "reconcile", "ref", event(filled.running, EventType.ACTIVITY_RESOLVED))
    begin_acts(filled, tx, "1.2", again=second)
    tx.run("UPDATE tasks SET status = 'CANCELLED', ended_at = 1 WHERE seq = :seq", seq=task_seq)
    acts.ask_at_end(tx, [task_seq])
    filled.core.activity_decisions.decide(tx, third.key, Decision.HAPPENED, decided_by="ada")
    filled.core.activity_decisions.decide(tx, fourth.key, Decision.RESEND, decided_by="ada")
    assert acts.mark_interrupted(tx) == 1
    LISTING.count_in_doubt(tx)
    LISTING.list_newest(tx, 10)
    LISTING.list_newest(tx, 10, task_id=filled.running.task.id)
    LISTING.list_newest(tx, 10, status=ActivityStatus.UNKNOWN)
    keys_like(tx, "activity_log", "activity:x", key="idem_key")
    LISTING.decisions(tx, third.seq)
    LISTING.list_history(tx, third)


NEWEST_ORDER = "ORDER BY seq DESC LIMIT :limit"
"""The end of a statement that scans from the newest row, up to a limit."""


def test_activity_statements_never_scan_a_table(large):
    statements: dict[str, Any] = {}

    def record_statement(_cursor: object, sql: str, bindings: Any) -> bool:
        statements.setdefault(sql, bindings)
        return True

    with undone(large.core) as tx:
        connection_of(tx).exec_trace = record_statement
        run_all_rules(large, tx)
        connection_of(tx).exec_trace = None
        plans = {
            sql: [row[3] for row in connection_of(tx).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
            for sql, bindings in statements.items()
        }

    assert len(plans) > 25
    lines = {(line, " ".join(sql.split())) for sql, plan in plans.items() for line in plan}
    assert {(line, sql) for line, sql in lines if line.startswith(SCANS) and not may_scan(line, sql)} == set()


def may_scan(line: str, sql: str) -> bool:
    if line == DOUBT_SCAN or sql.endswith(NEWEST_ORDER):
        return True
    return line == FOREIGN_KEY_SCAN[0] and sql.startswith(FOREIGN_KEY_SCAN[1])


def test_plan_check_detects_a_scan_of_activities(large):
    with undone(large.core) as tx:
        sql = "EXPLAIN QUERY PLAN SELECT seq FROM activity_log WHERE args_hash = 'x'"
        plan = [row[3] for row in tx.fetch_tuples(sql)]

    assert plan == ["SCAN activity_log"]


def steps(filled: Filled, work: Callable[[Transaction], object], before: Callable[[Transaction], object]) -> int:
    """Return the VM steps of some work in a transaction that is rolled back."""
    with undone(filled.core) as tx:
        before(tx)
        return steps_of(tx, lambda: work(tx))


QUERIES: dict[str, Callable[[Filled, Transaction], object]] = {
    "known activities": lambda filled, tx: STORE.find_by_keys(
        tx, [an_intent(filled.running, f"1.{n}").key for n in (1, 2, 99)]
    ),
    "open intents": lambda filled, tx: STORE.intents(tx),
    "doubts of a task": lambda filled, tx: STORE.list_undecided(tx, [filled.running.task.seq]),
    "doubts of an ended task": lambda filled, tx: STORE.list_undecided(tx, [1]),
    "all doubts": lambda filled, tx: LISTING.count_in_doubt(tx),
    "newest": lambda filled, tx: LISTING.list_newest(tx, 5),
    "newest of a task": lambda filled, tx: LISTING.list_newest(tx, 5, task_id=filled.running.task.id),
    "newest open intents": lambda filled, tx: LISTING.list_newest(tx, 5, status=ActivityStatus.INTENT),
    "end of a task": lambda filled, tx: filled.core.acts.ask_at_end(tx, [filled.running.task.seq]),
    "boot": lambda filled, tx: LEDGER.mark_interrupted(tx),
    "call": lambda filled, tx: settle_acts(filled, tx, *begin_acts(filled, tx, "2.1")),
    "decision": lambda filled, tx: filled.core.activity_decisions.decide(
        tx, an_intent(filled.running, "1.2").key, Decision.GIVE_UP, decided_by="ada"
    ),
}


@pytest.mark.parametrize("query", QUERIES)
def test_query_cost_does_not_grow_with_settled_activities(small, large, query):
    """One activity is being called, one is in doubt, and one was refused."""

    def measure(filled: Filled) -> int:
        def add_open_activities(tx: Transaction) -> None:
            _, doubt, refused = begin_acts(filled, tx, "1.1", "1.2", "1.3")
            settle_acts(filled, tx, doubt)
            STORE.settle_all(tx, [(refused, REFUSED)])
            tx.run("UPDATE tasks SET status = 'CANCELLED', ended_at = 1 WHERE seq = :seq", seq=filled.running.task.seq)

        return steps(filled, lambda tx: QUERIES[query](filled, tx), add_open_activities)

    assert measure(large) <= measure(small) + 50
    assert measure(large) < 2_500


def test_doubt_query_cost_does_not_grow_with_settled_activities(small, large):
    def measure(filled: Filled) -> int:
        return steps(filled, lambda tx: filled.core.acts.ask_at_end(tx, [1]), lambda tx: None)

    assert measure(large) == measure(small) < 500
