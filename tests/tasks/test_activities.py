"""Questions about activities in doubt: their facts, their answers, and how they outlive the task."""

from __future__ import annotations

import json
from typing import Any

import pytest

from craftcore.activities.model import Activity, ActivityStatus, Decision, StartedCall
from craftcore.errors import ErrorCode, InvalidInput, LeaseLost, NotFound, StateRefused
from craftcore.executions.model import EventType
from craftcore.serialization.texts import NOTE_MAX
from craftcore.storage.facts import call_mark
from craftcore.tasks.activity_decisions import REFERENCE_MAX
from craftcore.tasks.activity_events import ActEnd, NewAct, question_about
from craftcore.tasks.model import NewWait, QuestionKind, TaskStatus, WaitKind
from craftcore.tasks.question_store import REQUEST_SHOWN
from craftcore.tasks.turn_event_store import NewEvent
from craftcore.triggers.settlement import Failed
from tests.support.activity_steps import (
    DONE,
    NOTHING,
    REFUSED,
    UNKNOWN,
    an_activity,
    an_intent,
    begin_call,
    decide,
    end_call,
    start_call,
)
from tests.support.activity_steps import look as look_at
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.task_steps import (
    Running,
    a_question,
    begin,
    enter_next,
    event_of,
    fail,
    finish,
    for_event,
    go_on,
    look,
    rows,
    suspend,
    the_question,
    unwind,
)
from tests.support.trigger_steps import claim_all

HOUR = 3600.0

CONFLICT = Failed(code=ErrorCode.IDEMPOTENCY_CONFLICT, message="other arguments", retryable=False)


def wait_for_decision(activity: Activity, name: str = "activity:1.1~1") -> NewWait:
    """Return the wait of a turn for a decision about its activity."""
    return NewWait(name=name, kind=WaitKind.QUESTION, question=question_about(activity, None))


def begin_in_doubt(core: VirtualCore, **trigger: Any) -> tuple[Running, Activity]:
    """Begin a turn with an activity in doubt, before the question about it."""
    running = begin(core, **trigger)
    return running, an_activity(core, running, UNKNOWN)


def suspend_in_doubt(core: VirtualCore, **trigger: Any) -> tuple[Running, Activity]:
    """Begin a turn that waits for a decision about its activity in doubt."""
    running, activity = begin_in_doubt(core, **trigger)
    suspend(core, running, wait_for_decision(activity))
    return running, activity


def record_decision(
    core: VirtualCore, activity: Activity, decision: Decision = Decision.HAPPENED, **how: Any
) -> Activity:
    return core.do(core.activity_decisions.decide, activity.key, decision, **{"decided_by": "ada", **how})


def dump_tables(core: VirtualCore) -> list[dict[str, Any]]:
    tables = ("activity_log", "activity_decisions", "questions", "waits", "tasks", "triggers")
    return [row for table in tables for row in rows(core, table)]


def questions(core: VirtualCore) -> list[tuple[str, str]]:
    """Return the kind and status of each question, oldest first."""
    return [(row["kind"], row["status"]) for row in rows(core, "questions")]


# Questions


def test_question_about_a_doubt_has_all_facts_a_person_needs(core, clock):
    running, activity = suspend_in_doubt(core)

    [question] = core.do(core.tasks.questions, 10)

    assert (question.kind, question.task_id, question.activity_key) == ("activity", running.task.id, activity.key)
    assert question.options == ("happened", "resend", "give up")
    assert (question.default_json, question.by_message, question.expires_at) == ("null", False, None)
    assert "Did pay happen?" in question.question
    assert "called at 2026-01-01 00:00:00 UTC" in question.question
    assert f"{activity.reason} ({activity.error_message})" in question.question
    assert question.question.startswith(f'{question.asked} Its arguments: {{"amount":7}}\n')
    assert question.asked.endswith(f"{activity.reason} ({activity.error_message}).")
    assert look(core, running.task.id).reason == "waits for an answer"


