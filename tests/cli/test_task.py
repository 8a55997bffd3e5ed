"""`craftcore task`: the state and the wait of each task, and operator actions on tasks."""

from __future__ import annotations

import io
import json
import os
import pwd
import socket
import sys

import pytest

from craftcore.cli.main import main
from craftcore.storage.doorbell_client import doorbell_path
from craftcore.triggers.model import TriggerSpec
from tests.support.commands import short
from tests.support.fake_payments import LOST, Bank
from tests.support.idle_database import HOUR, a_task, at_rest
from tests.support.record_steps import spoil
from tests.support.trigger_steps import claim_one, start

ME = f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"


def show(cli, task_id):
    return cli("--json", "task", "show", task_id).json


def reasons(cli, task_id):
    """Return code -> text of each reason."""
    return {one["code"]: one["text"] for one in show(cli, task_id)["reasons"]}


@pytest.fixture
def terminal(cli, monkeypatch):
    """Run a command at a terminal: `terminal(False, "task", "cancel", …)` declines. Returns the exit code and the
    questions.
    """

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def run(says, *arguments):
        asked = []

        def confirm(question, **_):
            asked.append(question)
            return says

        monkeypatch.setattr("craftcore.cli.confirm.click.confirm", confirm)
        monkeypatch.setattr(sys, "stdin", Terminal())
        return main(arguments), asked

    return run


# list


def test_task_list_is_newest_first_with_the_wait_of_each_task(cli, clock, database):
    nap = a_task(database, "nap", clock)
    ask = a_task(database, "ask", clock)

    second, first = cli("--json", "task", "list").json

    assert [second["id"], first["id"]] == [ask, nap]
    assert (first["status"], first["turn"], first["reason"]) == ("WAITING", 1, "waits for its time")
    assert (first["wait"]["kind"], first["wait"]["due_at"] - first["wait"]["created_at"]) == ("timer", HOUR)
    assert first["wait"]["due_at_iso"] == "2026-11-21T13:00:00.000Z"
    assert (second["wait"]["kind"], second["wait"]["due_at"], second["wait"]["due_at_iso"]) == ("question", None, None)
    header, _, line = cli("task", "list").out.splitlines()
    assert header.split() == ["id", "created", "workflow", "session", "status", "turn", "until", "reason"]
    assert line.split("  ")[0] == short(nap)
    assert "2026-11-21 13:00:00Z" in line


def test_task_list_is_filtered_by_status_workflow_session_and_limit(cli, clock, database):
    chat = at_rest(database, lambda app: app.emit(None, {"text": "hi"}, source="MESSAGE", session_id="s"), clock).id
    count = a_task(database, "count", clock)

    def listed(*filters):
        return [row["id"] for row in cli("--json", "task", "list", *filters).json]

    assert listed() == [count, chat]
    assert listed("--limit", "1") == listed("--status", "done") == listed("--workflow", "count@1.0") == [count]
    assert listed("--session", "s") == listed("--status", "WAITING") == [chat]
    assert listed("--workflow", "nobody") == []


def test_bad_task_filter_names_the_valid_values(cli, core):
    refused = cli("task", "list", "--status", "asleep")

    assert refused.code == 12
    assert "'asleep' is unknown; it must be one of RUNNING, WAITING, DONE, FAILED, CANCELLED" in refused.err
    assert cli("task", "list", "--limit", "0").code == 64


# show


def test_task_show_has_the_wait_and_the_attempts(cli, clock, database):
    nap = a_task(database, "nap", clock)

    document = show(cli, nap)

    assert (document["id"], document["workflow"], document["status"], document["attempts"]) == (
        nap,
        "nap",
        "WAITING",
        1,
    )
    assert (document["state"], document["result"], document["questions"], document["children"]) == (None, None, [], [])
    [attempt] = document["last_attempts"]
    assert (attempt["turn"], attempt["attempt"], attempt["status"]) == (1, 1, "suspended")
    assert (attempt["created_at"], attempt["created_at_iso"]) == (clock.now(), "2026-11-21T12:00:00.000Z")
    found = reasons(cli, nap)
    assert found["timer"] == f"task {nap} sleeps until 2026-11-21 13:00:00Z, in 60 min"
    assert found["no daemon"] == "no daemon runs on this database. Start one: craftcore run MODULE:APP"
    printed = cli("task", "show", nap).out.splitlines()
    assert printed[:3] == [f"{nap} is WAITING at turn 1", f"  {found['timer']}", f"  {found['no daemon']}"]


