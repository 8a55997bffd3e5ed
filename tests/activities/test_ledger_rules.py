"""Equality of the pure rules of activities with the rows that the ledger writes."""

from __future__ import annotations

from dataclasses import asdict, replace
from itertools import product

import pytest

from craftcore.activities.ledger_rules import (
    LEFT_BEHIND,
    Reentry,
    begin_again,
    decide,
    find_conflict,
    judge_reentry,
    open_activity,
    put_in_doubt,
    settle,
)
from craftcore.activities.model import Activity, ActivityStatus, Decision, StartedCall
from craftcore.errors import StateRefused
from tests.support import activity_steps as steps
from tests.support.activity_steps import (
    DONE,
    LEDGER,
    NOTHING,
    REFUSED,
    UNKNOWN,
    an_activity,
    an_intent,
    look,
    start_call,
)
from tests.support.task_steps import begin

ENDS = {"DONE": DONE, "no effect": NOTHING, "refused": REFUSED, "in doubt": UNKNOWN, "left open": LEFT_BEHIND}
BEFORE = [None, *ENDS.values()]
BEFORE_IDS = ["INTENT", *ENDS]


@pytest.fixture
def running(core):
    return begin(core)


def test_new_activity_equals_its_row(core, running, clock):
    intent = an_intent(running)
    call = start_call(core, intent)
    assert look(core, call.seq) == open_activity(call.seq, intent, clock.now())


@pytest.mark.parametrize("end", list(ENDS.values()), ids=list(ENDS))
def test_settled_activity_equals_its_row(core, running, clock, end):
    before = an_activity(core, running)
    clock.advance(minutes=1)

    after = settle(before, before.last_call, end, clock.now())

    assert steps.end_call(core, before.last_call, end)
    assert look(core, before.seq) == after


@pytest.mark.parametrize("end", list(ENDS.values()), ids=list(ENDS))
def test_settled_activity_is_not_settled_again(core, running, end):
    before = an_activity(core, running, end)
    assert settle(before, before.last_call, DONE, 0.0) is None


def test_end_of_an_earlier_call_settles_nothing(core, running):
    before = an_activity(core, running, NOTHING)
    again = begin_again(before, an_intent(running), 0.0)
    assert settle(again, StartedCall(before.seq, 1, False), DONE, 0.0) is None


def test_reference_of_an_earlier_call_is_kept_in_both(core, running, clock):
    doubt = steps.an_activity(core, running, UNKNOWN._replace(provider_ref="ref-0"))
    call = core.do(LEDGER.call_again, doubt, an_intent(running))
    before = look(core, doubt.seq)

    after = settle(before, call, UNKNOWN, clock.now())

    assert steps.end_call(core, call, UNKNOWN)
    assert look(core, before.seq) == after
    assert after is not None
    assert after.provider_ref == "ref-0"


@pytest.mark.parametrize("decision", list(Decision))
@pytest.mark.parametrize("end", BEFORE, ids=BEFORE_IDS)
def test_decided_activity_equals_its_row(core, running, clock, end, decision):
    before = an_activity(core, running, end)
    clock.advance(minutes=1)
    reference = "ref-7" if decision is Decision.HAPPENED else None

    after = decide(before, decision, decided_by="ada", reference=reference, now=clock.now())

    try:
        decided = steps.decide(core, before, decision, reference=reference)
    except StateRefused:
        assert after is None
        assert look(core, before.seq) == before
    else:
        assert decided == after


@pytest.mark.parametrize("decision", [None, *Decision])
@pytest.mark.parametrize("end", BEFORE, ids=BEFORE_IDS)
def test_next_entry_follows_the_judged_course(core, running, clock, end, decision):
    before = an_activity(core, running, end)
    if decision is not None:
        if decide(before, decision, decided_by="ada", reference=None, now=clock.now()) is None:
            return
        before = steps.decide(core, before, decision)
    clock.advance(minutes=1)
    intent = an_intent(running, execution_seq=9, epoch=2)

    answer = steps.begin_call(core, intent)

    match judge_reentry(before):
        case Reentry.TAKE:
            assert answer == before == look(core, before.seq)
        case Reentry.LEAVE_BEHIND:
            assert answer == settle(before, before.last_call, LEFT_BEHIND, clock.now()) == look(core, before.seq)
        case Reentry.CALL_AGAIN:
            after = begin_again(before, intent, clock.now())
            assert answer == after.last_call
            assert look(core, before.seq) == after


def test_failed_or_released_activity_alone_is_called_again(core, running):
    one = an_activity(core, running, UNKNOWN)
    called = {
        (status, may_retry, decision)
        for status, may_retry, decision in product(ActivityStatus, (True, False), (None, *Decision))
        if judge_reentry(replace(one, status=status, may_retry=may_retry, decision=decision)) is Reentry.CALL_AGAIN
    }
    assert called == {
        *((ActivityStatus.FAILED, True, decision) for decision in (None, *Decision)),
        *((ActivityStatus.UNKNOWN, may_retry, Decision.RESEND) for may_retry in (True, False)),
    }


@pytest.mark.parametrize("change", [{"args_hash": "another"}, {"action": "refund"}, {"task_seq": 99}], ids=str)
def test_intent_of_another_action_or_task_is_refused(core, running, change):
    before = an_activity(core, running, DONE)
    assert find_conflict(before, an_intent(running)) is None
    assert find_conflict(before, an_intent(running, **change)) is not None


@pytest.mark.parametrize("end", [None, DONE], ids=["INTENT", "DONE"])
def test_call_under_way_or_done_cannot_begin_again(core, running, end):
    before = an_activity(core, running, end)
    for change in (
        lambda: begin_again(before, an_intent(running), 0.0),
        lambda: put_in_doubt(before, epoch=2, reason="restored", now=0.0),
    ):
        with pytest.raises(AssertionError):
            change()


def test_activity_in_doubt_after_a_restore_can_be_called_again_only_by_decision(core, running):
    before = an_activity(core, running, NOTHING)

    doubt = put_in_doubt(before, epoch=2, reason="restored", now=9.0)

    assert isinstance(doubt, Activity)
    assert doubt.is_open
    assert judge_reentry(doubt) is Reentry.TAKE
    unchanged = {"status", "reason", "in_doubt", "may_retry", "decision", "epoch", "updated_at", "settled_at"}
    assert {name for name, value in asdict(doubt).items() if value != asdict(before)[name]} <= unchanged
