"""Query plans of the ledger with 10,000 settled activities: each statement visits only the rows it returns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from craftcore.activities.model import Activity, ActivityStatus, Decision, StartedCall
from craftcore.executions.model import EventType
from craftcore.storage.transaction import Transaction, keys_like
from craftcore.tasks.activity_events import ActEnd, NewAct
from craftcore.tasks.turn_event_store import NewEvent
from tests.support.activity_steps import DONE, LEDGER, LISTING, REFUSED, STORE, UNKNOWN, an_activity, an_intent, decide
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.task_steps import Running, begin, finish
from tests.triggers.test_claim_plans import connection_of, steps_of, undone

HANDFUL, CROWD = 10, 10_000

WALKS = tuple(f"SCAN {table}" for table in ("activity_log", "activity_decisions", "questions", "tasks", "events"))
OVER_WHAT_IS_IN_DOUBT = "SCAN activity_log USING INDEX activity_log_in_doubt"
"""That index holds what is in doubt and nothing else."""

IF_A_KEY_IS_BROKEN = ("SCAN questions", "INSERT INTO activity_log")
"""Whether the new row mends a foreign key: looked for while one is broken, which never is before an INSERT."""

COPY = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :more)
INSERT INTO {table} ({columns})
SELECT {values} FROM {table}, numbers WHERE {table}.seq = :seq
"""


@dataclass(frozen=True)
class Filled:
    """`running`: a turn that is running, beside all that is over."""

    core: VirtualCore
    running: Running


@pytest.fixture(scope="module")
def handful(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with filled(tmp_path_factory.mktemp("handful") / "agent.db", HANDFUL) as it:
        yield it


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Filled]:
    with filled(tmp_path_factory.mktemp("crowd") / "agent.db", CROWD) as it:
        yield it


@contextmanager
def filled(path: Path, number: int) -> Iterator[Filled]:
    """So many activities that are done, and as many that were refused, given up and answered for."""
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


def begin_acts(it: Filled, tx: Transaction, *places: str, again: Activity | None = None) -> list[Any]:
    intended = event(it.running, EventType.ACTIVITY_INTENT)
    return it.core.acts.begin_all(tx, [NewAct(an_intent(it.running, place), intended, again) for place in places])


def settle_acts(it: Filled, tx: Transaction, *calls: StartedCall) -> None:
    ending = event(it.running, EventType.ACTIVITY_UNKNOWN)
    assert it.core.acts.settle_all(tx, [ActEnd(call, UNKNOWN, ending) for call in calls]) == [True] * len(calls)


def whole_life(it: Filled, tx: Transaction) -> None:
    """Every rule of the ledger, and every one that finds an activity or what is asked about it."""
    acts, task_seq = it.core.acts, it.running.task.seq
    settle_acts(it, tx, *begin_acts(it, tx, "1.1", "1.2", "1.3", "1.4"))
    acts.intent_of(tx, an_intent(it.running, "1.1"))
    found = [acts.find(tx, an_intent(it.running, f"1.{n}").key) for n in (1, 2, 3, 4)]
    first, second, third, fourth = [one for one in found if one is not None]
    acts.decide(tx, first, Decision.HAPPENED, "reconcile", "ref", event(it.running, EventType.ACTIVITY_RESOLVED))
    begin_acts(it, tx, "1.2", again=second)
    tx.run("UPDATE tasks SET status = 'CANCELLED', ended_at = 1 WHERE seq = :seq", seq=task_seq)
    acts.ask_at_end(tx, [task_seq])
    it.core.deciding.decide(tx, third.key, Decision.HAPPENED, decided_by="ada")
    it.core.deciding.decide(tx, fourth.key, Decision.RESEND, decided_by="ada")
    assert acts.mark_interrupted(tx) == 1
    LISTING.count_in_doubt(tx)
    LISTING.list_newest(tx, 10)
    LISTING.list_newest(tx, 10, task_id=it.running.task.id)
    LISTING.list_newest(tx, 10, status=ActivityStatus.UNKNOWN)
    keys_like(tx, "activity_log", "activity:x", key="idem_key")
    LISTING.decisions(tx, third.seq)
    LISTING.list_history(tx, third)


SHOWS_THE_NEWEST = "ORDER BY seq DESC LIMIT :limit"
"""It walks from the newest on, as far as what it is to show."""


