"""State changes of activities in the ledger, and guards that refuse all others without a write."""

from __future__ import annotations

from dataclasses import replace

import pytest

from craftcore.activities.ledger_rules import LEFT_BEHIND
from craftcore.activities.model import Activity, ActivityStatus, Decision, OnUnknown, StartedCall, outcome_after
from craftcore.errors import IdempotencyConflict, StateRefused
from tests.support.activity_steps import (
    DONE,
    LEDGER,
    LISTING,
    NOTHING,
    REFUSED,
    UNKNOWN,
    an_activity,
    an_intent,
    begin_call,
    decide,
    end_call,
    look,
    start_call,
)
from tests.support.task_steps import begin, event_of, rows


@pytest.fixture
def running(core):
    return begin(core)


def statuses(core):
    return [row["status"] for row in rows(core, "activity_log")]


# Begin


def test_intent_is_written_once(core, running, clock):
    call = start_call(core, an_intent(running))

    assert call == StartedCall(1, 1, False)
    found = look(core, call.seq)
    assert (found.status, found.calls, found.in_doubt, found.decision) == (ActivityStatus.INTENT, 1, False, None)
    assert (found.first_call_at, found.last_call_at, found.settled_at) == (clock.now(), clock.now(), None)


def test_batch_of_intents_begins_in_a_commit_with_separate_answers(core, running):
    done = an_activity(core, running, DONE, "1.1")
    an_activity(core, running, NOTHING, "1.2")
    changed = an_intent(running, "1.1", args_hash="another")
    known = [done, StartedCall(2, 2, False)]

    answers = core.do(LEDGER.begin_all, [an_intent(running, f"1.{n}") for n in (3, 1, 2, 4)])
    assert answers == [StartedCall(3, 1, False), *known, StartedCall(4, 1, False)]

    [refused] = core.do(LEDGER.begin_all, [changed])
    assert isinstance(refused, IdempotencyConflict)
    assert look(core, done.seq) == done


def test_done_activity_is_returned_and_not_called_again(core, running):
    before = an_activity(core, running, DONE)
    assert begin_call(core, an_intent(running, execution_seq=99)) == before
    assert look(core, before.seq) == before


def test_refused_activity_is_returned_and_not_called_again(core, running):
    before = an_activity(core, running, REFUSED)
    assert begin_call(core, an_intent(running)) == before
    assert look(core, before.seq) == before


def test_activity_in_doubt_is_returned_and_not_called_again(core, running):
    before = an_activity(core, running, UNKNOWN)
    assert begin_call(core, an_intent(running)) == before
    assert look(core, before.seq) == before


def test_given_up_activity_is_returned_and_not_called_again(core, running):
    given_up = decide(core, an_activity(core, running, UNKNOWN), Decision.GIVE_UP)
    assert begin_call(core, an_intent(running)) == given_up
    assert look(core, given_up.seq) == given_up


def test_call_without_effect_begins_again_as_the_next_call(core, running, clock):
    before = an_activity(core, running, NOTHING)
    clock.advance(minutes=5)

    assert begin_call(core, an_intent(running, execution_seq=9, epoch=2)) == StartedCall(before.seq, 2, False)

    after = look(core, before.seq)
    assert (after.status, after.execution_seq, after.epoch) == (ActivityStatus.INTENT, 9, 2)
    assert (after.first_call_at, after.last_call_at) == (before.first_call_at, clock.now())
    assert (after.error_message, after.may_retry) == (None, False)


def test_activity_released_by_a_person_begins_again_without_doubt(core, running):
    doubt = an_activity(core, running, UNKNOWN)
    decide(core, doubt, Decision.RESEND)

    call = start_call(core, an_intent(running))

    assert call == StartedCall(doubt.seq, 2, False)
    assert look(core, doubt.seq).decision is None
    assert end_call(core, call, NOTHING)
    assert statuses(core) == ["FAILED"]


def test_intent_left_open_by_this_process_is_in_doubt(core, running):
    call = start_call(core, an_intent(running))

    found = begin_call(core, an_intent(running))

    assert isinstance(found, Activity)
    assert (found.status, found.reason, found.calls) == (ActivityStatus.UNKNOWN, LEFT_BEHIND.reason, call.calls)


@pytest.mark.parametrize(
    "end", [None, DONE, NOTHING, REFUSED, UNKNOWN], ids=["INTENT", "DONE", "no effect", "refused", "in doubt"]
)
@pytest.mark.parametrize("other", [{"args_hash": "another"}, {"action": "refund"}], ids=["arguments", "action"])
def test_key_belongs_to_a_single_action_and_arguments(core, running, end, other):
    before = an_activity(core, running, end)

    refused = begin_call(core, an_intent(running, **other))

    assert isinstance(refused, IdempotencyConflict)
    assert refused.details == {"key": before.key}
    assert look(core, before.seq) == before


