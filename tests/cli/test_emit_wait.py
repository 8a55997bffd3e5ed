"""`craftcore emit --wait` with tasks: the wait covers all turns of a task, or the turn that receives a message."""

from __future__ import annotations

import json
import threading

import anyio
import anyio.to_thread
import pytest

from craftcore import Producer
from craftcore.daemon.lifespan import running
from craftcore.storage.facts import set_fact
from craftcore.triggers.model import TriggerSpec
from tests.support.engine_harness import look, settings
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.idle_database import a_task, an_app, at_rest
from tests.support.log_capture import suppressed_logs
from tests.support.processes import PATIENCE, until


@pytest.fixture
def engine(database):
    """Run an engine in another thread during the test."""
    stop, ready = threading.Event(), threading.Event()

    async def live():
        async with running(an_app(), database, settings()):
            ready.set()
            await anyio.to_thread.run_sync(stop.wait)

    thread = threading.Thread(target=lambda: anyio.run(live))
    with suppressed_logs():
        thread.start()
        try:
            assert ready.wait(PATIENCE)
            yield
        finally:
            stop.set()
            thread.join()


def test_emit_wait_lasts_over_all_turns_and_prints_the_result(cli, engine):
    done = cli("emit", "count", "--payload", '{"upto": 5}', "--wait", str(PATIENCE))
    document = cli("--json", "emit", "count", "--wait", str(PATIENCE)).json

    assert (done.code, done.out, done.err) == (0, "4\n", "")
    assert (document["task_id"], document["status"], document["reason"]) == (document["id"], "DONE", "succeeded")
    assert (document["turns"], document["result"]) == (3, 2)
    assert {"id", "created", "status", "due_at", "due_at_iso", "result"} <= set(document)


def test_result_too_large_for_a_row_is_printed_whole(cli, engine):
    name = "x" * 100_000

    done = cli("emit", "plain", "--payload", json.dumps({"name": name}), "--wait", str(PATIENCE))

    assert (done.code, json.loads(done.out)) == (0, f"Hello {name}")


def test_emit_wait_lasts_over_a_wait_of_the_task(cli, engine, database):
    def answer():
        with Producer(database) as producer:
            waiting = until(lambda: look(database, "SELECT id FROM tasks WHERE status = 'WAITING'"))
            producer.signal(waiting[0]["id"], "approved", {"by": "Ada"})

    thread = threading.Thread(target=answer)
    thread.start()
    done = cli("emit", "wait", "--wait", str(PATIENCE))
    thread.join()

    assert (done.code, json.loads(done.out)) == (0, {"by": "Ada"})


def test_emit_wait_shows_the_question_and_how_to_answer(cli, clock, database):
    key_of_task(a_task(database, "ask", clock), database)

    over = cli("emit", "ask", "--dedup-key", "k", "--wait", "0.1")

    [question] = look(database, "SELECT id FROM questions")
    asks = [line for line in over.err.splitlines() if "it asks" in line]
    assert (over.code, asks) == (
        75,
        [
            f'craftcore: it asks, question {question["id"]} "Send it?". '
            f"To answer with CHOICE (send, hold): craftcore inbox answer {question['id']} CHOICE"
        ],
    ), "once, however often it is looked"


def test_emit_wait_reports_that_everything_is_held(cli, database, core):
    core.do(set_fact, "held", "it was restored")

    over = cli("emit", "greet", "--wait", "0")

    assert over.code == 75
    assert "craftcore: everything is held: it was restored; waiting for: craftcore release" in over.err.splitlines()


@pytest.mark.parametrize(("payload", "code"), [({}, "VALIDATION_ERROR"), ({"code": None}, "INTERNAL_AGENT_ERROR")])
def test_task_failed_in_a_later_turn_exits_4(cli, engine, payload, code):
    ended = cli("--json", "emit", "fails", "--payload", json.dumps(payload), "--wait", str(PATIENCE))

    assert (ended.code, ended.json["status"], ended.json["turns"]) == (4, "FAILED", 2)
    assert ended.json["error"]["code"] == code
    assert "result" not in ended.json


def test_task_failure_is_a_single_line_on_stderr(cli, engine):
    ended = cli("emit", "fails", "--wait", str(PATIENCE))

    assert (ended.code, ended.out) == (4, "")
    [line] = ended.err.splitlines()
    assert line.startswith("craftcore: task ")
    assert line.endswith(" ended FAILED (VALIDATION_ERROR): it never will")