def test_long_arguments_are_shown_truncated_and_unstored_arguments_not_at_all(core):
    running = begin(core)
    for place, text in (("1.1", '"' + "x" * 1000 + '"'), ("1.2", None)):
        call = start_call(core, an_intent(running, place, request_json=text))
        end_call(core, call, UNKNOWN)
    fail(core, running)

    long, without_arguments = (question.question for question in core.do(core.tasks.questions, 10))

    assert '"' + "x" * (REQUEST_SHOWN - 1) + "…" in long
    assert "x" * REQUEST_SHOWN not in long
    assert "arguments that are not kept" in without_arguments


def test_message_does_not_answer_a_question_about_an_activity(core):
    running, activity = suspend_in_doubt(core)

    core.do(core.tasks.signal, running.task.id, "message", {"text": "happened"})

    assert look(core, running.task.id).status is TaskStatus.WAITING
    assert look_at(core, activity.seq) == activity


# Decisions


@pytest.mark.parametrize("decision", Decision)
def test_decision_answers_the_question_and_the_turn_continues(core, clock, decision):
    running, activity = suspend_in_doubt(core)
    clock.advance(90)

    found = record_decision(core, activity, decision, note="I looked")

    assert found == look_at(core, activity.seq)
    assert found.decision is decision
    [question] = rows(core, "questions")
    assert (question["status"], question["answer"], question["note"]) == ("ANSWERED", decision, "I looked")
    assert (question["answered_by"], question["closed_at"]) == ("ada", NEW_YEAR + 90)
    again = enter_next(core)
    assert (again.task.id, again.entry.resume) == (running.task.id, "ANSWER")
    value = json.loads(again.entry.waits["activity:1.1~1"].value_json or "")
    assert (value["decision"], value["by"]) == (decision, "ada")  # the record of the turn keeps the name


@pytest.mark.parametrize("decision", Decision)
def test_answer_to_the_question_is_the_decision(core, decision):
    running, _ = suspend_in_doubt(core)
    reference = "pi_7" if decision is Decision.HAPPENED else None

    question = core.do(
        core.tasks.answer, the_question(core)["id"], decision, reference=reference, note="seen", answered_by="ada"
    )

    assert (question.status, question.answer, question.answered_by) == ("ANSWERED", decision, "ada")
    assert (look_at(core, 1).decision, look_at(core, 1).provider_ref) == (decision, reference)
    [row] = rows(core, "activity_decisions")
    assert (row["decision"], row["reference"], row["note"], row["decided_by"]) == (decision, reference, "seen", "ada")
    assert enter_next(core).task.id == running.task.id


@pytest.mark.parametrize("decision", Decision)
def test_decision_without_a_question_is_accepted(core, decision):
    """The turn has not asked yet, or is retried."""
    _, activity = begin_in_doubt(core)
    before = rows(core, "tasks") + rows(core, "waits") + rows(core, "triggers")

    assert record_decision(core, activity, decision).decision is decision

    assert rows(core, "questions") == []
    assert rows(core, "tasks") + rows(core, "waits") + rows(core, "triggers") == before


def test_refused_call_may_be_resent_without_a_question(core):
    running = begin(core)
    refused = an_activity(core, running, REFUSED)
    fail(core, running)

    record_decision(core, refused, Decision.RESEND)

    assert begin_call(core, an_intent(running)) == StartedCall(refused.seq, 2, False)


def test_second_decision_is_refused_as_too_late(core):
    _, activity = suspend_in_doubt(core)
    question_id = the_question(core)["id"]
    record_decision(core, activity)
    before = dump_tables(core)

    with pytest.raises(StateRefused, match="is DONE: happened: decided by ada; nothing was written"):
        record_decision(core, activity, Decision.RESEND, decided_by="bob")
    with pytest.raises(StateRefused, match=r'too late: .* was answered by ada with "happened"'):
        core.do(core.tasks.answer, question_id, "resend", answered_by="bob")
    assert dump_tables(core) == before