def test_activity_statements_never_scan_a_table(crowd):
    statements: dict[str, Any] = {}

    def note(_cursor: object, sql: str, bindings: Any) -> bool:
        statements.setdefault(sql, bindings)
        return True

    with undone(crowd.core) as tx:
        connection_of(tx).exec_trace = note
        whole_life(crowd, tx)
        connection_of(tx).exec_trace = None
        plans = {
            sql: [row[3] for row in connection_of(tx).execute(f"EXPLAIN QUERY PLAN {sql}", bindings)]
            for sql, bindings in statements.items()
        }

    assert len(plans) > 25
    lines = {(line, " ".join(sql.split())) for sql, plan in plans.items() for line in plan}
    assert {(line, sql) for line, sql in lines if line.startswith(WALKS) and not may_walk(line, sql)} == set()


def may_walk(line: str, sql: str) -> bool:
    if line == OVER_WHAT_IS_IN_DOUBT or sql.endswith(SHOWS_THE_NEWEST):
        return True
    return line == IF_A_KEY_IS_BROKEN[0] and sql.startswith(IF_A_KEY_IS_BROKEN[1])


def test_plan_check_detects_a_scan_of_activities(crowd):
    with undone(crowd.core) as tx:
        sql = "EXPLAIN QUERY PLAN SELECT seq FROM activity_log WHERE args_hash = 'x'"
        plan = [row[3] for row in tx.fetch_tuples(sql)]

    assert plan == ["SCAN activity_log"]


def steps(it: Filled, work: Callable[[Transaction], object], before: Callable[[Transaction], object]) -> int:
    """Steps of SQLite's machine, in a transaction of which nothing stays."""
    with undone(it.core) as tx:
        before(tx)
        return steps_of(tx, lambda: work(tx))


LOOKS: dict[str, Callable[[Filled, Transaction], object]] = {
    "acts that are known": lambda it, tx: STORE.find_by_keys(
        tx, [an_intent(it.running, f"1.{n}").key for n in (1, 2, 99)]
    ),
    "what has no end": lambda it, tx: STORE.intents(tx),
    "what is in doubt of a task": lambda it, tx: STORE.list_undecided(tx, [it.running.task.seq]),
    "what is in doubt of a task that has ended": lambda it, tx: STORE.list_undecided(tx, [1]),
    "what is in doubt at all": lambda it, tx: LISTING.count_in_doubt(tx),
    "the newest": lambda it, tx: LISTING.list_newest(tx, 5),
    "the newest of a task": lambda it, tx: LISTING.list_newest(tx, 5, task_id=it.running.task.id),
    "the newest that have no end": lambda it, tx: LISTING.list_newest(tx, 5, status=ActivityStatus.INTENT),
    "the end of a task": lambda it, tx: it.core.acts.ask_at_end(tx, [it.running.task.seq]),
    "a boot": lambda it, tx: LEDGER.mark_interrupted(tx),
    "an act": lambda it, tx: settle_acts(it, tx, *begin_acts(it, tx, "2.1")),
    "a decision": lambda it, tx: it.core.deciding.decide(
        tx, an_intent(it.running, "1.2").key, Decision.GIVE_UP, decided_by="ada"
    ),
}


@pytest.mark.parametrize("look", LOOKS)
def test_ten_thousand_that_are_over_cost_no_step_more_than_ten(handful, crowd, look):
    """Beside a call that has no end, and one that is in doubt."""

    def work(it: Filled) -> int:
        def some_open(tx: Transaction) -> None:
            _, doubt, refused = begin_acts(it, tx, "1.1", "1.2", "1.3")
            settle_acts(it, tx, doubt)
            STORE.settle_all(tx, [(refused, REFUSED)])
            tx.run("UPDATE tasks SET status = 'CANCELLED', ended_at = 1 WHERE seq = :seq", seq=it.running.task.seq)

        return steps(it, lambda tx: LOOKS[look](it, tx), some_open)

    assert work(crowd) <= work(handful) + 50
    assert work(crowd) < 2_500


def test_doubt_query_of_a_task_with_ten_thousand_acts_is_as_fast(handful, crowd):
    def work(it: Filled) -> int:
        return steps(it, lambda tx: it.core.acts.ask_at_end(tx, [1]), lambda tx: None)

    assert work(crowd) == work(handful) < 500