def test_task_show_has_the_command_that_ends_the_wait(cli, clock, database):
    ask, wait = a_task(database, "ask", clock, timeout=HOUR, default="hold"), a_task(database, "wait", clock)
    parent = a_task(database, "parent", clock)
    chat = at_rest(database, lambda app: app.emit(None, {"text": "hi"}, source="MESSAGE", session_id="s"), clock).id

    [question] = show(cli, ask)["questions"]
    [child] = show(cli, parent)["children"]

    assert reasons(cli, ask)["question"] == (
        f'task {ask} waits for an answer to question {question["id"]} "Send it?" until 2026-11-21 13:00:00Z, '
        'in 60 min; not answered by then, it goes on with "hold". '
        f"To answer with CHOICE (send, hold): craftcore inbox answer {question['id']} CHOICE"
    )
    assert reasons(cli, wait)["event"] == (
        f"task {wait} waits for the event approved. To send it: craftcore task signal {wait} approved"
    )
    assert reasons(cli, chat)["event"].endswith("craftcore emit --source MESSAGE --session s --payload JSON")
    assert reasons(cli, parent)["child"] == (
        f"task {parent} waits for its child {child['id']}, which is WAITING (waits for its time). "
        f"See: craftcore task show {child['id']}"
    )
    assert (child["workflow"], child["parent_id"]) == ("nap", parent)
    assert show(cli, child["id"])["parent_id"] == parent
    assert f"parent    {parent}" in cli("task", "show", child["id"]).out


def test_task_show_has_the_outcome_and_the_next_command(cli, clock, database):
    done, failed = a_task(database, "count", clock), a_task(database, "fails", clock)

    assert (show(cli, done)["result"], show(cli, done)["attempts"]) == (2, 3)
    assert reasons(cli, done) == {"task done": f"task {done} is DONE since 2026-11-21 12:00:00Z"}
    assert "result    2" in cli("task", "show", done).out
    [text] = reasons(cli, failed).values()
    assert text == (
        f"task {failed} is FAILED since 2026-11-21 12:00:00Z with VALIDATION_ERROR: it never will. "
        f"To try its last turn again: craftcore task retry {failed}"
    )
    assert "error     VALIDATION_ERROR: it never will" in cli("task", "show", failed).out


def test_task_in_backoff_shows_the_failure(cli, clock, database):
    shaky = a_task(database, "shaky", clock)

    assert "attempt 1 failed with INTERNAL_AGENT_ERROR: not yet" in reasons(cli, shaky)["backoff"]


def test_task_show_has_unread_mail(cli, clock, database):
    wait = a_task(database, "wait", clock)
    cli("task", "signal", wait, "other", '{"n": 1}')

    document = show(cli, wait)

    assert document["unread"] == 1
    [mail] = document["unread_mail"]
    assert (mail["event"], mail["payload"], mail["sent_by"], mail["trigger_id"]) == ("other", {"n": 1}, ME, None)
    assert mail["created_at_iso"] == "2026-11-21T12:00:00.000Z"
    assert "unread mail" in cli("task", "show", wait).out


def test_task_queries_printed_by_show_can_be_run(cli, clock, database, core):
    for workflow in ("ask", "wait", "nap", "parent", "count", "fails"):
        task_id = a_task(database, workflow, clock)
        for reason in show(cli, task_id)["reasons"]:
            assert core.rows(reason["query"]), reason


# events


def test_task_events_are_printed_as_readable_lines(cli, clock, database):
    nap = a_task(database, "nap", clock)

    rows = [line.split(maxsplit=4) for line in cli("task", "events", nap).out.splitlines()[1:]]
    document = cli("--json", "task", "events", nap).json

    assert [(row[2], row[3]) for row in rows] == [
        ("1", type_) for type_ in ("INTENT_RECEIVED", "AGENT_ATTEMPT_START", "STEP_COMPLETED", "NOTE", "TURN_SUSPENDED")
    ]
    assert rows[2][4].startswith('lullaby -> "LA LA" after ')
    assert rows[3][4] == 'mood: {"sleepy":true}'
    assert rows[4][4] == "sleep#1 until 2026-11-21 13:00:00Z"
    assert {tuple(one) for one in document} == {("execution_id", "turn", "seq", "type", "at", "at_iso", "payload")}
    assert document[3]["payload"] == {"data": {"sleepy": True}, "key": None, "name": "mood"}