@pytest.mark.parametrize("end", [DONE, NOTHING, REFUSED, None])
def test_decision_about_a_certain_activity_is_refused(core, end):
    activity = an_activity(core, begin(core), end)
    before = dump_tables(core)

    with pytest.raises(StateRefused):
        record_decision(core, activity, Decision.GIVE_UP)
    assert dump_tables(core) == before


def test_decision_about_an_unknown_key_is_refused(core):
    with pytest.raises(NotFound, match=r"no activity activity:t:1\.1"):
        core.do(core.activity_decisions.decide, "activity:t:1.1", Decision.HAPPENED, decided_by="ada")


@pytest.mark.parametrize(
    ("decision", "how", "message"),
    [
        (Decision.RESEND, {"reference": "pi_7"}, "a reference is for what happened"),
        (Decision.GIVE_UP, {"reference": "pi_7"}, "a reference is for what happened"),
        (Decision.HAPPENED, {"reference": ""}, "1 to 998 printable characters"),
        (Decision.HAPPENED, {"reference": "x" * (REFERENCE_MAX + 1)}, "1 to 998 printable characters"),
        (Decision.HAPPENED, {"reference": "pi_7\n"}, "1 to 998 printable characters"),
        (Decision.HAPPENED, {"reference": "\x1b[31mpi"}, "1 to 998 printable characters"),
        (Decision.HAPPENED, {"reference": "\ud800"}, "1 to 998 printable characters"),
        (Decision.HAPPENED, {"note": "x" * (NOTE_MAX + 1)}, "the note has 4,001 characters; the limit is 4,000"),
        (Decision.HAPPENED, {"note": "\ud800"}, "note holds a lone surrogate"),
        (Decision.HAPPENED, {"decided_by": "x" * (NOTE_MAX + 1)}, "the decided_by has 4,001 characters"),
        (Decision.HAPPENED, {"decided_by": "\ud800"}, "lone surrogate"),
    ],
)
def test_invalid_decision_is_refused_and_the_question_stays_open(core, decision, how, message):
    _, activity = suspend_in_doubt(core)
    before = dump_tables(core)

    with pytest.raises(InvalidInput, match=message):
        record_decision(core, activity, decision, **how)
    assert dump_tables(core) == before


@pytest.mark.parametrize("how", [{"reference": ""}, {"reference": "\n"}, {"note": "x" * (NOTE_MAX + 1)}])
def test_invalid_answer_is_refused_like_the_same_decision(core, how):
    suspend_in_doubt(core)
    before = dump_tables(core)

    with pytest.raises(InvalidInput):
        core.do(core.tasks.answer, the_question(core)["id"], "happened", answered_by="ada", **how)
    assert dump_tables(core) == before


@pytest.mark.parametrize("choice", ["Happened", "give_up", "yes", ""])
def test_answer_outside_the_options_decides_nothing(core, choice):
    suspend_in_doubt(core)
    before = dump_tables(core)

    with pytest.raises(InvalidInput, match="not an option; choose one of: happened, resend, 'give up'"):
        core.do(core.tasks.answer, the_question(core)["id"], choice, answered_by="ada")
    assert dump_tables(core) == before


@pytest.mark.parametrize("reference", ["x" * REFERENCE_MAX, "7", "Überweisung №1 \N{SNOWMAN}", '"; DROP'])
def test_reference_of_a_decision_is_kept_literally(core, reference):
    _, activity = suspend_in_doubt(core)

    record_decision(core, activity, reference=reference, note="x" * NOTE_MAX)

    assert look_at(core, 1).provider_ref == reference
    assert rows(core, "activity_decisions")[0]["reference"] == reference


@pytest.mark.parametrize("kind", [QuestionKind.ASK, QuestionKind.STALE, QuestionKind.BUDGET])
def test_reference_is_refused_for_a_question_without_an_activity(core, kind):
    suspend(core, begin(core), a_question(kind=kind))
    before = dump_tables(core)

    with pytest.raises(InvalidInput, match="a reference is for an irreversible action that happened"):
        core.do(core.tasks.answer, the_question(core)["id"], "send", reference="pi_7", answered_by="ada")
    assert dump_tables(core) == before


# Waits for something else


