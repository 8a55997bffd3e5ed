"""`craftcore trigger why` with triggers of tasks: the task, its wait, and the trigger that resumed it."""

from __future__ import annotations

import pytest

from craftcore.daemon.lock import DaemonLock
from craftcore.tasks.model import NewQuestion, QuestionKind
from craftcore.triggers.model import TriggerSpec
from tests.support.commands import short
from tests.support.fake_payments import LOST, Bank
from tests.support.idle_database import HOUR, a_task, at_rest
from tests.support.trigger_steps import claim_one, start


@pytest.fixture
def why(cli, core):
    """Return code -> text of each reason, and check that every query can be run."""

    def why(trigger_id):
        reasons = cli("--json", "trigger", "why", trigger_id).json["reasons"]
        for reason in reasons:
            assert core.rows(reason["query"]), reason
        return {reason["code"]: reason["text"] for reason in reasons}

    return why


def by_key(core, key):
    [row] = core.rows("SELECT id FROM triggers WHERE dedup_key = :key", key=key)
    return row["id"]


async def nothing(app):
    """Do nothing: the engine runs the due work."""


def test_trigger_of_a_waiting_task_shows_the_wait(cli, clock, database, why):
    ask, wait = a_task(database, "ask", clock), a_task(database, "wait", clock)

    assert list(why(ask)) == ["settled", "question"]
    assert why(ask)["settled"] == "settled DONE at 2026-11-21 12:00:00Z, reason: suspended: ask#1"
    assert f"craftcore inbox answer {cli('--json', 'inbox', 'list').json[0]['id']} CHOICE" in why(ask)["question"]
    assert list(why(wait)) == ["settled", "event"]
    assert cli("trigger", "why", wait).out.startswith(f"{wait} is DONE; its task is WAITING at turn 1\n")


def test_timer_trigger_shows_the_wait_of_the_task(cli, clock, database, core, why):
    nap = a_task(database, "nap", clock)
    [timer] = core.rows("SELECT id FROM triggers WHERE status = 'PENDING'")

    found = why(timer["id"])

    assert list(found) == ["timer", "no daemon"]
    assert found["timer"] == f"task {nap} sleeps until 2026-11-21 13:00:00Z, in 60 min"
    assert why(nap)["went on"] == f"task {nap} goes on with trigger {timer['id']}, which is PENDING"
    assert cli("--json", "trigger", "why", timer["id"]).json["task"] == {"id": nap, "status": "WAITING", "turn": 1}
    clock.advance(hours=2)
    assert "timer" not in why(timer["id"]), "the timer is due"


def test_continued_turn_names_the_trigger_of_the_next_turn(cli, clock, database, core, why):
    count = a_task(database, "count", clock)
    second = by_key(core, f"turn:{count}:2")
    third = by_key(core, f"turn:{count}:3")

    assert why(count)["went on"] == f"task {count} went on with trigger {second}, which is DONE (continued)"
    assert why(second)["went on"] == f"task {count} went on with trigger {third}, which is DONE (succeeded)"
    assert list(why(third)) == ["settled", "task done"]
    assert cli("trigger", "why", second).out.startswith(f"{second} is DONE; task {count} is DONE at turn 3\n")


def test_ended_wait_names_the_resuming_trigger(cli, clock, database, core, why):
    wait = a_task(database, "wait", clock)
    cli("task", "signal", wait, "approved")
    [woken] = core.rows("SELECT id FROM triggers WHERE status = 'PENDING'")

    assert why(wait)["went on"] == f"task {wait} goes on with trigger {woken['id']}, which is PENDING"
    assert why(wait)["task running"] == (
        f"task {wait} is at turn 1, with trigger {woken['id']}. See: craftcore trigger why {woken['id']}"
    )
    at_rest(database, nothing, clock)
    assert why(wait)["went on"] == f"task {wait} went on with trigger {woken['id']}, which is DONE (succeeded)"


def test_delivered_message_names_the_task_and_whether_read(cli, clock, database, core, why):
    async def say(app, text="hi", task_id=None):
        spec = TriggerSpec(payload={"text": text}, source="MESSAGE", session_id="s", task_id=task_id)
        return (await app.emit_many([spec]))[0].id

    chat = at_rest(database, say, clock)
    read = at_rest(database, say, clock)
    wait = a_task(database, "wait", clock)
    unread = at_rest(database, lambda app: say(app, task_id=wait), clock)

    assert why(read)["delivered"] == f"delivered to task {chat}; it has read it"
    assert why(unread)["delivered"] == f"delivered to task {wait}; it has not read it yet"
    assert "event" in why(unread)
    assert cli("trigger", "why", read).out.startswith(f"{read} is DONE; task {chat} is WAITING at turn 3\n")
    cli("task", "cancel", wait)
    assert why(unread)["delivered"].endswith("it ended before it read it, and the message was emitted again")


def test_parked_trigger_of_a_stale_task_shows_the_question(cli, clock, database, core, why):
    wait = a_task(database, "wait", clock)
    cli("task", "signal", wait, "approved")
    [woken] = core.rows("SELECT id FROM triggers WHERE status = 'PENDING'")
    start(core, claim_one(core, epoch=1))
    clock.advance(hours=30)
    at_rest(database, nothing, clock)

    found = why(woken["id"])

    assert found["settled"].endswith(f"reason: parked: task {wait} is stale")
    assert "was interrupted 30 hours ago. Go on with it?" in found["question"]
    assert "(continue, cancel)" in found["question"]
    assert core.rows("SELECT count(*) AS open FROM questions WHERE status = 'OPEN'") == [{"open": 1}]


