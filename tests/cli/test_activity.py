"""`craftcore activity`: the outcomes of irreversible actions, and decisions about actions in doubt."""

from __future__ import annotations

import io
import os
import pwd
import socket
import sys

import pytest

from craftcore.cli.main import main
from craftcore.storage.doorbell_client import doorbell_path
from tests.support.commands import short
from tests.support.fake_payments import LOST, NOTHING, REFUSED, Bank
from tests.support.processes import a_daemon, craftcore, read_trace, until

ME = f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"


@pytest.fixture
def bank(database, clock):
    return Bank(database, clock)


@pytest.fixture
def terminal(cli, monkeypatch):
    """Run a command at a terminal: `terminal(says, "activity", …)` answers each confirmation with `says()`. Returns the
    exit code and the questions.
    """

    class Terminal(io.StringIO):
        def isatty(self):
            return True

    def run(says, *arguments):
        asked = []

        def confirm(question, **_):
            asked.append(question)
            return says()

        monkeypatch.setattr("craftcore.cli.confirm.click.confirm", confirm)
        monkeypatch.setattr(sys, "stdin", Terminal())
        return main(arguments), asked

    return run


def key_of(task_id):
    return f"activity:{task_id}:1.1"


def show(cli, key):
    return cli("--json", "activity", "show", key).json


# list


def test_activity_list_shows_the_outcome_of_each_call_newest_first(cli, bank):
    paid, lost, refused = bank.pay(), bank.pay(LOST), bank.pay(REFUSED)

    header, *lines = cli("activity", "list").out.splitlines()

    assert header.split() == ["key", "called", "action", "status", "reference", "reason"]
    assert [line.split("  ")[0] for line in lines] == [short(key_of(task)) for task in (refused, lost, paid)]
    assert lines[0].endswith("  bank.pay  FAILED   -          it was refused: declined")
    assert "it failed after it was called: ConnectionResetError: the line is dead" in lines[1]
    assert lines[2].endswith("  2026-11-21 12:00:00Z  bank.pay  DONE     ref-1      the provider answered")


def test_activity_list_is_filtered_by_status_action_and_task(cli, bank):
    paid, lost, slow = bank.pay(), bank.pay(LOST), bank.pay(workflow="pay.slowly")
    many = bank.pay(workflow="pay.all", amounts=[1, 2, 3])

    def listed(*arguments):
        return [one["key"] for one in cli("--json", "activity", "list", *arguments).json]

    assert listed("--status", "unknown") == [key_of(slow), key_of(lost)]
    assert listed("--status", "DONE", "--limit", "1") == [f"activity:{many}:1.3"]
    assert listed("--action", "bank.ask") == [key_of(slow)]
    assert listed("--task", paid) == [key_of(paid)]
    assert listed("--task", many) == [f"activity:{many}:1.{n}" for n in (3, 2, 1)]
    assert listed("--task", many, "--status", "UNKNOWN") == []
    assert listed("--status", "UNKNOWN", "--action", "bank.ask") == [key_of(slow)]
    assert listed("--action", "nothing") == []


def test_activity_queries_for_open_rows_and_for_a_task_use_an_index(core):
    from craftcore.activities.listing_store import NEWEST_OF_TASK, NEWEST_OPEN

    given = {"status": "UNKNOWN", "task_id": None, "action": None, "limit": 1}

    [plan] = core.rows(f"EXPLAIN QUERY PLAN {NEWEST_OPEN}", **given)
    assert plan["detail"] == "SEARCH activity_log USING INDEX activity_log_open (status=?)"
    plan = core.rows(f"EXPLAIN QUERY PLAN {NEWEST_OF_TASK}", **given, low="a", high="b")[0]
    assert plan["detail"] == "SEARCH activity_log USING INDEX activity_log_key (idem_key>? AND idem_key<?)"


