"""Rows of the ledger in each state of an activity: complete facts, and no change by late results."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from craftcore.activities.ledger_rules import LEFT_BEHIND
from craftcore.activities.model import Activity, ActivityStatus, Decision, OnUnknown, StartedCall
from craftcore.errors import IdempotencyConflict, StateRefused
from craftcore.storage.transaction import keys_like
from tests.support.activity_steps import (
    DONE,
    LEDGER,
    LISTING,
    NOTHING,
    REFUSED,
    STORE,
    UNKNOWN,
    an_activity,
    an_intent,
    begin_call,
    decide,
    end_call,
    look,
    start_call,
)
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.task_steps import Running, begin, rows

ENDS = [DONE, NOTHING, REFUSED, UNKNOWN]


@pytest.fixture
def running(core: VirtualCore) -> Running:
    return begin(core)


def dump_tables(core: VirtualCore) -> list[dict[str, Any]]:
    return rows(core, "activity_log") + rows(core, "activity_decisions")


def test_intent_has_all_facts_of_the_coming_call(core, running, clock):
    clock.advance(5)
    intent = an_intent(running, policy=OnUnknown.RECONCILE, epoch=3)

    found = look(core, start_call(core, intent).seq)

    assert {name: getattr(found, name) for name in intent._fields} == intent._asdict()
    assert found.reason == "about to be called"
    assert {found.first_call_at, found.last_call_at, found.created_at, found.updated_at} == {NEW_YEAR + 5}


@pytest.mark.parametrize("end", ENDS)
def test_outcome_is_stored_as_the_call_returned(core, running, clock, end):
    call = start_call(core, an_intent(running))
    clock.advance(2)

    end_call(core, call, end)

    found = look(core, call.seq)
    assert {name: getattr(found, name) for name in end._fields} == end._asdict()
    assert found.in_doubt is (end.status is ActivityStatus.UNKNOWN)
    assert (found.last_call_at, found.updated_at) == (NEW_YEAR, NEW_YEAR + 2)


def test_arguments_too_large_to_be_kept_are_known_by_their_hash(core, running):
    end_call(core, start_call(core, an_intent(running, request_json=None)), DONE)

    found = begin_call(core, an_intent(running, request_json=None))
    assert isinstance(found, Activity)
    assert found.request_json is None
    refused = begin_call(core, an_intent(running, request_json=None, args_hash="another"))
    assert isinstance(refused, IdempotencyConflict)


def test_hundreds_of_acts_in_a_batch_get_separate_answers(core, running):
    intents = [an_intent(running, f"1.{number}") for number in range(500)]
    firsts = core.do(LEDGER.begin_all, intents[::2])
    calls = [first for first in firsts if isinstance(first, StartedCall)]
    assert core.do(STORE.settle_all, [(call, DONE) for call in calls]) == set(range(1, 251))

    answers = core.do(LEDGER.begin_all, intents)

    assert answers[1::2] == [StartedCall(seq, 1, False) for seq in range(251, 501)]
    assert [found.key for found in answers[::2] if isinstance(found, Activity)] == [one.key for one in intents[::2]]
    assert [row["idem_key"] for row in rows(core, "activity_log")] == [one.key for one in intents[::2] + intents[1::2]]


def test_conflict_in_a_batch_does_not_stop_the_others(core, running):
    done = an_activity(core, running, DONE, "1.2")

    first, refused, found, last = core.do(
        LEDGER.begin_all,
        [
            an_intent(running, "1.1"),
            an_intent(running, "1.2", args_hash="another"),
            an_intent(running, "1.2"),
            an_intent(running, "1.3"),
        ],
    )

    assert isinstance(refused, IdempotencyConflict)
    assert (first, found, last) == (StartedCall(2, 1, False), done, StartedCall(3, 1, False))


def test_empty_batch_begins_and_settles_nothing(core):
    assert core.do(LEDGER.begin_all, []) == []
    assert core.do(STORE.settle_all, []) == set()


def test_settle_returns_the_ends_that_were_still_open(core, running):
    calls = [start_call(core, an_intent(running, place)) for place in ("1.1", "1.2", "1.3")]
    end_call(core, calls[1], DONE)

    assert core.do(STORE.settle_all, [(call, UNKNOWN) for call in calls]) == {1, 3}
    assert [row["status"] for row in rows(core, "activity_log")] == ["UNKNOWN", "DONE", "UNKNOWN"]


def test_reference_of_an_earlier_call_is_kept_until_another_arrives(core, running):
    an_activity(core, running, NOTHING._replace(provider_ref="pi_1"))
    an_activity(core, running, NOTHING)
    assert look(core, 1).provider_ref == "pi_1"

    an_activity(core, running, DONE._replace(provider_ref="pi_2"))

    assert look(core, 1).provider_ref == "pi_2"


def test_happened_without_a_reference_keeps_the_existing_reference(core, running):
    found = decide(core, an_activity(core, running, UNKNOWN._replace(provider_ref="pi_1")), Decision.HAPPENED)

    assert (found.provider_ref, found.result_json) == ("pi_1", None)


@pytest.mark.parametrize("late", ENDS)
@pytest.mark.parametrize("decision", Decision)
def test_return_after_a_decision_changes_nothing(core, running, decision, late):
    call = start_call(core, an_intent(running))
    found = begin_call(core, an_intent(running))
    assert isinstance(found, Activity)
    decide(core, found, decision)
    before = dump_tables(core)

    assert not end_call(core, call, late)
    assert dump_tables(core) == before


@pytest.mark.parametrize("late", ENDS)
def test_return_after_the_process_was_marked_as_ended_changes_nothing(core, running, late):
    call = start_call(core, an_intent(running))
    core.do(LEDGER.mark_interrupted)
    before = dump_tables(core)

    assert not end_call(core, call, late)
    assert dump_tables(core) == before


@pytest.mark.parametrize("late", ENDS)
def test_end_of_an_earlier_call_does_not_end_the_current_call(core, running, late):
    first = start_call(core, an_intent(running))
    end_call(core, first, NOTHING)
    second = start_call(core, an_intent(running))
    before = dump_tables(core)

    assert not end_call(core, first, late)
    assert dump_tables(core) == before
    assert end_call(core, second, DONE)


@pytest.mark.parametrize("end", ENDS)
def test_call_that_never_began_has_no_end(core, end):
    assert not end_call(core, StartedCall(7, 1, False), end)
    assert dump_tables(core) == []


def test_calls_of_a_killed_process_are_in_doubt_and_its_other_rows_unchanged(core, running, clock):
    others = [an_activity(core, running, end, f"2.{number}") for number, end in enumerate(ENDS)]
    left = [an_activity(core, running, None, place) for place in ("1.1", "1.2")]
    clock.advance(60)

    assert core.do(LEDGER.mark_interrupted) == left

    for before in left:
        in_doubt = replace(before, status=ActivityStatus.UNKNOWN, reason=LEFT_BEHIND.reason, in_doubt=True)
        assert look(core, before.seq) == replace(in_doubt, may_retry=True, updated_at=NEW_YEAR + 60)
    assert [look(core, one.seq) for one in others] == others


@pytest.mark.parametrize("policy", OnUnknown)
def test_resend_decision_begins_a_call_under_every_policy(core, running, policy):
    call = start_call(core, an_intent(running, policy=policy))
    end_call(core, call, UNKNOWN)
    decide(core, look(core, call.seq), Decision.RESEND)

    assert start_call(core, an_intent(running, policy=policy)).calls == 2


@pytest.mark.parametrize("other", [{"args_hash": "another"}, {"action": "wire"}])
def test_resend_decision_changes_nothing_else(core, running, other):
    decide(core, an_activity(core, running, UNKNOWN), Decision.RESEND)
    before = dump_tables(core)

    assert isinstance(begin_call(core, an_intent(running, **other)), IdempotencyConflict)
    assert dump_tables(core) == before


def test_decision_covers_a_single_doubt_and_the_next_is_decided_separately(core, running):
    decide(core, an_activity(core, running, UNKNOWN), Decision.RESEND)

    again = an_activity(core, running, UNKNOWN)

    assert again.is_open
    assert begin_call(core, an_intent(running)) == again


@pytest.mark.parametrize("meanwhile", [*Decision, "called"])
def test_late_repeat_of_a_call_returns_the_current_state(core, running, meanwhile):
    seen = an_activity(core, running, UNKNOWN)
    if meanwhile == "called":
        core.do(LEDGER.call_again, seen, an_intent(running))
    else:
        decide(core, seen, Decision(meanwhile))
    before = dump_tables(core)

    assert core.do(LEDGER.call_again, seen, an_intent(running)) == look(core, seen.seq)
    assert dump_tables(core) == before


@pytest.mark.parametrize("end", [DONE, None])
def test_done_or_running_activity_is_not_called_again(core, running, end):
    seen = an_activity(core, running, end)
    before = dump_tables(core)

    assert core.do(LEDGER.call_again, seen, an_intent(running)) == seen
    assert dump_tables(core) == before


@pytest.mark.parametrize("second", Decision)
def test_happened_decision_is_not_overwritten_by_an_earlier_view(core, running, second):
    seen = an_activity(core, running, UNKNOWN)
    decide(core, seen, Decision.HAPPENED, reference="pi_7")
    before = dump_tables(core)

    with pytest.raises(StateRefused):
        decide(core, seen, second)
    assert dump_tables(core) == before


# Queries


def test_doubts_are_listed_by_task_until_decided(core):
    tasks = [begin(core) for _ in range(3)]
    doubts = [an_activity(core, task, UNKNOWN) for task in tasks]
    for task in tasks[:2]:
        for number, end in enumerate([DONE, NOTHING, REFUSED, None], 2):
            an_activity(core, task, end, f"1.{number}")

    assert core.do(STORE.list_undecided, [task.task.seq for task in tasks[:2]]) == doubts[:2]
    assert core.do(STORE.list_undecided, []) == []
    assert core.do(LISTING.count_in_doubt) == (3, doubts[0])

    for doubt, decision in zip(doubts, Decision, strict=True):
        decide(core, doubt, decision)
    assert core.do(STORE.list_undecided, [task.task.seq for task in tasks]) == []
    assert core.do(LISTING.count_in_doubt) == (0, None)


def test_newest_activities_are_listed_by_status_task_and_action(core):
    tasks = [begin(core), begin(core)]
    for task in tasks:
        for number, end in enumerate(ENDS, 1):
            intent = an_intent(task, f"1.{number}", action="pay" if number % 2 else "mail")
            end_call(core, start_call(core, intent), end)

    def seqs(limit: int = 99, **filters: object) -> list[int]:
        return [one.seq for one in core.do(LISTING.list_newest, limit, **filters)]

    assert seqs() == [8, 7, 6, 5, 4, 3, 2, 1]
    assert seqs(3) == [8, 7, 6]
    assert seqs(status=ActivityStatus.UNKNOWN) == [8, 4]
    assert seqs(status=ActivityStatus.FAILED) == [7, 6, 3, 2]
    assert seqs(status=ActivityStatus.INTENT) == []
    assert seqs(action="mail") == [8, 6, 4, 2]
    assert seqs(status=ActivityStatus.UNKNOWN, action="pay") == []
    assert seqs(task_id=tasks[0].task.id) == [4, 3, 2, 1]
    assert seqs(task_id=tasks[0].task.id, status=ActivityStatus.DONE, action="pay") == [1]


def test_shortened_key_is_resolved_or_reported_as_ambiguous(core, running):
    for place in ("1.1", "1.10", "order"):
        start_call(core, an_intent(running, place))
    start = f"activity:{running.task.id}:"

    with core.reading() as reader:
        assert keys_like(reader, "activity_log", start + "o", key="idem_key") == [start + "order"]
        assert len(keys_like(reader, "activity_log", start, key="idem_key")) == 3
        assert keys_like(reader, "activity_log", start + "2", key="idem_key") == []
        assert STORE.get(reader, start + "1.1") == look(core, 1)
        assert STORE.get(reader, start + "1.") is None
