"""Ends of fired occurrences, read from their task, trigger or newest record."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from craftcore.schedules.model import Outcome, Overlap
from craftcore.schedules.occurrence_end_store import AccountLine, EndState, OccurrenceEnd, OccurrenceEndStore
from craftcore.storage.damaged_rows import Damaged
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.settlement import Cancelled, Failed, Succeeded
from tests.executions.test_listing_plans import plans_of
from tests.support.attempts import end, start_due
from tests.support.fakes import NEW_YEAR, VirtualClock, VirtualCore
from tests.support.retention_harness import only, sweep
from tests.support.schedule_steps import DAY, HOUR, put, start_daemon, tick, triggers
from tests.support.task_steps import a_sleep, enter_next, fail, finish, suspend
from tests.support.trigger_steps import BROKEN, HOPELESS, emit
from tests.triggers.test_claim_plans import steps_of, undone

STORE = OccurrenceEndStore()


def lines_of(core: VirtualCore, limit: int = 100, **how: Any) -> list[AccountLine]:
    with core.reading() as reader:
        found = STORE.list_lines(reader, "job", limit, **how)
    return [line for line in found if isinstance(line, AccountLine)]


def end_of(core: VirtualCore) -> OccurrenceEnd:
    line = lines_of(core)[0]
    assert line.end is not None, line
    return line.end


def fire(core: VirtualCore, clock: VirtualClock, **changes: Any) -> str:
    """Fire an occurrence an hour later, and return the id of its trigger."""
    put(core, **changes)
    clock.advance(hours=1)
    tick(core)
    return str(triggers(core)[-1]["id"])


def test_fired_occurrence_waits_until_its_trigger_starts(core, clock):
    fire(core, clock)

    assert end_of(core) == OccurrenceEnd(EndState.WAITS, "PENDING", attempts=0, is_kept=True)


def test_occurrence_at_work_began_with_its_first_record(core, clock):
    fire(core, clock)
    clock.advance(7)
    begun = start_due(core)

    found = end_of(core)

    assert (found.state, found.status, found.began_at) == (EndState.AT_WORK, "CLAIMED", clock.now())
    assert begun.id == f"exec-{triggers(core)[0]['id']}.1"


@pytest.mark.parametrize(
    ("outcome", "state", "status"),
    [
        (Succeeded(), EndState.DONE, "DONE"),
        (HOPELESS, EndState.FAILED, "FAILED"),
        (Cancelled(), EndState.DONE, "DONE"),
    ],
    ids=["succeeded", "failed", "cancelled"],
)
def test_end_of_a_kept_trigger_is_the_end_of_its_occurrence(core, clock, outcome, state, status):
    fire(core, clock)
    begun = start_due(core)
    clock.advance(5)
    end(core, begun, outcome)

    found = end_of(core)

    assert (found.state, found.status, found.ended_at) == (state, status, clock.now())
    assert found.is_kept
    assert found.error_code == getattr(outcome, "code", found.error_code)


def test_dead_letter_counts_its_attempts_and_began_with_the_first(core, clock):
    fire(core, clock)
    policy = RetryPolicy(max_attempts=2)
    began_at = clock.now()
    end(core, start_due(core), BROKEN, policy)
    clock.advance(hours=0.9)
    end(core, start_due(core), BROKEN, policy)

    found = end_of(core)

    assert (found.state, found.is_dead, found.attempts) == (EndState.FAILED, True, 2)
    assert (found.began_at, found.ended_at) == (began_at, clock.now())
    assert found.error_message == "it broke"


def test_cancelled_trigger_that_never_started_did_not_run(core, clock):
    trigger_id = fire(core, clock)
    core.do(core.triggers.cancel, trigger_id, "cancelled: wrong day")

    found = end_of(core)

    assert (found.state, found.reason, found.began_at) == (EndState.NOT_RUN, "cancelled: wrong day", None)


def test_end_of_a_task_has_priority_over_that_of_its_first_trigger(core, clock):
    fire(core, clock)
    suspend(core, enter_next(core), a_sleep(clock.now() + 60))
    assert (end_of(core).state, end_of(core).status) == (EndState.AT_WORK, "WAITING")

    clock.advance(60)
    fail(core, enter_next(core))

    found = end_of(core)
    assert (found.state, found.status, found.error_code) == (EndState.FAILED, "FAILED", HOPELESS.code)
    assert found.began_at == NEW_YEAR + HOUR


@pytest.mark.parametrize(
    ("outcome", "state", "status"),
    [(Succeeded(), EndState.DONE, "success"), (HOPELESS, EndState.FAILED, "error")],
    ids=["success", "error"],
)
def test_end_is_read_from_the_newest_record_after_retention_removed_the_trigger(core, clock, outcome, state, status):
    fire(core, clock)
    clock.advance(100)
    began_at = clock.now()
    first = start_due(core)
    end(core, first, Failed(code="AGENT_ERROR", message="it broke", retryable=True), RetryPolicy(max_attempts=3))
    clock.advance(hours=0.9)
    second = start_due(core)
    clock.advance(5)
    ended_at = clock.now()
    end(core, second, outcome)
    clock.advance(2 * DAY)
    sweep(core, only(triggers=DAY, dead=DAY, keys=DAY))
    clock.advance(30 * DAY)
    emit(core)  # retention keeps the newest row
    sweep(core, only(triggers=DAY, dead=DAY, keys=DAY))
    assert triggers(core) == []

    found = end_of(core)

    assert (found.state, found.status, found.record_id) == (state, status, second.id)
    assert (found.began_at, found.ended_at, found.attempts) == (began_at, ended_at, 2)
    assert not found.is_kept


def test_end_is_gone_with_the_last_record(core, clock):
    trigger_id = fire(core, clock)
    with core.transaction() as tx:
        tx.run("DELETE FROM triggers WHERE id = :id", id=trigger_id)

    assert end_of(core) == OccurrenceEnd(EndState.GONE)


def test_records_of_a_longer_trigger_id_are_left_out(core, clock):
    """The id of one trigger is a prefix of the id of another."""
    fire(core, clock)
    start_due(core)
    with core.transaction() as tx:
        tx.run("UPDATE schedule_occurrences SET trigger_id = substr(trigger_id, 1, 30)")

    assert end_of(core) == OccurrenceEnd(EndState.GONE)


def test_lines_are_listed_newest_first_and_paged_by_number(core, clock):
    put(core, overlap=Overlap.SKIP)
    for _ in range(3):
        clock.advance(hours=1)
        tick(core)
        if clock.now() < NEW_YEAR + 2 * HOUR:
            finish(core, enter_next(core))

    newest = lines_of(core, 2)
    older = lines_of(core, 2, before=newest[-1].seq)

    assert [line.occurrence.nominal_at - NEW_YEAR for line in (*newest, *older)] == [3 * HOUR, 2 * HOUR, HOUR]
    assert [line.occurrence.outcome for line in newest] == [Outcome.SKIPPED, Outcome.FIRED]
    assert newest[0].end is None


def test_damaged_line_is_named_beside_whole_lines(core, clock):
    fire(core, clock)
    clock.advance(hours=1)
    end(core, start_due(core), Succeeded())
    tick(core)
    with core.transaction() as tx:
        tx.run("UPDATE schedule_occurrences SET reason = CAST(X'ff' AS TEXT) WHERE seq = 1")

    with core.reading() as reader:
        whole, damaged = STORE.list_lines(reader, "job", 10)

    assert isinstance(whole, AccountLine)
    assert isinstance(damaged, Damaged)
    assert (damaged.id, "not UTF-8" in damaged.wrong) == ("1", True)


def test_account_reads_every_table_by_an_index(core, clock):
    fire(core, clock)

    plan = plans_of(core, lambda tx: STORE.list_lines(tx, "job", 10))

    assert [line for line in plan if line.startswith("SCAN")] == ["SCAN newest"]
    searches = [line for line in plan if line.startswith("SEARCH")]
    assert searches == [
        "SEARCH schedule_occurrences USING INDEX occurrences_history (schedule_id=? AND seq<?)",
        "SEARCH triggers USING INDEX triggers_id (id=?) LEFT-JOIN",
        "SEARCH tasks USING INDEX tasks_id (id=?) LEFT-JOIN",
        "SEARCH first_record USING INDEX executions_id (id=?) LEFT-JOIN",
        "SEARCH last_record USING INTEGER PRIMARY KEY (rowid=?) LEFT-JOIN",
        "SEARCH executions USING COVERING INDEX executions_id (id>? AND id<?)",
    ]
    assert not [line for line in plan if "TEMP B-TREE" in line]


def test_daemon_that_began_an_occurrence_is_known_by_its_start(core, clock):
    trigger_id = fire(core, clock)
    clock.advance(100)
    started_at = clock.now()
    epoch = start_daemon(core).epoch
    clock.advance(5)
    end(core, start_due(core, epoch=epoch), Succeeded())

    with core.reading() as reader:
        assert STORE.find_daemon_start(reader, trigger_id) == started_at
        assert STORE.find_daemon_start(reader, "another") is None
    assert end_of(core).is_kept
    assert not end_of(core).is_task
    assert triggers(core)[0]["id"] == trigger_id


def test_start_of_a_daemon_is_read_by_two_indexes(core, clock):
    plan = plans_of(core, lambda tx: STORE.find_daemon_start(tx, "x"))

    assert plan == [
        "SEARCH executions USING INDEX executions_id (id=?)",
        "SEARCH epochs USING INTEGER PRIMARY KEY (rowid=?)",
    ]


def test_occurrence_in_backoff_began_with_its_first_attempt(core, clock):
    fire(core, clock)
    began_at = clock.now()
    end(core, start_due(core), BROKEN, RetryPolicy(max_attempts=3))

    found = end_of(core)

    assert (found.state, found.status, found.began_at) == (EndState.AT_WORK, "PENDING", began_at)


def test_cost_of_the_newest_lines_does_not_grow_with_the_account(core, clock):
    put(core, overlap=Overlap.ALLOW)
    costs = []
    for hours in (20, 400):
        for _ in range(hours):
            clock.advance(hours=1)
            tick(core)
        with undone(core) as tx:
            costs.append(steps_of(tx, partial(STORE.list_lines, tx, "job", 10)))

    assert costs[1] <= costs[0] + 10