def test_task_events_cover_all_turns_and_the_limit_keeps_the_newest(cli, clock, database):
    count = a_task(database, "count", clock)

    document = cli("--json", "task", "events", count).json
    last = cli("task", "events", count, "--limit", "2")

    assert sorted({one["turn"] for one in document}) == [1, 2, 3]
    assert [one["type"] for one in cli("--json", "task", "events", count, "--limit", "2").json] == [
        one["type"] for one in document[-2:]
    ]
    assert "these are the last 2, and there were more: --limit" in last.err
    assert cli("task", "events", count).err == ""


# Ids


def test_task_id_may_be_shortened_while_unambiguous(cli, clock, database):
    first, second = a_task(database, "wait", clock), a_task(database, "wait", clock)
    common = first[: next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]

    assert show(cli, first[: len(common) + 1])["id"] == first
    for command in (["show", common], ["events", common], ["signal", common, "approved"], ["cancel", common]):
        refused = cli("task", *command)
        assert (refused.code, "fits several ids" in refused.err) == (10, True)
    assert cli("task", "signal", second[: len(common) + 1], "approved").code == 0


@pytest.mark.parametrize("command", [["show"], ["events"], ["cancel"], ["retry"], ["signal", "approved"]], ids=" ".join)
def test_trigger_id_given_as_a_task_id_is_explained(cli, clock, database, core, command):
    def refused(task_id):
        result = cli("task", command[0], task_id, *command[1:])
        assert result.code == 10
        return result.err

    plain = a_task(database, "plain", clock)
    later = core.do(core.triggers.emit, TriggerSpec(workflow="wait", delay=HOUR)).id
    count = a_task(database, "count", clock)
    [turn] = core.rows("SELECT id FROM triggers WHERE dedup_key = :key", key=f"turn:{count}:2")

    for unknown in ("nothing", "", "\udcff", "a b"):
        assert "no task has the id" in refused(unknown)
    assert refused(plain) == (
        f"craftcore: trigger {plain} is not a task: its workflow plain takes no ctx. See: craftcore trigger "
        f"show {plain}\n"
    )
    if command[0] == "signal":
        done = cli("task", "signal", later, "approved", "7")
        assert (done.code, done.out.splitlines()[0]) == (0, f"approved is kept for {later}, which has not begun")
        assert core.rows("SELECT trigger_id, payload_json FROM early_mail") == [
            {"trigger_id": later, "payload_json": "7"}
        ]
    else:
        assert f"trigger {later} is not a task: it is PENDING and has never been started" in refused(later)
    assert f"{turn['id']} is a trigger of task {count}; see: craftcore task show {count}" in refused(turn["id"])


# signal


def test_signal_continues_the_waiting_task(cli, clock, database):
    wait = a_task(database, "wait", clock)

    done = cli("--json", "task", "signal", wait, "approved", '{"by": "Ada"}')

    assert (done.code, done.json["waited"], done.json["status"], done.json["id"]) == (0, True, "RUNNING", wait)
    assert show(cli, wait)["reasons"][0]["code"] == "no daemon"
    at_rest(database, nothing, clock)
    assert (show(cli, wait)["status"], show(cli, wait)["result"]) == ("DONE", {"by": "Ada"})


def test_signal_without_a_waiter_is_kept_and_a_missing_daemon_is_reported(cli, clock, database):
    wait = a_task(database, "wait", clock)

    kept = cli("task", "signal", wait, "early")
    waited = cli("task", "signal", wait, "approved")

    assert kept.out == (
        f"early is kept for {wait}, which is WAITING at turn 1: waits for the event approved\n"
        "no daemon runs; it goes on with the next one: craftcore run MODULE:APP\n"
    )
    assert waited.out.startswith(f"{wait} waited for approved, and goes on\n")