@pytest.mark.parametrize("decision", Decision)
def test_wait_that_begins_after_the_decision_continues_at_once(core, decision):
    running, activity = begin_in_doubt(core)
    record_decision(core, activity, decision)

    follows = suspend(core, running, wait_for_decision(activity))

    assert follows.due_at == core.clock.now()
    task = look(core, running.task.id)
    assert (task.status, task.reason) == (TaskStatus.RUNNING, "its wait had ended")
    assert questions(core) == [("activity", "WITHDRAWN")]
    again = enter_next(core)
    assert (again.entry.resume, again.entry.waits["activity:1.1~1"].resolved_by) == ("ANSWER", "answer")


def test_answer_does_not_wake_a_task_that_waits_for_something_else(core):
    """The task failed, was retried, and now waits for an event."""
    running, activity = begin_in_doubt(core)
    fail(core, running)
    core.do(core.tasks.retry, running.task.id)
    suspend(core, enter_next(core), for_event("paid"))
    before = rows(core, "waits") + rows(core, "tasks")

    record_decision(core, activity)

    assert rows(core, "waits") + rows(core, "tasks") == before
    assert questions(core) == [("activity", "ANSWERED")]


def test_answer_resolves_the_wait_of_its_own_question_only(core, clock):
    """The wait for the answer ended at the deadline, and the turn now waits for an event."""
    running, activity = begin_with_deadline(core)
    suspend(core, running, wait_for_decision(activity))
    clock.advance(HOUR)
    suspend(core, enter_next(core, deadline=HOUR), for_event("paid", until=clock.now() + HOUR))
    assert the_question(core)["wait_seq"] == 1
    before = rows(core, "waits") + rows(core, "triggers")

    record_decision(core, activity)

    assert rows(core, "waits") + rows(core, "triggers") == before
    assert [(row["name"], row["resolved_by"]) for row in rows(core, "waits")] == [
        ("activity:1.1~1", "end"),
        ("wait_for#1", None),
    ]
    assert questions(core) == [("activity", "ANSWERED")]


def test_repeated_call_withdraws_the_question(core):
    """The provider ignores repeated calls. The retried task repeats the call while the question is open."""
    running, activity = begin_in_doubt(core)
    fail(core, running)
    core.do(core.tasks.retry, running.task.id)
    again = enter_next(core)

    [call] = core.do(core.acts.begin_all, [make_act(again, again=activity)])

    assert call == StartedCall(activity.seq, 2, True, mark=1)
    assert questions(core) == [("activity", "WITHDRAWN")]
    assert [(row["decision"], row["decided_by"]) for row in rows(core, "activity_decisions")] == [
        ("resend", "policy ask")
    ]


# The end of the task


def end_task(core: VirtualCore, running: Running, how: str) -> TaskStatus:
    match how:
        case "done":
            finish(core, running)
        case "failed":
            fail(core, running)
        case "cancelled":
            unwind(core, running)
    return look(core, running.task.id).status


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
def test_task_end_with_an_act_in_doubt_leaves_a_question_without_a_wait(core, how):
    running, activity = begin_in_doubt(core)

    status = end_task(core, running, how)

    assert status == how.upper()
    question = the_question(core)
    assert (question["kind"], question["activity_seq"], question["task_seq"]) == ("activity", 1, running.task.seq)
    assert (question["wait_seq"], question["expires_at"]) == (None, None)
    assert record_decision(core, activity).status is ActivityStatus.DONE
    assert questions(core) == [("activity", "ANSWERED")]
    assert look(core, running.task.id).status is status


@pytest.mark.parametrize("decision", Decision)
def test_answer_after_the_end_of_the_task_does_not_change_the_task(core, decision):
    running, activity = suspend_in_doubt(core)
    core.do(core.tasks.cancel, running.task.id)
    before = rows(core, "tasks") + rows(core, "waits") + rows(core, "triggers")

    core.do(core.tasks.answer, the_question(core)["id"], decision, answered_by="ada")

    assert rows(core, "tasks") + rows(core, "waits") + rows(core, "triggers") == before
    assert look_at(core, activity.seq).decision is decision


