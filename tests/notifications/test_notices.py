"""Notices: the events that write them, their triggers, and events without a notice."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from craftcore.config.web_settings import WebSettings
from craftcore.notifications.model import KINDS, Notification, NotifyRule, Work, document_of
from craftcore.notifications.service import NotificationService
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.triggers.settlement import Succeeded
from tests.support.fakes import VirtualCore
from tests.support.task_steps import a_question, begin, begin_child, enter_next, fail, for_event, suspend, the_question
from tests.support.trigger_steps import BROKEN, HOPELESS, ack, claim_all, emit, run_one, start


def a_rule(*kinds: str, **options: Any) -> NotifyRule:
    return NotifyRule(
        name="r",
        kinds=frozenset(kinds or KINDS),
        compose=lambda events: Work("tell", {"texts": [one.text for one in events]}),
        **options,
    )


def make_service(core: VirtualCore, *rules: NotifyRule) -> NotificationService:
    service = NotificationService(core.triggers, rules or (a_rule(),))
    core.do(service.declare)
    return service


def fail_one(core: VirtualCore) -> None:
    """Let a trigger fail; notifications that are due succeed."""
    failing = emit(core).id
    for claim in claim_all(core):
        ack(core, start(core, claim), HOPELESS if claim.id == failing else Succeeded(result_json="1"))


def notified_texts(core: VirtualCore) -> list[list[str]]:
    rows = core.rows("SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:*' ORDER BY seq")
    return [json.loads(row["payload_json"])["texts"] for row in rows]


def test_dead_and_failed_triggers_are_notified_once(core):
    service = make_service(core)
    emit(core, max_attempts=1)
    run_one(core, BROKEN)
    fail_one(core)
    emit(core)
    run_one(core, Succeeded(result_json="1"))

    assert core.do(service.notify) == 2
    assert core.do(service.notify) == 0
    [[dead], [failed]] = notified_texts(core)
    assert dead.startswith("greet is a dead letter after 1 attempt: ")
    assert failed.startswith("greet has failed: ")


def test_question_is_notified_with_its_options(core):
    service = make_service(core)
    suspend(core, begin(core), a_question())

    core.do(service.notify)

    assert notified_texts(core) == [["greet asks: Send it? [send, hold]"]]


def test_missed_occurrences_are_notified_with_their_number(core, clock):
    service = make_service(core)
    schedule = ScheduleSpec(id="hourly", when="every 1h", workflow="greet", catch_up="latest")
    core.do(core.schedules.put, schedule, Origin.OPERATOR)
    clock.advance(hours=5)
    core.do(core.ticks.tick)

    core.do(service.notify)

    [[text]] = notified_texts(core)
    assert text.startswith(
        "schedule hourly has missed 4 occurrences, from 2026-01-01 01:00:00Z to 2026-01-01 04:00:00Z"
    )


def test_success_of_scheduled_work_is_notified_and_of_other_work_not(core, clock):
    service = make_service(core, a_rule("succeeded"))
    core.do(core.schedules.put, ScheduleSpec(id="hourly", when="every 1h", workflow="greet"), Origin.OPERATOR)
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    run_one(core, Succeeded(result_json="1"))
    emit(core)
    run_one(core, Succeeded(result_json="1"))

    core.do(service.notify)

    assert notified_texts(core) == [["greet of schedule hourly has succeeded"]]


def test_events_without_a_rule_write_no_notice(core):
    make_service(core, a_rule("question"))
    fail_one(core)

    assert core.rows("SELECT * FROM notices") == []


def test_rule_that_is_gone_leaves_no_notice(core):
    make_service(core)
    fail_one(core)
    core.do(NotificationService(core.triggers, ()).declare)

    service = make_service(core)

    assert core.do(service.notify) == 0
    assert notified_texts(core) == []


def test_failure_of_a_notification_is_not_notified(core):
    service = make_service(core)
    fail_one(core)
    core.do(service.notify)
    run_one(core, HOPELESS)  # the attempt of the notification
    assert len(core.rows("SELECT * FROM triggers WHERE status = 'FAILED'")) == 2

    assert core.do(service.notify) == 1
    assert len(notified_texts(core)) == 1


def test_question_of_a_notification_is_not_notified(core):
    service = make_service(core)
    fail_one(core)
    core.do(service.notify)
    suspend(core, enter_next(core), a_question())

    core.do(service.notify)

    assert len(notified_texts(core)) == 1


def test_question_of_a_failure_handler_is_notified_by_another_rule(core):
    """A question of a failure handler needs a person. A question of the question handler would notify without end."""
    failures = replace(a_rule("dead", "failed"), name="on_failure.pay_back")
    questions = replace(a_rule("question", "in_doubt"), name="on_question.tell")
    service = make_service(core, failures, questions)
    fail_one(core)
    core.do(service.notify)
    suspend(core, enter_next(core), a_question())
    core.do(service.notify)
    assert len(notified_texts(core)) == 2
    assert "Send it?" in notified_texts(core)[1][0]

    suspend(core, enter_next(core), a_question())  # the question handler
    core.do(service.notify)

    assert len(notified_texts(core)) == 2


def test_failed_trigger_that_was_discarded_by_then_is_not_notified(core):
    service = make_service(core)
    failed = emit(core).id
    run_one(core, HOPELESS)
    core.do(core.triggers.discard, failed)

    core.do(service.notify)

    assert notified_texts(core) == []


def test_question_that_is_closed_by_then_is_not_notified(core):
    service = make_service(core)
    suspend(core, begin(core), a_question())
    core.do(core.tasks.answer, the_question(core)["id"], "send", answered_by="ada")
    running = begin(core, workflow="waits")
    core.do(core.tasks.signal, running.task.id, "go", 1)
    question = replace(a_question(name="ask#2"), any_of="any#1")
    suspend(core, running, replace(for_event("go"), any_of="any#1", others=(question,)))
    assert {row["status"] for row in core.rows("SELECT status FROM questions")} == {"ANSWERED", "WITHDRAWN"}

    assert core.do(service.notify) == 2
    assert notified_texts(core) == []


@pytest.mark.parametrize("undone", ["requeue", "discard"])
def test_failure_that_a_person_has_dealt_with_by_then_is_not_notified(core, undone):
    service = make_service(core)
    dead = emit(core, max_attempts=1).id
    run_one(core, BROKEN)
    core.do(getattr(core.triggers, undone), dead)

    core.do(service.notify)

    assert notified_texts(core) == []


def test_expected_failure_is_not_notified_and_is_a_success_of_its_schedule(core, clock):
    service = make_service(core)
    emit(core)
    run_one(core, replace(HOPELESS, expected=True))
    core.do(core.schedules.put, ScheduleSpec(id="hourly", when="every 1h", workflow="greet"), Origin.OPERATOR)
    clock.advance(hours=1)
    core.do(core.ticks.tick)
    run_one(core, replace(HOPELESS, code="SOLD_OUT", expected=True))

    core.do(service.notify)

    assert notified_texts(core) == [["greet of schedule hourly has ended as expected: SOLD_OUT: it never will"]]


def test_many_notices_at_once_become_a_digest(core):
    service = make_service(core, a_rule(digest=3))
    for _ in range(4):
        fail_one(core)
    core.do(service.notify)
    for _ in range(3):
        fail_one(core)
    core.do(service.notify)

    assert [len(texts) for texts in notified_texts(core)] == [4, 1, 1, 1]


@pytest.mark.parametrize(
    ("options", "matches"),
    [
        ({}, True),
        ({"workflows": ("gre*",)}, True),
        ({"workflows": ("brief.*",)}, False),
        ({"schedule": "hourly"}, False),
    ],
)
def test_rule_filters_by_workflow_and_schedule(options, matches):
    event = Notification(kind="dead", id="x", text="", at=0.0, workflow="greet")
    assert a_rule("dead", **options).matches(event) is matches
    assert a_rule("question", **options).matches(event) is False


@pytest.mark.parametrize("options", [{"workflows": ("gre*",)}, {"schedule": "hourly"}])
def test_health_is_limited_by_no_workflow_and_no_schedule(options):
    event = Notification(kind="unhealthy", id="", text="", at=0.0)
    assert a_rule("unhealthy", **options).matches(event) is True
    assert a_rule("dead", **options).matches(event) is False


def test_refused_notification_leaves_the_others(core):
    def compose(events: Any) -> Work:
        return Work("tell", {"texts": [float("inf")]})

    broken = NotifyRule(name="broken", kinds=frozenset(("failed",)), compose=compose)
    service = make_service(core, broken, a_rule())
    fail_one(core)

    assert core.do(service.notify) == 1
    assert len(notified_texts(core)) == 1


def test_numbers_of_notices_are_not_used_again(core):
    service = make_service(core)
    for _ in range(3):
        fail_one(core)
        core.do(service.notify)

    keys = [row["dedup_key"] for row in core.rows("SELECT dedup_key FROM triggers WHERE dedup_key IS NOT NULL")]
    assert keys == ["notify:r:1", "notify:r:2", "notify:r:3"]
    assert len(core.rows("SELECT * FROM notices")) == 1


def test_discarded_dead_letter_is_not_notified_again(core):
    service = make_service(core)
    emitted = emit(core, max_attempts=1)
    run_one(core, BROKEN)
    core.do(service.notify)
    core.do(core.triggers.discard, emitted.id)

    assert core.do(service.notify) == 0
    assert len(notified_texts(core)) == 1


def test_failure_of_a_child_of_a_notification_is_not_notified(core):
    service = make_service(core)
    fail_one(core)
    core.do(service.notify)
    child = begin_child(core, enter_next(core))
    fail(core, child)

    core.do(service.notify)

    assert len(core.rows("SELECT 1 FROM triggers WHERE status = 'FAILED'")) == 2
    assert len(notified_texts(core)) == 1


def test_damaged_row_costs_only_its_own_notification(core):
    service = make_service(core)
    fail_one(core)
    suspend(core, begin(core), a_question())
    core.do(lambda tx: tx.run("UPDATE questions SET options_json = '['"))
    fail_one(core)

    assert core.do(service.notify) == 3
    assert len(notified_texts(core)) == 2


LINKED = WebSettings(hosts=("page.example", "other.example"))


@pytest.mark.parametrize(
    ("settings", "link"),
    [
        (WebSettings(), None),
        (LINKED, "https://page.example/q/a%2Fb"),
        (WebSettings(hosts=("2001:db8::1",)), "https://[2001:db8::1]/q/a%2Fb"),
    ],
)
def test_link_of_a_question_has_the_first_host(settings, link):
    assert settings.link_question("a/b") == link


def test_question_is_notified_with_its_link(core):
    rule = NotifyRule(name="r", kinds=frozenset(KINDS), compose=lambda events: Work("tell", document_of(events)))
    service = NotificationService(core.triggers, [rule], LINKED.link_question)
    core.do(service.declare)
    suspend(core, begin(core), a_question())
    fail_one(core)

    core.do(service.notify)

    [asked, failed] = [
        json.loads(row["payload_json"])
        for row in core.rows("SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:*' ORDER BY seq")
    ]
    [question] = asked["notifications"]
    assert question["link"] == f"https://page.example/q/{question['id']}"
    assert asked["text"] == f"{question['text']} (craftcore inbox answer {question['id']}) {question['link']}"
    assert "link" not in failed["notifications"][0]
    assert "https:" not in failed["text"]


def test_notification_without_hosts_has_no_link(core):
    rule = NotifyRule(name="r", kinds=frozenset(KINDS), compose=lambda events: Work("tell", document_of(events)))
    service = make_service(core, rule)
    suspend(core, begin(core), a_question())

    core.do(service.notify)

    [row] = core.rows("SELECT payload_json FROM triggers WHERE dedup_key GLOB 'notify:*'")
    assert "link" not in json.loads(row["payload_json"])["notifications"][0]