def test_activity_document_has_each_moment_as_number_and_as_iso(cli, bank, clock):
    task_id = bank.pay(amount=3)

    [row] = cli("--json", "activity", "list").json

    noon, iso = clock.now(), "2026-11-21T12:00:00.000Z"
    moments = ("first_call_at", "last_call_at", "created_at", "updated_at", "settled_at")
    assert row == {
        "key": key_of(task_id),
        "task_id": task_id,
        "turn": 1,
        "action": "bank.pay",
        "status": "DONE",
        "reason": "the provider answered",
        "policy": "ask",
        "provider_ref": "ref-1",
        "decision": None,
        "in_doubt": False,
        "may_retry": False,
        "calls": 1,
        "args_hash": row["args_hash"],
        "result_unstored": None,
        "error_code": None,
        "error_message": None,
        **dict.fromkeys(moments, noon),
        **{f"{name}_iso": iso for name in moments},
    }


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--status", "MAYBE"], 12, "must be one of INTENT, DONE, FAILED, UNKNOWN"),
        (["--status", ""], 12, "status '' is unknown"),
        (["--task", "nothing"], 10, "no task has the id 'nothing'"),
        (["--limit", "0"], 64, "--limit"),
        (["extra"], 64, "extra"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_activity_list_with_a_bad_filter_is_refused_with_the_reason(cli, core, arguments, code, words):
    refused = cli("activity", "list", *arguments)

    assert (refused.code, words in refused.err) == (code, True), refused.err


def test_activity_list_without_activities_is_empty(cli, core):
    assert cli("--json", "activity", "list").json == []
    assert len(cli("activity", "list").out.splitlines()) == 1


# show


def test_activity_in_doubt_shows_known_facts_and_commands_to_settle(cli, bank, clock):
    task_id = bank.pay(LOST, amount=7)
    clock.advance(minutes=5)
    key, question = key_of(task_id), cli("--json", "inbox", "list").json[0]["id"]

    lines = cli("activity", "show", key).out.splitlines()

    assert lines == [
        f"{key} is UNKNOWN: it failed after it was called",
        f"  its outcome is unknown; a person is asked with question {question}",
        "",
        "action     bank.pay",
        f"task       {task_id} of pay, WAITING; called at its turn 1",
        'arguments  {"amount": 7}',
        "calls      1, the first at 2026-11-21 12:00:00Z",
        "policy     ask",
        "error      ACTIVITY_UNKNOWN: ConnectionResetError: the line is dead",
        "",
        lines[10],
        f"2026-11-21 12:00:00Z  ACTIVITY_INTENT   exec-{task_id}.1  bank.pay: {key}",
        f"2026-11-21 12:00:00Z  ACTIVITY_UNKNOWN  exec-{task_id}.1  bank.pay: it failed after it was called: "
        "ConnectionResetError: the line is dead",
        "",
        "To settle it (--happened takes the reference of the provider):",
        f"  craftcore activity resolve {key} --happened",
        f"  craftcore activity resolve {key} --resend",
        f"  craftcore activity resolve {key} --give-up",
    ]
    assert lines[10].split() == ["time", "type", "record", "what"]


def test_suggested_commands_name_the_database_given_by_option(cli, bank, database):
    task_id = bank.pay(LOST)

    shown = cli("--db", str(database), "activity", "show", task_id).out

    assert f"  craftcore --db {database} activity resolve {key_of(task_id)} --resend\n" in shown


def test_done_activity_shows_a_result_and_no_resolve_commands(cli, bank):
    task_id = bank.pay({"provider_ref": "pay-1", "sum": 7})

    shown = cli("activity", "show", task_id)

    assert shown.out.startswith(f"{key_of(task_id)} is DONE: the provider answered\n\naction ")
    assert "reference  pay-1\n" in shown.out
    assert 'result     {"provider_ref": "pay-1", "sum": 7}\n' in shown.out
    assert "resolve" not in shown.out
    document = show(cli, task_id)
    assert (document["arguments"], document["result"]) == ({}, {"provider_ref": "pay-1", "sum": 7})
    assert document["task"] == {"id": task_id, "workflow": "pay", "status": "DONE", "turn": 1}
    assert (document["question_id"], document["decisions"]) == (None, [])
    assert [event["type"] for event in document["events"]] == ["ACTIVITY_INTENT", "ACTIVITY_DONE"]
    assert document["events"][0]["at_iso"] == "2026-11-21T12:00:00.000Z"


def test_refused_activity_offers_only_resend(cli, bank):
    task_id = bank.pay(REFUSED)

    lines = cli("activity", "show", task_id).out.splitlines()

    assert lines[1] == "  nothing happened, that is certain: it was refused, and it is not called again"
    assert lines[-2:] == ["To send it again:", f"  craftcore activity resolve {key_of(task_id)} --resend"]


def test_activity_without_effect_shows_when_the_next_call_happens(cli, bank):
    task_id = bank.pay(NOTHING)

    assert (
        f"nothing happened, that is certain; it is called again once task {task_id}, which is FAILED, is retried"
        in cli("activity", "show", task_id).out
    )


def test_activity_to_reconcile_shows_that_the_policy_is_applied(cli, bank):
    task_id = bank.pay(workflow="pay.slowly")

    means = cli("activity", "show", task_id).out.splitlines()[1]

    assert means == (f"  its outcome is unknown; policy reconcile is applied when task {task_id} comes to it")


def test_activity_history_continues_over_all_calls(cli, bank):
    task_id = bank.pay(LOST)
    cli("activity", "resolve", task_id, "--resend")
    bank.go_on("ref-9")

    document, shown = show(cli, task_id), cli("activity", "show", task_id).out

    assert [event["type"].removeprefix("ACTIVITY_") for event in document["events"]] == [
        *("INTENT", "UNKNOWN"),
        *("INTENT", "DONE"),
    ]
    assert len({event["execution_id"] for event in document["events"]}) == 2
    assert "calls      2, the first at 2026-11-21 12:00:00Z, the last at 2026-11-21 12:00:00Z\n" in shown
    assert "bank.pay, call 2: activity:" in shown


def test_hostile_text_is_printed_escaped(cli, bank):
    hostile = "red \x1b[31m\x07\n| craftcore release\u202e\u2028back"
    done, lost = bank.pay(hostile, amount=hostile), bank.pay(ConnectionError(hostile), amount=hostile)
    cli("activity", "resolve", lost, "--give-up", "--note", hostile)

    for arguments in (["list"], ["show", done], ["show", lost]):
        printed = cli("activity", *arguments).out
        assert all(line.isprintable() for line in printed.splitlines())
        assert not any(line.startswith("| craftcore") for line in printed.splitlines())
    assert all(line.isprintable() for line in cli("task", "show", done).out.splitlines())
    document = show(cli, done)
    assert (document["provider_ref"], document["arguments"], document["result"]) == (
        hostile,
        {"amount": hostile},
        hostile,
    )
    assert show(cli, lost)["decisions"][0]["note"] == hostile


def test_long_arguments_are_cut_in_text_and_whole_in_json(cli, bank):
    some, more = bank.pay(LOST, amount="x" * 50_000), bank.pay(LOST, amount="x" * 70_000)

    assert len(cli("activity", "show", some).out) < 5_000
    assert len(show(cli, some)["arguments"]["amount"]) == 50_000
    assert "arguments  (too large to be kept, or stripped)\n" in cli("activity", "show", more).out
    assert show(cli, more)["arguments"] is None


# Keys


def test_activity_key_may_be_shortened_while_unambiguous(cli, bank):
    first, second = bank.pay(workflow="pay.all", amounts=list(range(11))), bank.pay()
    common = first[: next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]

    ambiguous = cli("activity", "show", common)

    assert (ambiguous.code, "fits several ids" in ambiguous.err) == (10, True)
    for given in (second, f"activity:{second}", f"{second}:1", second[: len(common) + 1]):
        assert show(cli, given)["key"] == key_of(second)
    assert cli("activity", "show", f"{first}:1").code == 10
    assert show(cli, f"{first}:1.1")["key"] == key_of(first), "the key is also a prefix of 1.10 and 1.11"


def test_activity_key_cut_by_a_table_is_accepted(cli, bank):
    long = "k" * 200
    task_id = bank.pay(key=long)
    shown = cli("activity", "list").out.splitlines()[1].split("  ")[0]

    assert shown.endswith("…")
    assert show(cli, shown)["key"] == f"activity:{task_id}:{long}" == show(cli, f"activity:{task_id}:{long}")["key"]


@pytest.mark.parametrize("key", ["nothing", "", "…", "activity:nothing", "a b", "\udcff", "é", "x" * 1_000])
def test_unknown_activity_key_exits_10_and_points_to_the_list(cli, bank, key):
    bank.pay(LOST)

    for arguments in (["show", key], ["resolve", key, "--resend"]):
        unknown = cli("activity", *arguments)
        assert (unknown.code, "no activity has the key" in unknown.err) == (10, True)
        assert "see: craftcore activity list" in unknown.err


# resolve


def test_resolve_happened_lets_the_task_continue_with_the_reference(cli, bank, clock):
    task_id = bank.pay(LOST)
    clock.advance(minutes=1)

    done = cli("activity", "resolve", task_id, "--happened", "pay-7", "--note", "she saw it")
    bank.go_on()

    assert (done.code, done.out) == (
        0,
        f"bank.pay ({key_of(task_id)}) happened, reference pay-7: it is not called again; "
        f"task {task_id} goes on with that\n"
        "no daemon runs; it goes on with the next one: craftcore run MODULE:APP\n",
    )
    document = show(cli, task_id)
    assert (document["status"], document["provider_ref"], document["decision"]) == ("DONE", "pay-7", "happened")
    assert document["reason"] == f"happened: decided by {ME}"
    assert document["decisions"] == [
        {
            "decision": "happened",
            "reference": "pay-7",
            "note": "she saw it",
            "decided_by": ME,
            "decided_at": clock.now(),
            "decided_at_iso": "2026-11-21T12:01:00.000Z",
        }
    ]
    assert cli("--json", "task", "show", task_id).json["result"] == "pay-7"
    assert len(bank.calls) == 1
    assert cli("--json", "inbox", "list").json == []


def test_resolve_happened_works_without_a_reference(cli, bank):
    task_id = bank.pay(LOST)

    done = cli("--json", "activity", "resolve", task_id, "--happened", "--note", "she saw it").json
    bank.go_on()

    assert (done["status"], done["provider_ref"], done["task"]["status"]) == ("DONE", None, "RUNNING")
    document = cli("--json", "task", "show", task_id).json
    assert (document["status"], document["result"]) == ("DONE", None)


def test_resolve_resend_calls_again_with_the_same_key(cli, bank):
    task_id = bank.pay(LOST, amount=7)

    done = cli("activity", "resolve", task_id, "--resend")
    assert cli("activity", "show", task_id).out.splitlines()[1] == (
        f"  decided: it is called again when task {task_id} comes to it"
    )
    bank.go_on()

    assert done.out.startswith(
        f"bank.pay ({key_of(task_id)}) is called again with the same key, when task {task_id} comes to it\n"
    )
    assert bank.calls == [(key_of(task_id), 7)] * 2
    document = show(cli, task_id)
    assert (document["status"], document["provider_ref"], document["calls"]) == ("DONE", "ref-2", 2)
    assert [one["decision"] for one in document["decisions"]] == ["resend"]


def test_resolve_give_up_fails_the_task(cli, bank):
    task_id = bank.pay(LOST)

    done = cli("activity", "resolve", task_id, "--give-up")
    bank.go_on()

    assert done.out.startswith(
        f"bank.pay ({key_of(task_id)}) is given up: its outcome is unknown; task {task_id} fails when it comes to it\n"
    )
    document = cli("--json", "task", "show", task_id).json
    assert (document["status"], document["error_code"]) == ("FAILED", "ACTIVITY_UNKNOWN")
    assert cli("activity", "show", task_id).out.splitlines()[1] == "  given up: whether it happened is unknown"
    assert cli("activity", "list").out.rstrip().endswith(f"give up: decided by {ME}")
    assert len(bank.calls) == 1


def test_abandoned_activity_may_be_resolved_as_happened_later(cli, bank):
    """The activity stays UNKNOWN, and a person who learns the outcome later can still record it."""
    task_id = bank.pay(LOST)
    cli("activity", "resolve", task_id, "--give-up")
    bank.go_on()

    done = cli("activity", "resolve", task_id, "--happened", "pay-7")
    assert done.out.splitlines() == [
        f"bank.pay ({key_of(task_id)}) happened, reference pay-7: it is not called again; task {task_id} is FAILED",
        f"  craftcore task retry {task_id}",
    ]
    cli("task", "retry", task_id)
    bank.go_on()

    assert cli("--json", "task", "show", task_id).json["result"] == "pay-7"
    assert [one["decision"] for one in show(cli, task_id)["decisions"]] == ["give up", "happened"]
    assert len(bank.calls) == 1


def test_refused_activity_is_sent_again_once_the_task_is_retried(cli, bank, database):
    task_id = bank.pay(REFUSED)

    done = cli("--db", str(database), "activity", "resolve", task_id, "--resend")
    assert done.out.splitlines() == [
        f"bank.pay ({key_of(task_id)}) is called again with the same key, once task {task_id}, which is FAILED, "
        "is retried and comes to it",
        f"  craftcore --db {database} task retry {task_id}",
    ]
    cli("task", "retry", task_id)
    bank.go_on()

    assert cli("--json", "task", "show", task_id).json["result"] == "ref-2"


def test_cancelled_task_sends_nothing_after_resend_as_the_reply_states(cli, bank):
    task_id = bank.pay(LOST)
    cli("task", "cancel", task_id)

    done = cli("activity", "resolve", task_id, "--resend")
    bank.go_on()

    assert done.out == (
        f"bank.pay ({key_of(task_id)}) may be called again, but nothing does: task {task_id} is CANCELLED\n"
    )
    assert len(bank.calls) == 1


def test_inbox_and_resolve_answer_the_same_question(cli, bank):
    task_id = bank.pay(LOST)
    [question] = cli("--json", "inbox", "list").json
    cli("activity", "resolve", task_id, "--happened", "pay-7", "--note", "seen")

    late = cli("inbox", "answer", question["id"], "resend")

    assert (late.code, f'was answered by {ME} with "happened"' in late.err) == (1, True)
    [asked] = cli("--json", "task", "show", task_id).json["questions"]
    assert (asked["status"], asked["answer"], asked["note"], asked["answered_by"]) == (
        *("ANSWERED", "happened", "seen"),
        ME,
    )


@pytest.mark.parametrize(
    ("answers", "decision", "words"),
    [
        (["ok"], "--happened", "is DONE: the provider answered; nothing was written"),
        (["ok"], "--resend", "is DONE: the provider answered; nothing was written"),
        (["ok"], "--give-up", "is DONE"),
        ([REFUSED], "--happened", "is FAILED: it was refused. It can only be sent again"),
        ([REFUSED], "--give-up", "is FAILED: it was refused"),
    ],
)
def test_activity_not_in_doubt_rejects_the_decision(cli, bank, answers, decision, words):
    task_id = bank.pay(*answers)
    before = show(cli, task_id)

    refused = cli("activity", "resolve", task_id, decision)

    assert (refused.code, words in refused.err) == (1, True), refused.err
    assert show(cli, task_id) == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "give one of --happened, --resend and --give-up"),
        (["--resend", "--give-up"], "give one of"),
        (["--happened", "x", "--resend"], "give one of"),
        (["--happened", ""], "a reference is 1 to 998 printable characters"),
        (["--happened", "x" * 999], "a reference is 1 to 998"),
        (["--happened", "red \x1b[31m"], "printable"),
        (["--happened", "\udcff"], "printable"),
        (["--resend", "--note", ""], "the note must be 1 to 4,000 characters"),
        (["--resend", "--note", "x" * 4_001], "the note must be 1 to 4,000 characters"),
        (["--resend", "--note", "\udcff"], "the note must be 1 to 4,000 characters"),
        (["--resend", "extra"], "extra"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else None,
)
def test_invalid_decision_leaves_the_activity_open(cli, bank, arguments, words):
    task_id = bank.pay(LOST)

    refused = cli("activity", "resolve", task_id, *arguments)

    assert (refused.code, words in refused.err) == (64, True), refused.err
    assert (show(cli, task_id)["status"], show(cli, task_id)["decisions"]) == ("UNKNOWN", [])
    assert len(cli("--json", "inbox", "list").json) == 1