def test_signal_payload_may_come_from_the_line_a_file_or_standard_input(cli, clock, database, tmp_path):
    (tmp_path / "payload.json").write_text("[1]")

    def brought(*payload, stdin=b""):
        task_id = a_task(database, "wait", clock)
        assert cli("task", "signal", task_id, "approved", *payload, stdin=stdin).code == 0
        at_rest(database, nothing, clock)
        return show(cli, task_id)["result"]

    assert brought() is None
    assert brought('"text"') == "text"
    assert brought("@payload.json") == [1]
    assert brought("-", stdin=b"12.5") == 12.5


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["approved", "{broken"], "is not JSON"),
        (["approved", '{"a": 1, "a": 2}'], "'a' twice"),
        (["approved", "NaN"], "NaN"),
        (["approved", '"\\ud800"'], "lone surrogate"),
        (["approved", "@nowhere"], "No such file"),
        (["approved", '"' + "x" * 300_000 + '"'], "262,144"),
        (["an event"], "event 'an event'"),
        ([""], "event ''"),
        ([], "Missing argument"),
        (["approved", "1", "2"], "unexpected extra argument"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else None,
)
def test_refused_signal_writes_nothing(cli, clock, database, arguments, words):
    wait = a_task(database, "wait", clock)

    refused = cli("task", "signal", wait, *arguments)

    assert (refused.code, words in refused.err) == (64, True), refused.err
    assert show(cli, wait)["unread"] == 0


def test_signal_to_an_ended_task_is_refused(cli, clock, database):
    count = a_task(database, "count", clock)

    refused = cli("task", "signal", count, "approved")

    assert (refused.code, f"task {count} is DONE (succeeded); nothing was written" in refused.err) == (1, True)


# cancel


def test_cancel_ends_a_waiting_task_at_once(cli, clock, database):
    nap, wait = a_task(database, "nap", clock), a_task(database, "wait", clock)

    document = cli("--json", "task", "cancel", nap, "--reason", "not needed").json
    result = cli("task", "cancel", wait)

    assert (document["id"], document["status"], document["reason"]) == (nap, "CANCELLED", "cancelled: not needed")
    assert result.out == f"{wait} is CANCELLED\n"
    again = cli("task", "cancel", wait)
    assert (again.code, f"task {wait} is CANCELLED (cancelled)" in again.err) == (1, True)
    assert reasons(cli, nap) == {
        "task cancelled": f"task {nap} is CANCELLED since 2026-11-21 12:00:00Z: cancelled: not needed"
    }


def test_cancel_of_a_running_task_is_requested(cli, clock, database, core):
    wait = a_task(database, "wait", clock)
    cli("task", "signal", wait, "approved")
    start(core, claim_one(core, epoch=9), alone=False)

    asked = cli("task", "cancel", wait)

    assert asked.out.splitlines()[0] == f"{wait} runs; asked to cancel"
    assert show(cli, wait)["status"] == "RUNNING"
    assert "its cancellation was asked for" in reasons(cli, wait)["no daemon"]


def test_stop_ends_the_turn_of_a_waiting_task_and_keeps_the_task(cli, clock, database):
    ask, wait = a_task(database, "ask", clock, session_id="lobby"), a_task(database, "wait", clock)

    stopped = cli("task", "stop", ask, "--reason", "seen enough")

    assert stopped.out == f"{ask} is WAITING at turn 2: waits for the event message\n"
    assert cli("--json", "inbox", "list").json == []
    [row] = cli("--json", "audit", "--action", "task stop").json
    assert (row["subject"], row["reason"], row["details"]) == (ask, "seen enough", {"turn": 1})
    again, other = cli("task", "stop", ask), cli("task", "stop", wait)
    assert (again.code, "no turn of it has begun; nothing was written" in again.err) == (1, True)
    assert (other.code, f"To end the task: craftcore task cancel {wait}" in other.err) == (1, True)


def test_stop_of_a_running_turn_is_requested(cli, clock, database, core):
    wait = a_task(database, "wait", clock, session_id="lobby")
    cli("task", "signal", wait, "approved")
    start(core, claim_one(core, epoch=9), alone=False)

    asked = cli("task", "stop", wait)

    assert asked.out.splitlines()[0] == f"{wait} runs; asked to stop turn 1"
    assert show(cli, wait)["status"] == "RUNNING"


@pytest.mark.parametrize(("says", "code", "status"), [(False, 130, "WAITING"), (True, 0, "CANCELLED")])
def test_cancel_at_a_terminal_asks_for_confirmation(cli, clock, database, terminal, says, code, status):
    wait = a_task(database, "wait", clock)

    ended, asked = terminal(says, "task", "cancel", wait)

    assert ended == code
    assert asked == [f"This will cancel task {wait} of wait, WAITING at turn 1: waits for the event approved. Go on?"]
    assert show(cli, wait)["status"] == status


def test_cancel_with_yes_asks_nothing(clock, database, terminal):
    wait = a_task(database, "wait", clock)

    assert terminal(False, "task", "cancel", wait, "--yes") == (0, [])


