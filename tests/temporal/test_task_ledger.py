"""The ledger of a task in its workflow: late outcomes of a lost entry are kept."""

from __future__ import annotations

import pytest

from craftcore.activities.model import ActivityStatus, Decision
from craftcore.tasks.model import Resume, Task, TaskStatus
from craftcore.temporal.workflow.journal_messages import NOT_FOUND, STATE_REFUSED, Intent, Outcome
from craftcore.temporal.workflow.messages import TaskState
from craftcore.temporal.workflow.task_ledger import begin_call, decide_doubt, leave_behind, list_intents, settle_call

KEY = "activity:t-1:1.1"
DONE = Outcome(status="DONE", reason="the provider answered", provider_ref="ref-1")
TASK = Task(
    seq=1,
    id="t-1",
    workflow="order",
    agents=None,
    agent=None,
    session_id=None,
    schedule_id=None,
    parent_id=None,
    status=TaskStatus.RUNNING,
    reason=None,
    turn=1,
    state_json="null",
    result_json=None,
    error_code=None,
    error_message=None,
    trigger_id=None,
    max_attempts=None,
    turns_alone=0,
    steps_alone=0,
    deadline_at=None,
    created_at=0.0,
    updated_at=0.0,
    ended_at=None,
    dedup_key=None,
)


@pytest.fixture
def state() -> TaskState:
    return TaskState(task=TASK, resume=Resume.FIRST)


def intent(policy: str = "ask", again_calls: int | None = None) -> Intent:
    return Intent(
        key=KEY,
        action="pay",
        policy=policy,
        args_hash="hash",
        request_json=None,
        ends_at=60.0,
        again_calls=again_calls,
    )


def test_call_of_a_lost_entry_is_in_doubt_with_the_end_of_its_time(state):
    begin_call(state, 1, intent(), 0.0)
    assert leave_behind(state, 2, 5.0) == 0.0
    assert leave_behind(state, 1, 5.0) == 60.0
    assert state.acts[KEY].is_open


def test_calls_of_all_entries_are_in_doubt_when_their_task_ends(state):
    begin_call(state, 1, intent(), 0.0)
    assert (leave_behind(state, 2, 5.0), list_intents(state)) == (0.0, [KEY])
    assert (leave_behind(state, None, 5.0), list_intents(state)) == (60.0, [])
    assert leave_behind(state, None, 5.0) == 0.0


def test_doubt_with_the_policy_resend_delays_nothing(state):
    begin_call(state, 1, intent("resend"), 0.0)
    assert leave_behind(state, 1, 5.0) == 0.0


def test_late_answer_of_a_lost_entry_ends_the_doubt(state):
    begin_call(state, 1, intent(), 0.0)
    leave_behind(state, 1, 5.0)

    settle_call(state, KEY, 1, DONE, 6.0)

    assert (state.acts[KEY].status, state.acts[KEY].provider_ref, state.late) == (ActivityStatus.DONE, "ref-1", [])


@pytest.mark.parametrize("decision", [Decision.GIVE_UP, Decision.RESEND])
def test_late_answer_after_a_decision_is_noted(state, decision):
    begin_call(state, 1, intent(), 0.0)
    leave_behind(state, 1, 5.0)
    decide_doubt(state, KEY, decision, by="ada", reference=None, calls=None, now=6.0)
    before = state.acts[KEY]

    settle_call(state, KEY, 1, DONE, 7.0)

    assert (state.acts[KEY], [one.noted for one in state.late]) == (before, [before.reason])


def test_answer_of_an_earlier_call_does_not_settle_the_next(state):
    begin_call(state, 1, intent(), 0.0)
    leave_behind(state, 1, 5.0)
    again = begin_call(state, 2, intent(again_calls=1), 6.0)
    assert again.is_begun

    settle_call(state, KEY, 1, DONE, 7.0)

    assert (state.acts[KEY].status, state.acts[KEY].calls) == (ActivityStatus.INTENT, 2)
    assert [(one.key, one.call) for one in state.late] == [(KEY, 1)]


def test_late_answer_after_its_turn_is_noted_once(state):
    begin_call(state, 1, intent(), 0.0)
    state.acts.clear()

    answers = [settle_call(state, KEY, 1, DONE, 7.0) for _ in range(2)]

    assert [answer.is_late for answer in answers] == [True, True]
    assert [(one.key, one.provider_ref) for one in state.late] == [(KEY, "ref-1")]


def test_late_answer_without_an_effect_is_not_noted(state):
    begin_call(state, 1, intent(), 0.0)
    leave_behind(state, 1, 5.0)
    decide_doubt(state, KEY, Decision.GIVE_UP, by="ada", reference=None, calls=None, now=6.0)

    settle_call(state, KEY, 1, Outcome(status="FAILED", reason="refused", error_code="DECLINED"), 7.0)

    assert state.late == []


def test_repeated_call_of_a_changed_activity_is_not_begun(state):
    begin_call(state, 1, intent(), 0.0)
    leave_behind(state, 1, 5.0)
    decide_doubt(state, KEY, Decision.HAPPENED, by="ada", reference=None, calls=None, now=6.0)

    answer = begin_call(state, 2, intent(again_calls=1), 7.0)

    assert (answer.is_begun, answer.activity) == (False, state.acts[KEY])


def test_intent_without_a_running_call_is_in_doubt(state):
    begin_call(state, 1, intent(), 0.0)
    answer = begin_call(state, 1, intent(), 1.0)
    assert (answer.is_begun, state.acts[KEY].is_open) == (False, True)


def test_decision_about_nothing_in_doubt_is_refused(state):
    assert decide_doubt(state, KEY, "happened", by="ada", reference=None, calls=None, now=0.0).error == NOT_FOUND
    begin_call(state, 1, intent(), 0.0)
    assert decide_doubt(state, KEY, "happened", by="ada", reference=None, calls=None, now=0.0).error == STATE_REFUSED
    leave_behind(state, 1, 5.0)
    assert decide_doubt(state, KEY, "happened", by="ada", reference=None, calls=2, now=6.0).error == STATE_REFUSED