@pytest.mark.parametrize(
    ("decision", "words"),
    [
        ("--happened", "This will record that bank.pay ({key}) happened, so that it is never called again. Go on?"),
        (
            "--resend",
            "This will let bank.pay ({key}) be called again with the same key: twice, if it did happen and the "
            "provider forgot. Go on?",
        ),
        ("--give-up", "This will give up bank.pay ({key}): its task fails with that when it comes to it. Go on?"),
    ],
)
def test_resolve_at_a_terminal_asks_for_confirmation_first(cli, terminal, bank, decision, words):
    key = key_of(bank.pay(LOST))

    code, asked = terminal(lambda: False, "activity", "resolve", key, decision)

    assert (code, asked) == (130, [words.format(key=key)])
    assert show(cli, key)["decisions"] == []
    assert terminal(lambda: False, "activity", "resolve", key, decision, "--yes") == (0, [])
    assert len(show(cli, key)["decisions"]) == 1


def test_activity_called_again_during_confirmation_is_not_decided(cli, terminal, bank, core):
    """The action was called again during the confirmation, so its doubt is a new one, not the one shown."""
    key = key_of(bank.pay(LOST))

    def call_again():
        core.do(lambda tx: tx.run("UPDATE activity_log SET calls = calls + 1 WHERE idem_key = :key", key=key))
        return True

    code, _ = terminal(call_again, "activity", "resolve", key, "--happened")

    assert code == 1
    assert (show(cli, key)["status"], show(cli, key)["decisions"]) == ("UNKNOWN", [])