def test_key_belongs_to_a_single_task_even_with_colons_in_ids(core, running):
    """Task `a` with key `b:x` and task `a:b` with key `x` have the same text, and must not share an activity."""
    mine = an_activity(core, running, DONE)
    other = begin(core)

    refused = begin_call(core, an_intent(other)._replace(key=mine.key))

    assert isinstance(refused, IdempotencyConflict)
    assert running.task.id in refused.message
    assert look(core, mine.seq) == mine


def test_conflict_message_has_a_remedy(core, running):
    an_activity(core, running)
    refused = begin_call(core, an_intent(running, args_hash="another"))
    assert str(refused) == (
        f"pay was not called: its key activity:{running.task.id}:1.1 was used before with other arguments. Make "
        "arguments that change at each entry of the turn in a ctx.step, or give the act a key=… of its own"
    )


def test_repeated_call_of_a_changed_activity_is_not_begun(core, running):
    """The activity was in doubt when it was read, and a person decided since."""
    seen = an_activity(core, running, UNKNOWN)
    done = decide(core, seen, Decision.HAPPENED)

    assert core.do(LEDGER.call_again, seen, an_intent(running)) == done
    assert look(core, seen.seq) == done


def test_repeated_call_is_begun_once(core, running):
    seen = an_activity(core, running, UNKNOWN)

    assert core.do(LEDGER.call_again, seen, an_intent(running)) == StartedCall(seen.seq, 2, True)
    again = core.do(LEDGER.call_again, seen, an_intent(running))

    assert isinstance(again, Activity)
    assert (again.status, again.calls) == (ActivityStatus.INTENT, 2)


# Settle


@pytest.mark.parametrize("end", [DONE, NOTHING, REFUSED, UNKNOWN], ids=["DONE", "no effect", "refused", "in doubt"])
def test_call_is_settled_once(core, running, end):
    call = start_call(core, an_intent(running))
    assert end_call(core, call, end)
    before = look(core, call.seq)

    for late in (DONE, NOTHING, REFUSED, UNKNOWN):
        assert not end_call(core, call, late)

    assert look(core, call.seq) == before


def test_late_end_of_a_call_does_not_settle_the_next_call(core, running):
    first = start_call(core, an_intent(running))
    end_call(core, first, NOTHING)
    second = start_call(core, an_intent(running))

    assert not end_call(core, first, DONE)
    assert look(core, first.seq).status is ActivityStatus.INTENT
    assert end_call(core, second, DONE)


def test_done_activity_is_never_changed(core, running):
    before = an_activity(core, running, DONE)
    call = StartedCall(before.seq, before.calls, False)

    begin_call(core, an_intent(running))
    assert not end_call(core, call, UNKNOWN)
    core.do(LEDGER.mark_interrupted)
    for decision in Decision:
        with pytest.raises(StateRefused, match="is DONE: the provider answered; nothing was written"):
            decide(core, before, decision)

    assert look(core, before.seq) == before
    assert rows(core, "activity_decisions") == []


def test_settled_at_is_set_only_by_final_outcomes(core, running, clock):
    ends = [DONE, NOTHING, REFUSED, UNKNOWN]
    settled = [an_activity(core, running, end, f"1.{n}").settled_at for n, end in enumerate(ends, 1)]
    assert settled == [clock.now(), None, clock.now(), None]


def test_interrupted_calls_are_only_those_without_an_end(core, running):
    for n, end in enumerate([None, DONE, NOTHING, REFUSED, UNKNOWN], 1):
        an_activity(core, running, end, f"1.{n}")

    assert [one.key[-3:] for one in core.do(LEDGER.mark_interrupted)] == ["1.1"]
    assert core.do(LEDGER.mark_interrupted) == []
    assert statuses(core) == ["UNKNOWN", "DONE", "FAILED", "FAILED", "UNKNOWN"]


# Decide


@pytest.mark.parametrize("decision", list(Decision))
def test_doubt_can_be_decided_in_each_way(core, running, clock, decision):
    doubt = an_activity(core, running, UNKNOWN)
    clock.advance(minutes=1)

    after = decide(core, doubt, decision, reference="ref-7" if decision is Decision.HAPPENED else None, note="I looked")

    happened = decision is Decision.HAPPENED
    assert after.status is (ActivityStatus.DONE if happened else ActivityStatus.UNKNOWN)
    assert after.decision is decision
    assert (after.result_json, after.provider_ref) == (('"ref-7"', "ref-7") if happened else (None, None))
    assert after.in_doubt is not happened
    assert not after.is_open
    assert (after.settled_at is None) == (decision is Decision.RESEND)
    [noted] = rows(core, "activity_decisions")
    assert (noted["decision"], noted["decided_by"], noted["note"]) == (decision, "ada", "I looked")
    assert noted["decided_at"] == clock.now()