def test_question_of_a_cancelled_waiting_task_stays_and_loses_its_wait(core):
    running, _ = suspend_in_doubt(core)
    assert the_question(core)["wait_seq"] == 1
    question_id = the_question(core)["id"]

    core.do(core.tasks.cancel, running.task.id)

    assert (the_question(core)["id"], the_question(core)["wait_seq"]) == (question_id, None)
    assert [(row["status"], row["resolved_by"]) for row in rows(core, "waits")] == [("RESOLVED", "end")]


def test_question_exists_for_each_act_in_doubt_and_no_other(core):
    running = begin(core)
    for number, end in enumerate([UNKNOWN, DONE, NOTHING, REFUSED, UNKNOWN, UNKNOWN], 1):
        activity = an_activity(core, running, end, f"1.{number}")
    decide(core, activity, Decision.GIVE_UP)

    fail(core, running)

    assert [(row["activity_seq"], row["status"]) for row in rows(core, "questions")] == [(1, "OPEN"), (5, "OPEN")]


def test_question_is_not_asked_while_a_later_turn_will_resolve_the_doubt(core):
    running, _ = begin_in_doubt(core)

    core.do(core.acts.ask_at_end, [running.task.seq])
    go_on(core, running)

    assert rows(core, "questions") == []


def test_tasks_of_a_batch_are_each_asked_about_their_own_doubts(core):
    first, second = begin_in_doubt(core)[0], begin_in_doubt(core)[0]
    fail(core, first)
    assert [row["task_seq"] for row in rows(core, "questions")] == [first.task.seq]

    fail(core, second)

    assert [row["task_seq"] for row in rows(core, "questions")] == [first.task.seq, second.task.seq]


def test_question_survives_a_task_retry_and_is_not_asked_twice(core):
    running, activity = begin_in_doubt(core)
    fail(core, running)
    question_id = the_question(core)["id"]

    core.do(core.tasks.retry, running.task.id)
    assert the_question(core)["id"] == question_id

    fail(core, enter_next(core))
    assert the_question(core)["id"] == question_id

    core.do(core.tasks.retry, running.task.id)
    suspend(core, enter_next(core), wait_for_decision(activity))
    assert the_question(core)["id"] == question_id
    [wait] = rows(core, "waits")
    assert the_question(core)["wait_seq"] == wait["seq"]

    core.do(core.tasks.answer, question_id, "happened", answered_by="ada")
    value = json.loads(enter_next(core).entry.waits["activity:1.1~1"].value_json or "")
    assert value == {"by": "ada", "decision": "happened", "reference": None}
    assert questions(core) == [("activity", "ANSWERED")]


def test_decision_about_a_failed_task_holds_at_its_retry(core):
    running, activity = begin_in_doubt(core)
    fail(core, running)
    record_decision(core, activity, Decision.RESEND)
    core.do(core.tasks.retry, running.task.id)

    assert begin_call(core, an_intent(enter_next(core))) == StartedCall(activity.seq, 2, False)


def test_doubt_of_an_ended_task_is_asked_about_at_boot(core):
    """The process was killed during the call, and the task was ended from outside."""
    running = begin(core)
    an_activity(core, running, None)
    fail(core, running)
    assert rows(core, "questions") == []

    assert core.do(core.acts.mark_interrupted) == 1

    assert the_question(core)["activity_seq"] == 1
    assert "look before you answer" in the_question(core)["question"]


def test_boot_asks_nothing_about_a_task_that_continues(core):
    an_activity(core, begin(core), None)

    assert core.do(core.acts.mark_interrupted) == 1
    assert rows(core, "questions") == []


# A deadline