def test_resolve_rings_the_daemon(cli, bank, database):
    task_id = bank.pay(LOST)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(doorbell_path(database))
        bell.setblocking(False)

        cli("activity", "resolve", task_id, "--resend")

        assert bell.recv(64) == b"*"


@pytest.mark.parametrize("arguments", [["list"], ["show", "x"], ["resolve", "x", "--resend"]], ids=" ".join)
def test_activity_command_without_a_database_creates_none(cli, tmp_path, arguments):
    refused = cli("activity", *arguments)

    assert (refused.code, "no such database" in refused.err) == (10, True)
    assert list(tmp_path.iterdir()) == []


# A daemon


def test_running_daemon_continues_at_once_after_resolve(tmp_path):
    (tmp_path / "dying.py").write_text(
        KILLED_IN_A_CALL.replace("await asyncio.sleep(3600)", 'raise ConnectionError("lost")')
    )
    with a_daemon(tmp_path, "dying:app") as daemon:
        daemon.ready()
        task_id = craftcore(tmp_path, "emit", "pay").json["id"]
        until(lambda: craftcore(tmp_path, "--json", "inbox", "list").json, "the question")

        done = craftcore(tmp_path, "activity", "resolve", task_id, "--resend")

        assert "no daemon runs" not in done.out
        ended = until(lambda: is_done(tmp_path, task_id), "the end of the task")
    assert ended["result"] == "ref-2"
    assert len(set(read_trace(tmp_path))) == 1
    assert len(read_trace(tmp_path)) == 2


