"""Lists of open questions: oldest first or most urgent first, each read from an index."""

from __future__ import annotations

from pathlib import Path

import pytest

from craftcore.storage.transaction import Transaction
from craftcore.tasks.model import Question
from craftcore.tasks.question_store import QuestionStore
from tests.executions.test_listing_plans import plans_of
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.filled_cores import filled_core
from tests.support.task_steps import a_question, begin, suspend
from tests.tasks.test_activities import suspend_in_doubt
from tests.triggers.test_claim_plans import steps_of, undone

HOUR = 3600
MANY, FEW, SHOWN = 20_000, 200, 5
STORE = QuestionStore()

ANSWERED = """
WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < :many)
INSERT INTO questions (id, task_seq, kind, question, status, answer, answered_by, created_at, expires_at, closed_at)
SELECT 'old-' || n, 1, 'ask', 'Send it?', 'ANSWERED', 'send', 'ada', :now, :now + n, :now FROM numbers
"""


def ask(core: VirtualCore, *, expires_in: float | None = None, deadline: float | None = None) -> str:
    """Begin a task that asks a question, and return its id."""
    running = begin(core, deadline=deadline)
    until = None if expires_in is None else core.clock.now() + expires_in
    suspend(core, running, a_question(until=until))
    return running.task.id


def tasks_of(core: VirtualCore, limit: int = 100) -> list[str]:
    with core.reading() as reader:
        found = STORE.list_urgent(reader, limit)
    return [one.task_id for one in found if isinstance(one, Question)]


def build(path: Path, answered: int) -> VirtualCore:
    """Build a database with three open questions, two of them asked after `answered` closed ones."""
    core = VirtualCore(path, VirtualClock())
    ask(core)
    with core.transaction() as tx:
        tx.run(ANSWERED, many=answered)
    ask(core, expires_in=HOUR)
    suspend_in_doubt(core)
    return core


large, small = filled_core(build, MANY), filled_core(build, FEW)


def test_urgent_questions_list_doubts_first_and_others_by_their_end(core):
    plain = ask(core)
    late = ask(core, expires_in=2 * HOUR)
    soon = ask(core, expires_in=60)
    middle = ask(core, deadline=HOUR)
    doubt = suspend_in_doubt(core)[0].task.id

    assert tasks_of(core) == [doubt, soon, middle, late, plain]


def test_earlier_of_expiry_and_deadline_counts(core):
    by_deadline = ask(core, expires_in=3 * HOUR, deadline=HOUR)
    by_expiry = ask(core, expires_in=2 * HOUR, deadline=4 * HOUR)

    assert tasks_of(core) == [by_deadline, by_expiry]


def test_deadline_of_an_ended_task_does_not_count(core, clock):
    """A question about an action in doubt outlives its task."""
    ended, _ = suspend_in_doubt(core)
    with core.transaction() as tx:
        tx.run("UPDATE tasks SET deadline_at = :now WHERE seq = :seq", seq=ended.task.seq)
    live, _ = suspend_in_doubt(core)
    with core.transaction() as tx:
        tx.run("UPDATE tasks SET deadline_at = :now + 60 WHERE seq = :seq", seq=live.task.seq)
    assert tasks_of(core) == [ended.task.id, live.task.id]

    core.do(core.tasks.cancel, ended.task.id)

    assert tasks_of(core) == [live.task.id, ended.task.id]


def test_limit_keeps_the_most_urgent_and_not_the_oldest(core):
    for _ in range(SHOWN):
        ask(core)
    soon = ask(core, expires_in=60)
    doubt = suspend_in_doubt(core)[0].task.id

    assert tasks_of(core, 2) == [doubt, soon]


def test_newest_question_was_asked_last(core, clock):
    ask(core, expires_in=HOUR)
    clock.advance(seconds=9)
    ask(core)

    with core.reading() as reader:
        assert STORE.newest_open_at(reader) == NEW_YEAR + 9


LISTS = {
    "oldest": lambda tx: STORE.open_ones(tx, SHOWN),
    "urgent": lambda tx: STORE.list_urgent(tx, SHOWN),
    "newest": STORE.newest_open_at,
}


@pytest.mark.parametrize("read_list", LISTS.values(), ids=LISTS)
def test_open_questions_are_found_by_their_index(large, read_list):
    plan = plans_of(large, read_list)

    [found] = [line for line in plan if "questions_open" in line]
    assert found in (
        "SCAN questions USING INDEX questions_open",
        "SCAN questions USING COVERING INDEX questions_open",
        "SEARCH questions USING COVERING INDEX questions_open",
    )
    assert {line for line in plan if line.startswith("SCAN")} <= {found}


@pytest.mark.parametrize("read_list", LISTS.values(), ids=LISTS)
def test_answered_questions_cost_nothing(large, small, read_list):
    def steps(core: VirtualCore) -> int:
        with undone(core) as tx:
            return steps_of(tx, lambda: read(tx))

    def read(tx: Transaction) -> None:
        assert read_list(tx)

    assert 0 < steps(large) <= steps(small) + 20