def test_deadline_ends_the_wait_for_an_answer_and_not_the_question(core, clock):
    running, activity = begin_with_deadline(core)
    suspend(core, running, wait_for_decision(activity))
    [timer] = core.rows("SELECT due_at FROM triggers WHERE status = 'PENDING'")
    assert timer["due_at"] == NEW_YEAR + HOUR
    question_id = the_question(core)["id"]
    clock.advance(HOUR)

    again = enter_next(core, deadline=HOUR)

    assert [(row["status"], row["resolved_by"]) for row in rows(core, "waits")] == [("RESOLVED", "end")]
    assert again.entry.waits == {}
    assert the_question(core)["id"] == question_id

    fail(core, again)
    assert (the_question(core)["id"], the_question(core)["wait_seq"]) == (question_id, None)


def test_answer_before_the_deadline_brings_the_single_trigger_forward(core, clock):
    running, activity = begin_with_deadline(core)
    suspend(core, running, wait_for_decision(activity))
    clock.advance(60)

    record_decision(core, activity)

    assert core.rows("SELECT due_at FROM triggers WHERE status = 'PENDING'") == [{"due_at": NEW_YEAR + 60}]
    assert enter_next(core, deadline=HOUR).entry.resume == "ANSWER"
    clock.advance(HOUR)
    assert claim_all(core) == []


def test_answer_after_the_deadline_decides_the_activity_and_wakes_no_task(core, clock):
    running, activity = begin_with_deadline(core)
    suspend(core, running, wait_for_decision(activity))
    clock.advance(HOUR)
    fail(core, enter_next(core, deadline=HOUR))
    before = rows(core, "tasks") + rows(core, "triggers") + rows(core, "waits")

    core.do(core.tasks.answer, the_question(core)["id"], "happened", answered_by="ada")

    assert rows(core, "tasks") + rows(core, "triggers") + rows(core, "waits") == before
    assert look_at(core, activity.seq).status is ActivityStatus.DONE


def begin_with_deadline(core: VirtualCore) -> tuple[Running, Activity]:
    running = begin(core, deadline=HOUR)
    return running, an_activity(core, running, UNKNOWN)


# Conflicts of an idempotency key


def fail_with_conflict(core: VirtualCore) -> Running:
    running = begin(core)
    an_activity(core, running, DONE)
    fail(core, running, CONFLICT)
    return running


def test_idempotency_conflict_of_a_task_is_put_to_a_person(core):
    running = fail_with_conflict(core)

    [question] = core.do(core.tasks.questions, 10)

    assert (question.kind, question.options) == ("conflict", ("retry", "leave"))
    assert (question.wait_seq, question.activity_key, question.task_id) == (None, None, running.task.id)
    assert question.question == (
        f"Task {running.task.id} (greet) has failed: other arguments. Try its turn again, or leave it?"
    )


def test_answer_to_a_conflict_retries_the_turn_or_leaves_the_task(core):
    first, second = fail_with_conflict(core), fail_with_conflict(core)
    retried, left = rows(core, "questions")

    core.do(core.tasks.answer, retried["id"], "retry", answered_by="ada")
    core.do(core.tasks.answer, left["id"], "leave", answered_by="ada")

    assert enter_next(core).task.id == first.task.id
    assert look(core, second.task.id).status is TaskStatus.FAILED
    assert questions(core) == [("conflict", "ANSWERED"), ("conflict", "ANSWERED")]


@pytest.mark.parametrize("command", ["retry", "requeue"])
def test_manual_retry_withdraws_the_conflict_question(core, command):
    running = fail_with_conflict(core)

    if command == "retry":
        core.do(core.tasks.retry, running.task.id)
    else:
        core.do(core.triggers.requeue, running.claim.id)

    assert questions(core) == [("conflict", "WITHDRAWN")]
    with pytest.raises(StateRefused, match="is withdrawn"):
        core.do(core.tasks.answer, rows(core, "questions")[0]["id"], "retry", answered_by="ada")


def test_repeated_conflict_is_asked_about_again(core):
    running = fail_with_conflict(core)
    core.do(core.tasks.retry, running.task.id)

    fail(core, enter_next(core), CONFLICT)

    assert questions(core) == [("conflict", "WITHDRAWN"), ("conflict", "OPEN")]