@pytest.mark.parametrize("reason", ["", " ", "x" * 501, "\udcff"])
def test_cancel_with_an_invalid_reason_is_refused(cli, clock, database, reason):
    wait = a_task(database, "wait", clock)

    assert cli("task", "cancel", wait, "--reason", reason).code == 64
    assert show(cli, wait)["status"] == "WAITING"


# retry


def test_retry_runs_the_last_turn_of_a_failed_task_again(cli, clock, database):
    failed, dead = a_task(database, "fails", clock), a_task(database, "fails", clock, code=None)

    document = cli("--json", "task", "retry", failed).json
    lines = cli("task", "retry", dead).out.splitlines()

    assert (document["id"], document["status"], document["turn"], document["error_code"]) == (
        failed,
        "RUNNING",
        2,
        None,
    )
    assert lines[0] == f"{dead} goes on at turn 2, with trigger {show(cli, dead)['trigger_id']}"
    assert lines[1] == "no daemon runs; it goes on with the next one: craftcore run MODULE:APP"
    at_rest(database, nothing, clock)
    assert (show(cli, failed)["status"], show(cli, failed)["attempts"]) == ("FAILED", 3)


def test_retry_of_a_task_that_has_not_failed_is_refused(cli, clock, database):
    count = a_task(database, "count", clock)

    refused = cli("task", "retry", count)

    assert (refused.code, "only one that is FAILED or held can be retried" in refused.err) == (1, True)


# Everything else


def test_task_commands_ring_the_daemon(cli, clock, database):
    wait, failed = a_task(database, "wait", clock), a_task(database, "fails", clock)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(doorbell_path(database))
        bell.setblocking(False)
        for command in (["signal", wait, "other"], ["retry", failed], ["cancel", wait]):
            assert cli("task", *command).code == 0
            assert bell.recv(64) == b"*"


def test_hostile_text_of_a_task_is_printed_escaped(cli, clock, database):
    hostile = "red \x1b[31m\x07 new\nline \u202e back"
    ask = a_task(database, "ask", clock, question=hostile, options=None)
    wait = a_task(database, "wait", clock)
    cli("task", "signal", wait, "other", json.dumps(hostile))
    cli("task", "cancel", wait, "--reason", hostile)

    for arguments in (["list"], ["show", ask], ["events", ask], ["show", wait], ["events", wait]):
        shown = cli("task", *arguments).out
        assert all(line.isprintable() for line in shown.splitlines()), shown
        assert "new\nline" not in shown
    assert show(cli, ask)["questions"][0]["question"] == hostile


def test_damaged_task_row_is_shown_as_stored(cli, clock, database, core):
    count = a_task(database, "count", clock)
    core.do(lambda tx: tx.run("UPDATE tasks SET result_json = '{broken'"))
    spoil(core, "UPDATE event_rows SET payload_json = '{broken' WHERE type = 'TURN_ENTERED'")

    assert show(cli, count)["result"] == "{broken"
    assert "{broken" in cli("task", "events", count).out


async def nothing(app):
    """Do nothing: the engine runs the due work."""


# Irreversible actions


def test_task_show_lists_irreversible_actions_in_order(cli, clock, database):
    bank = Bank(database, clock)
    task_id = bank.pay("ref-a", LOST, workflow="pay.all", amounts=[1, 2])

    activities, printed = show(cli, task_id)["activities"], cli("task", "show", task_id).out.splitlines()

    assert [(one["key"], one["action"], one["status"], one["provider_ref"]) for one in activities] == [
        (f"activity:{task_id}:1.1", "bank.pay", "DONE", "ref-a"),
        (f"activity:{task_id}:1.2", "bank.pay", "UNKNOWN", None),
    ]
    [header] = [number for number, line in enumerate(printed) if line.startswith("irreversible ")]
    assert printed[header + 1 : header + 3] == [
        f"{short(task_id)}:1.1    2026-11-21 12:00:00Z  bank.pay  DONE     ref-a      the provider answered",
        f"{short(task_id)}:1.2    2026-11-21 12:00:00Z  bank.pay  UNKNOWN  -          it failed after it was called",
    ]


def test_task_show_lists_the_last_twenty_of_many_actions(cli, clock, database):
    task_id = Bank(database, clock).pay(workflow="pay.all", amounts=list(range(25)))

    activities = show(cli, task_id)["activities"]

    assert [one["key"] for one in activities] == [f"activity:{task_id}:1.{n}" for n in range(6, 26)]