def test_cancelled_task_exits_4(cli, engine, database):
    def cancel():
        with Producer(database) as producer:
            waiting = until(lambda: look(database, "SELECT id FROM tasks WHERE status = 'WAITING'"))
            producer.cancel_task(waiting[0]["id"])

    thread = threading.Thread(target=cancel)
    thread.start()
    ended = cli("--json", "emit", "nap", "--wait", str(PATIENCE))
    thread.join()

    assert (ended.code, ended.json["status"], ended.json["reason"]) == (4, "CANCELLED", "cancelled")


def test_message_to_a_live_task_prints_its_reply(cli, database, engine):
    say = ("emit", "replies", "--source", "MESSAGE", "--session", "s", "--payload", '{"text": "hi"}')
    chat = json.loads(cli(*say).out)["id"]
    until(lambda: look(database, "SELECT status FROM tasks") == [{"status": "WAITING"}])

    done = cli(*say, "--wait", str(PATIENCE))
    document = cli("--json", *say, "--wait", str(PATIENCE)).json

    assert (done.code, json.loads(done.out)) == (0, {"said": "hi"})
    assert done.err == f"craftcore: delivered to task {chat}. See: craftcore task show {chat}\n"
    assert (document["status"], document["reason"], document["delivered_to"]) == ("DONE", "delivered", chat)
    assert document["result"] == {"said": "hi"}


def test_message_whose_turn_fails_exits_4(cli, database, engine):
    say = ("emit", "replies", "--source", "MESSAGE", "--session", "s", "--payload")
    chat = json.loads(cli(*say, '{"text": "hi"}').out)["id"]
    until(lambda: look(database, "SELECT status FROM tasks") == [{"status": "WAITING"}])

    failed = cli("--json", *say, '{"text": "fail"}', "--wait", str(PATIENCE))

    assert (failed.code, failed.json["status"], failed.json["delivered_to"]) == (4, "FAILED", chat)
    assert failed.json["error"]["code"] == "VALIDATION_ERROR"


def test_message_whose_turn_waits_has_no_reply_yet(cli, database, engine):
    say = ("emit", "replies", "--source", "MESSAGE", "--session", "s", "--payload")
    chat = json.loads(cli(*say, '{"text": "hi"}').out)["id"]
    until(lambda: look(database, "SELECT status FROM tasks") == [{"status": "WAITING"}])
    message = json.loads(cli(*say, '{"text": "ask"}', "--dedup-key", "k").out)["id"]
    until(lambda: look(database, "SELECT status FROM questions") == [{"status": "OPEN"}])

    over = cli(*say, '{"text": "ask"}', "--dedup-key", "k", "--wait", "0")

    assert over.code == 75
    assert f"craftcore: message {message} has no reply yet; task {chat} is WAITING; it goes on" in over.err


def test_first_message_prints_its_reply_while_the_task_goes_on(cli, engine):
    say = ("emit", "replies", "--source", "MESSAGE", "--session", "s", "--payload", '{"text": "hi"}')

    first = cli("--json", *say, "--wait", str(PATIENCE))

    assert (first.code, first.json["result"], first.json["task_id"]) == (0, {"said": "hi"}, first.json["id"])


def test_emit_wait_timeout_shows_the_state_of_the_task(cli, clock, database):
    nap = key_of_task(a_task(database, "nap", clock), database)

    over = cli("--json", "emit", "nap", "--dedup-key", "k", "--wait", "0")

    assert (over.code, over.json["error"]["code"], over.json["error"]["id"]) == (75, "STILL_WAITING", nap)
    line = over.err.splitlines()[-1]
    assert line == (
        f"craftcore: task {nap} is WAITING (waits for its time); no daemon runs, so it goes on with the next one. "
        f"See: craftcore task show {nap}"
    )


def test_ended_task_is_reported_at_once(cli, clock, database):
    async def keyed(app):
        [emitted] = await app.emit_many([TriggerSpec(workflow="count", dedup_key="k", dedup_scope="ever")])
        return emitted.id

    count = at_rest(database, keyed, clock)

    document = cli("--json", "emit", "count", "--dedup-key", "k", "--wait", "0").json

    assert (document["id"], document["created"], document["result"]) == (count, False, 2)


def key_of_task(task_id, database):
    """Give the trigger of a task the dedup key `k`: a second emit with this key waits for the first."""
    core = VirtualCore(database, VirtualClock())
    core.do(lambda tx: tx.run("UPDATE triggers SET dedup_key = 'k', dedup_scope = 'ever' WHERE id = :id", id=task_id))
    core.close()
    return task_id