def test_doubts_beside_a_conflict_are_asked_about_and_survive_a_retry(core):
    running, _ = begin_in_doubt(core)
    fail(core, running, CONFLICT)
    assert questions(core) == [("activity", "OPEN"), ("conflict", "OPEN")]

    core.do(core.tasks.retry, running.task.id)

    assert questions(core) == [("activity", "OPEN"), ("conflict", "WITHDRAWN")]


@pytest.mark.parametrize("answer", [None, "leave"])
def test_boot_with_an_open_call_does_not_ask_about_the_conflict_again(core, answer):
    """One activity of the task was a conflict, and another was being called when the process was killed."""
    running = begin(core)
    an_activity(core, running, None)
    fail(core, running, CONFLICT)
    if answer is not None:
        core.do(core.tasks.answer, the_question(core)["id"], answer, answered_by="ada")

    core.do(core.acts.mark_interrupted)

    assert [kind for kind, _ in questions(core)] == ["conflict", "activity"]


def test_failure_of_another_kind_raises_no_conflict_question(core):
    running = begin(core)
    an_activity(core, running, REFUSED)

    fail(core, running)

    assert rows(core, "questions") == []


# Questions of other kinds


@pytest.mark.parametrize("how", ["done", "failed", "cancelled"])
@pytest.mark.parametrize("kind", [QuestionKind.ASK, QuestionKind.STALE, QuestionKind.BUDGET, QuestionKind.STALLED])
def test_open_questions_of_an_ended_task_are_withdrawn(core, how, kind):
    running, _ = begin_in_doubt(core)
    question = a_question(kind=kind).question
    assert question is not None
    core.do(core.acts._questions.ask, core.clock.new_id(), running.task.seq, None, question, None)

    end_task(core, running, how)

    assert questions(core) == [(kind, "WITHDRAWN"), ("activity", "OPEN")]


def test_reentered_turn_withdraws_only_the_stall_question(core):
    running, _ = begin_in_doubt(core)
    fail(core, running)
    core.do(core.tasks.retry, running.task.id)
    question = a_question(kind=QuestionKind.STALLED).question
    assert question is not None
    core.do(core.acts._questions.ask, core.clock.new_id(), running.task.seq, None, question, None)

    enter_next(core)

    assert questions(core) == [("activity", "OPEN"), ("stalled", "WITHDRAWN")]


# Writes of a running turn


def make_event(running: Running, type_: EventType, **event: Any) -> NewEvent:
    return event_of(running, None)._replace(type=type_, **event)


def make_act(running: Running, place: str = "1.1", again: Activity | None = None, **event: Any) -> NewAct:
    return NewAct(an_intent(running, place), make_event(running, EventType.ACTIVITY_INTENT, **event), again)


def recorded_activities(core: VirtualCore) -> list[tuple[str, int | None]]:
    """Return the type and the activity of each event about an activity."""
    found = [
        (row["type"], row["activity_seq"]) for row in core.rows("SELECT * FROM events ORDER BY execution_seq, seq")
    ]
    return [(type_, seq) for type_, seq in found if type_.startswith("ACTIVITY")]


def test_intent_and_outcome_are_in_the_record_with_their_activity(core):
    running = begin(core)
    [call] = core.do(core.acts.begin_all, [make_act(running)])
    end = ActEnd(call, DONE, make_event(running, EventType.ACTIVITY_DONE, activity_seq=call.seq))

    assert core.do(core.acts.settle_all, [end]) == [True]

    assert recorded_activities(core) == [("ACTIVITY_INTENT", 1), ("ACTIVITY_DONE", 1)]


def test_turn_that_lost_its_trigger_begins_no_call_and_its_batch_continues(core):
    lost, active = begin(core), begin(core)
    batch = [make_act(lost, lease_token="9-9"), make_act(active), make_act(lost, "1.2", lease_token="9-9")]

    first, call, last = core.do(core.acts.begin_all, batch)

    assert isinstance(first, LeaseLost)
    assert isinstance(last, LeaseLost)
    assert call == StartedCall(1, 1, False, mark=1)
    assert [row["task_id"] for row in rows(core, "activity_log")] == [active.task.id]
    assert recorded_activities(core) == [("ACTIVITY_INTENT", 1)]


