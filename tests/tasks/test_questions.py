"""Questions to a person: one answer each, and refusal of late answers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from craftcore.errors import InvalidInput, NotFound, StateRefused
from craftcore.serialization.texts import NOTE_MAX
from craftcore.tasks.model import NewQuestion, Question, QuestionKind, TaskStatus
from craftcore.tasks.question_store import QuestionStore
from tests.support.fakes import NEW_YEAR, VirtualCore
from tests.support.task_steps import (
    Running,
    a_question,
    begin,
    begin_child,
    enter_next,
    fail,
    finish,
    go_on,
    look,
    rows,
    suspend,
    the_question,
)
from tests.support.trigger_steps import BROKEN


def suspend_with_question(core: VirtualCore, **question: Any) -> Running:
    running = begin(core)
    suspend(core, running, a_question(**question))
    return running


def answer(core: VirtualCore, choice: str = "send", **how: Any) -> None:
    [question] = rows(core, "questions")[-1:]
    core.do(core.tasks.answer, question["id"], choice, **{"answered_by": "ada", **how})


def test_question_row_has_all_facts_a_person_needs(core, clock):
    running = suspend_with_question(core, until=clock.now() + 3600, default="hold")

    question = the_question(core)

    assert (question["question"], json.loads(question["options_json"])) == ("Send it?", ["send", "hold"])
    assert (question["kind"], question["task_seq"]) == ("ask", running.task.seq)
    assert (question["created_at"], question["expires_at"]) == (NEW_YEAR, NEW_YEAR + 3600)


def test_answer_reaches_the_turn_and_is_stored_with_author_and_note(core, clock):
    suspend_with_question(core)
    clock.advance(90)

    answer(core, "hold", note="not before Monday", answered_by="ada")

    [question] = rows(core, "questions")
    assert (question["status"], question["answer"]) == ("ANSWERED", "hold")
    assert (question["note"], question["answered_by"], question["closed_at"]) == (
        "not before Monday",
        "ada",
        NEW_YEAR + 90,
    )
    again = enter_next(core)
    assert (again.entry.resume, again.entry.waits["ask#1"].value_json) == ("ANSWER", '"hold"')


def test_second_answer_is_refused_and_shows_the_first(core):
    suspend_with_question(core)
    answer(core, "send", answered_by="ada")
    before = rows(core, "questions") + rows(core, "waits") + rows(core, "tasks")

    with pytest.raises(StateRefused, match=r'too late: .* was answered by ada with "send"; nothing was written'):
        answer(core, "hold", answered_by="bob")
    assert rows(core, "questions") + rows(core, "waits") + rows(core, "tasks") == before


def test_question_of_an_ended_task_is_withdrawn(core):
    running = suspend_with_question(core)
    core.do(core.tasks.cancel, running.task.id)

    with pytest.raises(StateRefused, match=r"too late: .* is withdrawn"):
        answer(core)


def test_answer_guards_against_a_concurrent_writer(core):
    suspend_with_question(core)
    answer(core)
    [question] = rows(core, "questions")

    with core.transaction() as tx:
        assert not QuestionStore().answer(tx, question["seq"], "hold", note=None, answered_by="bob")


@pytest.mark.parametrize(
    ("choice", "note", "refusal"),
    [
        ("Send", None, "not an option; choose one of: send, hold"),
        ("", None, "not an option"),
        ("send", "x" * (NOTE_MAX + 1), "the note has 4,001 characters"),
        ("send", "\ud800", "lone surrogate"),
    ],
)
def test_invalid_answer_is_refused_and_nothing_is_written(core, choice, note, refusal):
    suspend_with_question(core)

    with pytest.raises(InvalidInput, match=refusal):
        answer(core, choice, note=note)
    assert the_question(core)["status"] == "OPEN"


@pytest.mark.parametrize("author", ["x" * (NOTE_MAX + 1), "\ud800"])
def test_answer_author_needs_a_storable_name(core, author):
    suspend_with_question(core)

    with pytest.raises(InvalidInput):
        answer(core, "send", answered_by=author)
    assert the_question(core)["status"] == "OPEN"


@pytest.mark.parametrize("text", ["", "x" * (NOTE_MAX + 1), "\ud800"])
def test_free_text_has_its_limits(core, text):
    suspend_with_question(core, options=None)

    with pytest.raises(InvalidInput):
        answer(core, text)
    assert the_question(core)["status"] == "OPEN"


def test_any_text_answers_a_question_without_options(core):
    suspend_with_question(core, options=None)

    answer(core, 'tomorrow, "perhaps" \N{SNOWMAN}')

    assert json.loads(enter_next(core).entry.waits["ask#1"].value_json or "") == 'tomorrow, "perhaps" \N{SNOWMAN}'


def test_answer_to_an_unknown_question_is_refused(core):
    with pytest.raises(NotFound, match="no question nobody"):
        core.do(core.tasks.answer, "nobody", "send", answered_by="ada")


def test_default_is_the_answer_when_none_came_in_time(core, clock):
    suspend_with_question(core, until=clock.now() + 60, default="hold")
    clock.advance(60)

    again = enter_next(core)

    assert (again.entry.resume, again.entry.waits["ask#1"].value_json) == ("TIMER", '"hold"')
    [question] = rows(core, "questions")
    assert (question["status"], question["closed_at"], question["answered_by"]) == ("EXPIRED", clock.now(), None)


def test_questions_are_listed_in_the_order_asked_with_their_tasks(core):
    tasks = [suspend_with_question(core).task.id for _ in range(3)]

    with core.reading() as reader:
        found = [one for one in QuestionStore().open_ones(reader, 2) if isinstance(one, Question)]

    assert [question.task_id for question in found] == tasks[:2]
    assert found[0].options == ("send", "hold")


# Questions about a task


def ask_about_stall(core: VirtualCore) -> Running:
    running = begin(core)
    question = NewQuestion(kind=QuestionKind.STALLED, question="Does it hang?", options=("wait", "cancel"))
    core.do(core.turn_recorder.ask_stalled, running.claim, running.task, question)
    return running


def test_stalled_turn_is_asked_about_once(core):
    running = ask_about_stall(core)

    question = NewQuestion(kind=QuestionKind.STALLED, question="Does it still hang?", options=("wait", "cancel"))
    core.do(core.turn_recorder.ask_stalled, running.claim, running.task, question)

    assert the_question(core)["question"] == "Does it hang?"


def test_stalled_turn_continues_or_its_task_is_cancelled_at_the_next_await(core):
    running = ask_about_stall(core)
    answer(core, "wait")
    assert look(core, running.task.id).status is TaskStatus.RUNNING
    assert core.do(core.claims.cancel_requests, 1) == []

    question = NewQuestion(kind=QuestionKind.STALLED, question="And now?", options=("wait", "cancel"))
    core.do(core.turn_recorder.ask_stalled, running.claim, running.task, question)
    answer(core, "cancel")
    assert core.do(core.claims.cancel_requests, 1) == [running.claim.seq]


@pytest.mark.parametrize("how", ["continues", "fails", "is done"])
def test_question_about_a_stalled_turn_is_withdrawn_with_the_turn(core, how):
    running = ask_about_stall(core)
    match how:
        case "continues":
            go_on(core, running)
            enter_next(core)
        case "fails":
            fail(core, running, BROKEN)
            core.clock.advance(3600)
            enter_next(core)
        case "is done":
            finish(core, running)

    assert [question["status"] for question in rows(core, "questions")] == ["WITHDRAWN"]


def test_question_about_a_finished_turn_is_not_asked(core):
    running = begin(core)
    finish(core, running)

    question = NewQuestion(kind=QuestionKind.STALLED, question="Does it hang?", options=("wait", "cancel"))
    core.do(core.turn_recorder.ask_stalled, running.claim, running.task, question)

    assert rows(core, "questions") == []


def test_budget_question_continues_or_cancels_the_task(core):
    continued, cancelled = begin(core), begin(core)
    for running in (continued, cancelled):
        go_on(core, running, 1, a_question(kind=QuestionKind.BUDGET, options=("continue", "cancel"), name="budget:1"))
    first, second = rows(core, "questions")

    core.do(core.tasks.answer, first["id"], "continue", answered_by="ada")
    core.do(core.tasks.answer, second["id"], "cancel", answered_by="ada")

    again = enter_next(core)
    assert (again.task.id, again.task.turn, again.entry.resume) == (continued.task.id, 2, "RESUME")
    assert look(core, cancelled.task.id).reason == "cancelled: budget"
    assert look(core, cancelled.task.id).error_code == "WORKFLOW_ABORTED"


def test_user_question_with_an_option_cancel_is_only_answered(core):
    running = suspend_with_question(core, options=("cancel", "send"))

    answer(core, "cancel")

    assert look(core, running.task.id).status is TaskStatus.RUNNING
    assert enter_next(core).entry.waits["ask#1"].value_json == '"cancel"'


def test_questions_of_a_child_belong_to_the_child(core):
    parent = begin(core)
    child = begin_child(core, parent)
    suspend(core, child, a_question())

    finish(core, parent)

    assert the_question(core)["task_seq"] == child.task.seq