def test_stalled_turn_shows_the_question_asked(cli, clock, database, core, why):
    wait = a_task(database, "wait", clock)
    cli("task", "signal", wait, "approved")
    claim = start(core, claim_one(core, epoch=1))

    def ask(tx):
        asked = NewQuestion(kind=QuestionKind.STALLED, question="It is stuck. Cancel?", options=("wait", "cancel"))
        core.turn_recorder.ask_stalled(tx, claim, core.tasks.get(tx, wait), asked)

    core.do(ask)
    clock.advance(minutes=5)
    with DaemonLock.acquire(database, pid=1, host="here", now=0.0):  # earlier than the epoch of the task's start
        found = why(claim.id)

    assert list(found) == ["running", "stalled"]
    [question] = cli("--json", "inbox", "list").json
    assert found["stalled"] == (
        f'a person was asked 5 min ago: question {question["id"]} "It is stuck. Cancel?" '
        f"To answer with CHOICE (wait, cancel): craftcore inbox answer {question['id']} CHOICE"
    )


def test_trigger_show_and_list_name_the_task(cli, clock, database, core):
    nap, plain = a_task(database, "nap", clock), a_task(database, "plain", clock)
    [timer] = core.rows("SELECT id FROM triggers WHERE status = 'PENDING'")

    tasks = {row["id"]: row["task"] for row in cli("--json", "trigger", "list").json}
    listed = cli("trigger", "list").out

    its = {"id": nap, "status": "WAITING", "turn": 1}
    assert tasks == {nap: its, timer["id"]: its, plain: None}
    assert "suspended: sleep#1; its task is WAITING at turn 1" in listed
    assert f"task {short(nap)} is WAITING at turn 1" in listed
    assert cli("--json", "trigger", "show", nap).json["task"] == its
    assert cli("--json", "trigger", "show", plain).json["task"] is None
    shown = cli("trigger", "show", timer["id"]).out.splitlines()
    assert shown[0] == f"task {nap} is WAITING at turn 1. See: craftcore task show {nap}"
    assert "task" not in cli("trigger", "show", plain).out.splitlines()[0]


def test_requeued_trigger_resumes_the_task(cli, clock, database, core):
    failed, dead = a_task(database, "fails", clock), a_task(database, "fails", clock, code=None)
    of = {row["id"]: row["trigger_id"] for row in core.rows("SELECT id, trigger_id FROM tasks")}
    plain = a_task(database, "plain", clock)
    core.do(lambda tx: tx.run("UPDATE triggers SET status = 'DEAD' WHERE id = :id", id=plain))

    assert f"; task {short(dead)} is FAILED at turn 2" in cli("dead", "list").out
    requeued = cli("trigger", "requeue", of[failed]).out
    revived = cli("dead", "requeue", of[dead], plain).out.splitlines()

    again = "is pending again, due 2026-11-21 12:00:00Z"
    assert requeued == f"{of[failed]} {again}, and its task goes on with it\n"
    assert revived == [f"{of[dead]} {again}, and its task goes on with it", f"{plain} {again}"]
    assert {row["status"] for row in core.rows("SELECT status FROM tasks")} == {"RUNNING"}


def test_cancelled_timer_cancels_the_task(cli, clock, database, core):
    a_task(database, "nap", clock, seconds=HOUR)
    [timer] = core.rows("SELECT id FROM triggers WHERE status = 'PENDING'")

    assert cli("trigger", "cancel", timer["id"]).out == f"{timer['id']} cancelled, and its task with it\n"
    assert [row["status"] for row in core.rows("SELECT status FROM tasks")] == ["CANCELLED"]


# Irreversible actions in doubt


def test_task_waiting_for_an_action_decision_shows_the_question(cli, clock, database, why):
    lost = Bank(database, clock).pay(LOST, amount=7)
    [asked] = cli("--json", "inbox", "list").json

    found = why(lost)

    assert list(found) == ["settled", "activity"]
    assert found["activity"] == (
        f'task {lost} waits for an answer to question {asked["id"]} "Did bank.pay happen? It was called at 2026-11-21 '
        '12:00:00 UTC, and it failed after it was called (ConnectionResetError: the line is dead)." '
        "for as long as it takes. To answer with CHOICE "
        f"(happened, resend, 'give up'): craftcore inbox answer {asked['id']} CHOICE, "
        f"craftcore activity show activity:{lost}:1.1"
    )


def test_task_waiting_to_reconcile_an_action_shows_the_time(clock, database, why):
    slow = Bank(database, clock).pay(workflow="pay.slowly")

    assert why(slow)["timer"] == (
        f"task {slow} asks a provider what became of an irreversible action, but not until 2026-11-21 13:00:00Z, "
        "in 60 min"
    )


@pytest.mark.parametrize(("workflow", "kind"), [("pay", "activity"), ("conflict", "conflict")])
def test_ended_task_shows_open_questions(cli, clock, database, why, workflow, kind):
    bank = Bank(database, clock)
    task_id = bank.pay(LOST, workflow=workflow) if kind == "activity" else bank.pay(workflow=workflow)
    if kind == "activity":
        cli("task", "cancel", task_id)
    [asked] = cli("--json", "inbox", "list").json

    found = why(task_id)

    assert list(found)[-1] == kind
    assert f"a person was asked 0.0 s ago: question {asked['id']}" in found[kind]
    assert cli("--json", "task", "show", task_id).json["reasons"][-1]["code"] == kind