def is_done(folder, task_id):
    document = craftcore(folder, "--json", "task", "show", task_id).json
    return document if document["status"] == "DONE" else None


KILLED_IN_A_CALL = """
import asyncio, os
from craftcore import App, Call, TaskContext

app = App("dying")

@app.action("pay", irreversible=True)
async def pay(call: Call) -> str:
    with open("trace", "a") as file:
        file.write(call.key + "\\n")
    if call.attempt == 1:
        await asyncio.sleep(3600)
    return f"ref-{call.attempt}"

@app.workflow("pay")
async def pay_one(ctx: TaskContext) -> str:
    return await ctx.act(pay)
"""


@pytest.mark.parametrize(
    ("decision", "status", "result", "calls"),
    [
        pytest.param(["--happened", "seen-1"], "DONE", "seen-1", 1, marks=pytest.mark.acceptance),
        (["--resend"], "DONE", "ref-2", 2),
        pytest.param(["--give-up"], "FAILED", None, 1, marks=pytest.mark.acceptance),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_activity_in_doubt_after_a_killed_daemon_is_settled_by_resolve(tmp_path, decision, status, result, calls):
    (tmp_path / "dying.py").write_text(KILLED_IN_A_CALL)
    with a_daemon(tmp_path, "dying:app") as daemon:
        daemon.ready()
        task_id = craftcore(tmp_path, "emit", "pay").json["id"]
        [key] = until(lambda: read_trace(tmp_path), "the call")
        daemon.kill()

    [called] = craftcore(tmp_path, "--json", "activity", "list").json
    assert (called["key"], called["status"]) == (key, "INTENT")
    assert "its process has died" in craftcore(tmp_path, "activity", "show", key).out
    early = craftcore(tmp_path, "activity", "resolve", key, *decision)
    assert (early.code, "a daemon that starts finds out" in early.err) == (1, True)

    assert craftcore(tmp_path, "run", "dying:app", "--until-idle").code == 0
    assert read_trace(tmp_path) == [key], "the action was called again without a decision"
    assert craftcore(tmp_path, "activity", "resolve", key, *decision).code == 0
    craftcore(tmp_path, "run", "dying:app", "--until-idle")

    document = craftcore(tmp_path, "--json", "task", "show", task_id).json
    assert (document["status"], document["result"]) == (status, result)
    assert read_trace(tmp_path) == [key] * calls
