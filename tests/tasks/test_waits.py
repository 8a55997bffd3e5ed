"""Waits in single steps: each begins once, resolves once, and continues the turn by one trigger."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore.errors import LeaseLost, RowInvalid, StateRefused
from craftcore.schedules.clock_store import ClockStepStore
from craftcore.tasks.model import NewWait, ResolvedBy, TaskStatus, Wait, WaitKind
from craftcore.tasks.outcomes import Move, Returned, Suspends
from craftcore.tasks.turn_end import NOTHING, Followed, TurnEnd
from craftcore.tasks.wait_rules import REST_SECONDS
from craftcore.tasks.wait_store import WaitStore
from craftcore.tasks.waits import WaitService
from craftcore.triggers.backoff import RetryPolicy
from craftcore.triggers.settlement import Outcome, Succeeded, Suspended
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.task_steps import (
    Running,
    a_question,
    a_sleep,
    begin,
    begin_child,
    emit_child,
    end_turn,
    enter,
    enter_next,
    fail,
    finish,
    for_child,
    for_event,
    go_on,
    look,
    on_event,
    rows,
    suspend,
    the_question,
)
from tests.support.trigger_steps import BROKEN, claim_all, claim_one


def waits(core: VirtualCore) -> list[tuple[str, str, str | None]]:
    """Return the name and status of each wait, and what resolved it."""
    return [(row["name"], row["status"], row["resolved_by"]) for row in rows(core, "waits")]


def live_triggers(core: VirtualCore) -> list[dict[str, Any]]:
    return core.rows("SELECT * FROM triggers WHERE status IN ('PENDING', 'CLAIMED')")


# Begin


def test_sleeping_task_has_a_single_trigger_due_at_the_wake_up(core, clock):
    running = begin(core, session_id="s", max_attempts=2)

    assert suspend(core, running, a_sleep(clock.now() + 60)) == Followed(due_at=NEW_YEAR + 60)

    task = look(core, running.task.id)
    assert (task.status, task.reason) == (TaskStatus.WAITING, "waits for its time")
    [timer] = live_triggers(core)
    [wait] = rows(core, "waits")
    assert (timer["id"], timer["due_at"], timer["source"]) == (task.trigger_id, NEW_YEAR + 60, "CONTINUATION")
    assert (timer["dedup_key"], timer["lane"], timer["max_attempts"]) == (f"wake:{wait['id']}", "s", 2)
    assert (timer["task_id"], timer["workflow"]) == (task.id, "greet")


@pytest.mark.parametrize(
    ("wait", "reason"),
    [
        (for_event("paid"), "waits for the event paid"),
        (a_question(), "waits for an answer"),
    ],
)
def test_task_that_waits_without_end_has_no_trigger(core, wait, reason):
    running = begin(core)

    assert suspend(core, running, wait) == NOTHING

    task = look(core, running.task.id)
    assert (task.status, task.reason, task.trigger_id) == (TaskStatus.WAITING, reason, None)
    assert live_triggers(core) == []


def test_task_has_at_most_a_single_open_wait(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))

    with pytest.raises(RowInvalid, match="UNIQUE"), core.transaction() as tx:
        WaitStore().open(tx, "another", running.task.seq, 1, for_event("shipped", name="wait_for#2"), None)
    assert len(waits(core)) == 1


def test_wait_of_a_name_begins_once_in_a_turn(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))
    core.do(core.tasks.signal, running.task.id, "paid")
    again = enter_next(core)

    with pytest.raises(AssertionError):
        suspend(core, again, for_event("paid"))
    assert waits(core) == [("wait_for#1", "RESOLVED", "signal")]


def test_same_wait_name_in_the_next_turn_is_another_wait(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))
    core.do(core.tasks.signal, running.task.id, "paid")
    go_on(core, enter_next(core))
    second = enter_next(core)
    assert second.entry.waits == {}

    suspend(core, second, for_event("paid"))

    assert [(row["turn"], row["status"]) for row in rows(core, "waits")] == [(1, "RESOLVED"), (2, "WAITING")]


# Resolution by the first cause


def test_sleeping_task_continues_at_its_wake_up(core, clock):
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 60))
    assert claim_all(core) == []
    clock.advance(60)

    again = enter_next(core)

    assert (again.entry.resume, again.task.status, again.task.reason) == ("TIMER", "RUNNING", "woken: timer")
    assert again.entry.waits["sleep#1"].resolved_at == clock.now()
    finish(core, again)
    assert look(core, running.task.id).status is TaskStatus.DONE


def test_answer_before_the_timer_brings_the_timer_forward(core, clock):
    running = begin(core)
    suspend(core, running, a_question(until=clock.now() + 3600, default="hold"))
    [timer] = live_triggers(core)
    clock.advance(60)

    core.do(core.tasks.answer, the_question(core)["id"], "send", answered_by="ada")

    [now_due] = live_triggers(core)
    assert (now_due["id"], now_due["due_at"]) == (timer["id"], clock.now())
    again = enter_next(core)
    assert (again.entry.resume, again.entry.waits["ask#1"].value_json) == ("ANSWER", '"send"')
    clock.advance(3600)
    assert claim_all(core) == []


def test_answer_wins_over_a_timer_at_the_same_instant_when_first(core, clock):
    """The timer is due and claimed, but not started."""
    running = begin(core)
    suspend(core, running, a_question(until=clock.now() + 60, default="hold"))
    clock.advance(60)
    timer = claim_one(core)

    core.do(core.tasks.answer, the_question(core)["id"], "send", answered_by="ada")
    again = enter(core, timer)

    assert isinstance(again, Running)
    assert (again.entry.resume, again.entry.waits["ask#1"].value_json) == ("ANSWER", '"send"')
    finish(core, again)
    assert live_triggers(core) == []


def test_timer_wins_over_an_answer_at_the_same_instant_when_first(core, clock):
    running = begin(core)
    suspend(core, running, a_question(until=clock.now() + 60, default="hold"))
    question = the_question(core)
    clock.advance(60)
    again = enter_next(core)

    with pytest.raises(StateRefused, match=r"too late: .* has expired"):
        core.do(core.tasks.answer, question["id"], "send", answered_by="ada")

    assert (again.entry.resume, again.entry.waits["ask#1"].value_json) == ("TIMER", '"hold"')
    assert rows(core, "questions")[0]["status"] == "EXPIRED"
    finish(core, again)
    assert live_triggers(core) == []


def test_resolved_wait_is_not_resolved_again(core):
    running = begin(core)
    suspend(core, running, for_event("paid"))
    core.do(core.tasks.signal, running.task.id, "paid", 1)
    before = rows(core, "waits") + rows(core, "tasks") + rows(core, "triggers")

    with core.transaction() as tx:
        assert not WaitStore().resolve(tx, before[0]["seq"], ResolvedBy.TIMER, "null")
        wait = Wait(**{name: before[0][name] for name in Wait.__dataclass_fields__})
        waiting = WaitService(core.clock, core.triggers)
        assert not waiting.resolve(tx, core.tasks.get(tx, running.task.id), wait, ResolvedBy.SIGNAL, "2")

    assert rows(core, "waits") + rows(core, "tasks") + rows(core, "triggers") == before


def test_two_timers_of_a_task_enter_its_turn_once(core, clock):
    """The trigger of an earlier wait is requeued by hand, and the task continues with another trigger."""
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 60))
    clock.advance(60)
    again = enter_next(core)
    suspend(core, again, a_sleep(clock.now() + 60, name="sleep#2"))
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET status = 'FAILED', reason = 'odd' WHERE id = :id", id=again.claim.id)
    core.do(core.triggers.requeue, again.claim.id)

    gone = enter(core, claim_one(core))

    assert not isinstance(gone, Running)
    assert gone is not None
    assert gone.reason == f"task {running.task.id} goes on with another trigger"
    assert look(core, running.task.id).status is TaskStatus.WAITING


def test_wake_up_of_an_ended_task_has_nothing_to_do(core, clock):
    running = begin(core)
    suspend(core, running, a_sleep(clock.now() + 60))
    clock.advance(60)
    timer = claim_one(core)
    with core.transaction() as tx:
        tx.run("UPDATE tasks SET status = 'DONE', ended_at = 1")

    gone = enter(core, timer)

    assert not isinstance(gone, Running)
    assert gone is not None
    assert gone.reason == f"task {running.task.id} is DONE"


def test_turn_knows_the_wait_that_began_the_turn_also_at_retries(core, clock):
    running = begin(core)
    go_on(core, running, {"n": 1}, on_event("paid", until=clock.now() + 60))
    core.do(core.tasks.signal, running.task.id, "paid", {"amount": 3})
    second = enter_next(core)
    assert second.entry.received is not None
    assert (second.entry.resume, second.entry.received.value_json) == ("SIGNAL", '{"amount":3}')
    fail(core, second, BROKEN)
    clock.advance(3600)

    again = enter_next(core)

    assert again.entry.received is not None
    assert (again.entry.resume, again.entry.received.value_json) == ("RETRY", '{"amount":3}')


def test_turn_that_waits_again_knows_all_earlier_waits(core):
    running = begin(core)
    for n in range(1, 4):
        suspend(core, running, for_event("paid", name=f"wait_for#{n}"))
        core.do(core.tasks.signal, running.task.id, "paid", n)
        running = enter_next(core)

    assert [wait.value_json for wait in running.entry.waits.values()] == ["1", "2", "3"]


# Children


def test_child_that_ended_before_the_wait_is_not_waited_for(core):
    parent = begin(core)
    child = begin_child(core, parent)
    finish(core, child, {"n": 7})

    followed = suspend(core, parent, for_child(child.task.id))

    assert followed == Followed(due_at=core.clock.now())
    again = enter_next(core)
    assert again.entry.resume == "CHILD"
    assert again.entry.waits[f"child/{child.task.id}"].value_json == '{"error":null,"result":{"n":7},"status":"DONE"}'


def test_parent_continues_in_the_commit_that_ends_its_child(core):
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, parent, for_child(child.task.id))

    assert finish(core, child, 7) == Followed(due_at=core.clock.now(), ended=True)

    assert look(core, parent.task.id).status is TaskStatus.RUNNING


@pytest.mark.parametrize("first", ["parent", "child"])
def test_parent_suspended_in_the_commit_that_ends_its_child_continues(core, first):
    parent = begin(core)
    child = begin_child(core, parent)
    wait = for_child(child.task.id)
    ends: list[tuple[Running, Outcome, Move]] = [
        (parent, Suspended(reason=wait.name), Suspends(wait=wait)),
        (child, Succeeded(), Returned(result_json="7")),
    ]

    with core.transaction() as tx:
        turns = []
        for running, outcome, move in ends if first == "parent" else reversed(ends):
            settlement = core.claims.settle(tx, running.claim, outcome, RetryPolicy())
            turns.append(TurnEnd(running.entry, settlement, move, 0, False, False))
        core.turns.settle_all(tx, 1, turns)

    assert enter_next(core).entry.waits[wait.name].resolved_by == "child"


def test_failed_child_passes_its_error_to_the_parent(core):
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, parent, for_child(child.task.id))

    fail(core, child)

    again = enter_next(core)
    assert again.entry.waits[f"child/{child.task.id}"].value_json == (
        '{"error":{"code":"VALIDATION_ERROR","message":"it never will"},"result":null,"status":"FAILED"}'
    )


def test_parent_wait_for_a_child_ends_at_its_timeout(core, clock):
    parent = begin(core)
    child = emit_child(core, parent, delay=3600)
    suspend(core, parent, for_child(child, until=clock.now() + 60))
    clock.advance(60)

    again = enter_next(core)
    finish(core, again)
    clock.advance(3600)
    finish(core, enter_next(core))

    assert again.entry.resume == "TIMER"
    assert live_triggers(core) == [], "the end of the child notifies no task"


# Renewal of a work budget


@pytest.mark.parametrize(("seconds", "left"), [(REST_SECONDS, (0, 0)), (REST_SECONDS - 1, (1, 5))])
def test_rest_of_a_minute_renews_the_work_budget_and_a_shorter_rest_does_not(core, clock, seconds, left):
    running = begin(core)
    go_on(core, running, steps=5)
    suspend(core, enter_next(core), a_sleep(clock.now() + seconds))
    clock.advance(seconds)

    again = enter_next(core)

    assert (again.task.turns_alone, again.task.steps_alone) == left


def test_external_input_of_any_kind_renews_the_work_budget(core):
    running = begin(core)
    for _ in range(3):
        go_on(core, running, steps=5)
        running = enter_next(core)
    assert (running.task.turns_alone, running.task.steps_alone) == (3, 15)
    suspend(core, running, for_event("paid"))

    core.do(core.tasks.signal, running.task.id, "paid")

    again = enter_next(core)
    assert (again.task.turns_alone, again.task.steps_alone) == (0, 0)


def test_existing_mail_renews_the_work_budget(core):
    running = begin(core)
    go_on(core, running, steps=5)
    running = enter_next(core)
    core.do(core.tasks.signal, running.task.id, "paid")

    suspend(core, running, for_event("paid"))

    assert look(core, running.task.id).turns_alone == 0


def test_turns_between_short_rests_add_up(core, clock):
    running = begin(core)
    for _ in range(4):
        go_on(core, running, None, a_sleep(clock.now() + 1, name="continued"), steps=2)
        clock.advance(1)
        running = enter_next(core)

    assert (running.task.turns_alone, running.task.steps_alone) == (4, 8)


def test_turn_with_a_refused_settle_begins_no_wait(core):
    running = begin(core)
    with core.transaction() as tx:
        tx.run("UPDATE triggers SET lease_token = 'another'")

    with pytest.raises(LeaseLost):
        end_turn(core, running, BROKEN)
    assert waits(core) == []


# Alternatives


def questions(core: VirtualCore) -> list[str]:
    return [row["status"] for row in rows(core, "questions")]


def any_of_three(clock: Any) -> NewWait:
    """Return a wait for the first of an event, an answer by message, and a minute."""
    waits = (
        NewWait(name="any#1/paid", kind=WaitKind.EVENT, event="paid", any_of="any#1"),
        replace(a_question(by_message=True), name="any#1/answer", any_of="any#1"),
        NewWait(name="any#1/late", kind=WaitKind.TIMER, due_at=clock.now() + 60, any_of="any#1"),
    )
    return replace(waits[0], others=waits[1:])


def test_alternatives_share_a_trigger_due_at_the_earliest_end(core, clock):
    running = begin(core)

    assert suspend(core, running, any_of_three(clock)) == Followed(due_at=NEW_YEAR + 60)

    [timer] = live_triggers(core)
    assert (timer["due_at"], timer["dedup_key"]) == (NEW_YEAR + 60, f"wake:{rows(core, 'waits')[0]['id']}")
    assert look(core, running.task.id).reason == "waits for the first of 3"


def test_resolved_alternative_pulls_the_trigger_and_withdraws_the_question(core, clock):
    running = begin(core)
    suspend(core, running, any_of_three(clock))
    question = the_question(core)

    assert core.do(core.tasks.signal, running.task.id, "paid", 5) is True

    assert waits(core) == [
        ("any#1/paid", "RESOLVED", "signal"),
        ("any#1/answer", "RESOLVED", "end"),
        ("any#1/late", "RESOLVED", "end"),
    ]
    [timer] = live_triggers(core)
    assert timer["due_at"] == NEW_YEAR
    with pytest.raises(StateRefused, match="is withdrawn"):
        core.do(core.tasks.answer, question["id"], "send", answered_by="ada")
    assert core.do(core.tasks.signal, running.task.id, "paid", 6) is False, "the signal is kept unread"
    assert [*enter_next(core).entry.waits] == ["any#1/paid"]


def test_message_that_answers_ends_the_alternatives(core, clock):
    running = begin(core, session_id="s")
    suspend(core, running, any_of_three(clock))

    assert core.do(core.tasks.signal, running.task.id, "message", {"text": "send"}) is True

    assert [by for _, _, by in waits(core)] == ["end", "answer", "end"]
    assert questions(core) == ["ANSWERED"]


def test_time_ends_the_alternative_that_is_due(core, clock):
    running = begin(core)
    suspend(core, running, any_of_three(clock))
    clock.advance(60)

    entered = enter_next(core)

    assert [by for _, _, by in waits(core)] == ["end", "end", "timer"]
    assert questions(core) == ["WITHDRAWN"]
    assert [*entered.entry.waits] == ["any#1/late"]


def test_deadline_of_the_task_ends_all_alternatives_without_a_value(core, clock):
    running = begin(core, deadline=30.0)
    suspend(core, running, any_of_three(clock))
    clock.advance(30)

    entered = enter_next(core)

    assert [by for _, _, by in waits(core)] == ["end", "end", "end"]
    assert entered.entry.waits == {}
    assert questions(core) == ["WITHDRAWN"]


def test_clock_that_is_set_back_leaves_the_order_of_the_alternatives(core, clock):
    running = begin(core)
    clock.advance(7200)
    suspend(core, running, any_of_three(clock))
    clock.set_back(7200)

    core.do(ClockStepStore().set_back, 7200)

    [timer] = live_triggers(core)
    assert timer["due_at"] == clock.now() + 60
    assert {row["due_at"] for row in rows(core, "waits")} == {None, clock.now() + 60}


def test_retried_task_waits_again_for_all_alternatives(core, clock):
    running = begin(core, deadline=30.0)
    suspend(core, running, any_of_three(clock))
    clock.advance(30)
    fail(core, enter_next(core))
    core.do(core.tasks.retry, running.task.id)

    suspend(core, enter_next(core, deadline=30.0), any_of_three(clock))

    assert {status for _, status, _ in waits(core)} == {"WAITING"}
    assert questions(core) == ["WITHDRAWN", "OPEN"]
    assert core.do(core.tasks.signal, running.task.id, "paid", 5) is True