def test_commit_that_begins_calls_has_a_unique_mark(core):
    running = begin(core)
    together = [make_act(running, place=place) for place in ("1.1", "1.2")]

    marks = [call.mark for call in core.do(core.acts.begin_all, together)]
    assert [call.mark for call in core.do(core.acts.begin_all, [make_act(running, place="1.3")])] == [2]
    assert marks == [1, 1]

    other = make_act(running)
    core.do(core.acts.begin_all, [other._replace(intent=other.intent._replace(args_hash="another"))])
    assert core.do(call_mark) == 2, "a conflict begins no call"


def test_outcome_is_written_although_the_turn_lost_its_trigger(core):
    running = begin(core)
    [call] = core.do(core.acts.begin_all, [make_act(running)])
    end = ActEnd(call, DONE, make_event(running, EventType.ACTIVITY_DONE, activity_seq=call.seq, lease_token="9-9"))

    assert core.do(core.acts.settle_all, [end]) == [True]

    assert look_at(core, call.seq).status is ActivityStatus.DONE
    assert recorded_activities(core) == [("ACTIVITY_INTENT", 1)]


def test_late_outcome_is_not_in_the_record(core):
    running = begin(core)
    [call] = core.do(core.acts.begin_all, [make_act(running)])
    end = ActEnd(call, DONE, make_event(running, EventType.ACTIVITY_DONE, activity_seq=call.seq))
    core.do(core.acts.settle_all, [end])

    assert core.do(core.acts.settle_all, [end]) == [False]
    assert recorded_activities(core) == [("ACTIVITY_INTENT", 1), ("ACTIVITY_DONE", 1)]


def test_policy_repeat_is_in_the_record_as_a_call_and_a_decision(core):
    running, doubt = begin_in_doubt(core)

    [call] = core.do(core.acts.begin_all, [make_act(running, again=doubt)])

    assert call == StartedCall(doubt.seq, 2, True, mark=1)
    [row] = rows(core, "activity_decisions")
    assert (row["decision"], row["decided_by"]) == ("resend", "policy ask")
    assert recorded_activities(core) == [("ACTIVITY_INTENT", doubt.seq)]


def test_policy_repeat_is_skipped_after_a_manual_decision(core):
    running, doubt = begin_in_doubt(core)
    found = record_decision(core, doubt, Decision.GIVE_UP)
    before = rows(core, "activity_decisions")

    assert core.do(core.acts.begin_all, [make_act(running, again=doubt)]) == [found]

    assert rows(core, "activity_decisions") == before
    assert recorded_activities(core) == []


def test_policy_decision_withdraws_the_question(core):
    """The failed task asked a person. The retried task asks the provider."""
    running, doubt = begin_in_doubt(core)
    fail(core, running)
    core.do(core.tasks.retry, running.task.id)
    again = enter_next(core)
    event = make_event(again, EventType.ACTIVITY_RESOLVED, activity_seq=doubt.seq)

    found = core.do(core.acts.decide, doubt, Decision.HAPPENED, "reconcile", "pi_7", event)

    assert (found.status, found.provider_ref) == (ActivityStatus.DONE, "pi_7")
    assert questions(core) == [("activity", "WITHDRAWN")]
    assert recorded_activities(core) == [("ACTIVITY_RESOLVED", doubt.seq)]
    assert [row["decided_by"] for row in rows(core, "activity_decisions")] == ["reconcile"]


def test_open_intent_is_found_again_by_its_own_attempt(core):
    """The turn was cancelled during the write, so it does not know whether the intent was written."""
    running = begin(core)
    intent = an_intent(running)
    assert core.do(core.acts.intent_of, intent) is None

    call = start_call(core, intent)
    assert core.do(core.acts.intent_of, intent) == call
    assert core.do(core.acts.intent_of, intent._replace(execution_seq=99)) is None

    end_call(core, call, UNKNOWN)
    assert core.do(core.acts.intent_of, intent) is None