def test_happened_without_a_reference_has_the_result_none(core, running):
    after = decide(core, an_activity(core, running, UNKNOWN), Decision.HAPPENED)
    assert (after.status, after.result_json, after.provider_ref) == (ActivityStatus.DONE, None, None)


def test_activity_being_called_cannot_be_decided(core, running):
    before = an_activity(core, running)
    for decision in Decision:
        with pytest.raises(StateRefused, match="is being called"):
            decide(core, before, decision)
    assert look(core, before.seq) == before


@pytest.mark.parametrize("end", [NOTHING, REFUSED], ids=["no effect", "refused"])
def test_call_without_effect_can_only_be_resent(core, running, end):
    before = an_activity(core, running, end)
    for decision in (Decision.HAPPENED, Decision.GIVE_UP):
        with pytest.raises(StateRefused, match="It can only be sent again"):
            decide(core, before, decision)
    assert look(core, before.seq) == before

    decide(core, before, Decision.RESEND)

    assert begin_call(core, an_intent(running)) == StartedCall(before.seq, 2, False)


def test_decision_about_an_earlier_call_is_refused(core, running):
    """The call was repeated before the person decided."""
    seen = an_activity(core, running, UNKNOWN)
    call = core.do(LEDGER.call_again, seen, an_intent(running))
    assert isinstance(call, StartedCall)
    end_call(core, call, UNKNOWN)

    with pytest.raises(StateRefused):
        decide(core, seen, Decision.RESEND)

    assert look(core, seen.seq).is_open


def test_given_up_activity_can_still_be_decided(core, running):
    one, other = an_activity(core, running, UNKNOWN, "1.1"), an_activity(core, running, UNKNOWN, "1.2")
    for doubt in (one, other):
        decide(core, doubt, Decision.GIVE_UP)

    assert decide(core, one, Decision.HAPPENED, reference="ref-1").status is ActivityStatus.DONE
    after = decide(core, other, Decision.RESEND)
    assert (after.decision, after.settled_at) == (Decision.RESEND, None)
    assert [row["decision"] for row in rows(core, "activity_decisions")] == ["give up", "give up", "happened", "resend"]


# Doubt of an earlier call


def test_call_without_effect_does_not_clear_an_earlier_doubt(core, running):
    seen = an_activity(core, running, UNKNOWN)
    call = core.do(LEDGER.call_again, seen, an_intent(running))
    assert isinstance(call, StartedCall)
    assert call.in_doubt

    for end in (NOTHING, REFUSED):
        after = outcome_after(end, in_doubt=True)
        assert (after.status, after.may_retry) == (ActivityStatus.UNKNOWN, end.may_retry)
        assert after.reason == f"{end.reason}, and an earlier call is in doubt"
        assert outcome_after(end, in_doubt=False) is end
    for end in (DONE, UNKNOWN):
        assert outcome_after(end, in_doubt=True) is end


# Decisions by a policy


def test_policy_does_not_overrule_a_person(core, running):
    """A person decides to resend or to give up while the provider is asked."""
    for n, decision in enumerate((Decision.RESEND, Decision.GIVE_UP), 1):
        seen = an_activity(core, running, UNKNOWN, f"1.{n}")
        decided = decide(core, seen, decision)

        with pytest.raises(StateRefused):
            core.do(core.acts.decide, seen, Decision.HAPPENED, "reconcile", "ref-1", event_of(running, None))

        assert look(core, seen.seq) == decided


def test_recorded_policy_is_that_of_the_last_call(core, running):
    before = an_activity(core, running, NOTHING)
    begin_call(core, an_intent(running, policy=OnUnknown.RECONCILE))
    assert look(core, before.seq) == replace(
        look(core, before.seq), policy=OnUnknown.RECONCILE, status=ActivityStatus.INTENT
    )


def test_newest_activities_of_a_task_are_found_by_its_exact_id(core, running):
    mine = an_activity(core, running, DONE)
    other = an_activity(core, begin(core), DONE)

    assert core.do(LISTING.list_newest, 10, task_id=running.task.id) == [mine]
    assert core.do(LISTING.list_newest, 10) == [other, mine]
