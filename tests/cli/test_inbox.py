"""`craftcore inbox`: open questions with deadline and default, and an answer that counts once."""

from __future__ import annotations

import os
import pwd
import socket
import subprocess

import pytest

from craftcore.audit.caller import actor
from craftcore.storage.doorbell_client import doorbell_path
from craftcore.tasks.activity_events import WHAT_ANSWERS_MEAN
from craftcore.tasks.model import NewQuestion, QuestionKind
from craftcore.tasks.question_store import QuestionStore
from tests.support.fake_payments import LOST, Bank
from tests.support.fakes import VirtualCore
from tests.support.idle_database import HOUR, a_task, an_app, at_rest

ME = f"{pwd.getpwuid(os.getuid()).pw_name} (uid {os.getuid()})"


@pytest.fixture
def ask(database, clock):
    """Return a function that runs a task with a question, `ask(timeout=60)`, and returns the ids of both."""

    def ask(**payload):
        task_id = a_task(database, "ask", clock, **payload)
        core = VirtualCore(database, clock)
        [question] = core.rows(
            "SELECT questions.id FROM questions JOIN tasks ON tasks.seq = task_seq WHERE tasks.id = :id", id=task_id
        )
        core.close()
        return task_id, question["id"]

    return ask


@pytest.fixture
def bank(database, clock):
    return Bank(database, clock)


def find_question(cli, task_id):
    [question] = cli("--json", "task", "show", task_id).json["questions"]
    return question


async def nothing(app):
    """Do nothing: the engine runs the due work."""


# list


def test_inbox_list_shows_task_deadline_default_and_answer_commands(cli, ask, clock):
    task_id, question_id = ask(timeout=2 * HOUR, default="hold")
    clock.advance(minutes=12)

    assert cli("inbox", "list").out.splitlines() == [
        f"task {task_id} of ask asked 12 min ago:",
        "  | Send it?",
        '  until 2026-11-21 14:00:00Z, in 108 min; not answered by then, it goes on with "hold". To answer:',
        f"  craftcore inbox answer {question_id} send",
        f"  craftcore inbox answer {question_id} hold",
    ]


def test_inbox_document_has_iso_moments_and_the_default_as_a_value(cli, ask, clock):
    task_id, question_id = ask(timeout=HOUR, default="hold")

    [row] = cli("--json", "inbox", "list").json

    assert row == {
        "id": question_id,
        "task_id": task_id,
        "workflow": "ask",
        "kind": "ask",
        "activity_key": None,
        "question": "Send it?",
        "options": ["send", "hold"],
        "default": "hold",
        "by_message": False,
        "status": "OPEN",
        "answer": None,
        "note": None,
        "answered_by": None,
        "created_at": clock.now(),
        "created_at_iso": "2026-11-21T12:00:00.000Z",
        "expires_at": clock.now() + HOUR,
        "expires_at_iso": "2026-11-21T13:00:00.000Z",
        "closed_at": None,
        "closed_at_iso": None,
        "form": None,
        "to": None,
    }


@pytest.mark.parametrize(
    ("asked", "until"),
    [
        ({}, "for as long as it takes. To answer:"),
        ({"timeout": HOUR}, "until 2026-11-21 13:00:00Z, in 60 min; not answered by then, it goes on without one."),
    ],
)
def test_inbox_list_shows_the_outcome_without_an_answer(cli, ask, asked, until):
    ask(**asked)

    assert f"  {until}" in cli("inbox", "list").out


def test_inbox_list_shows_an_earlier_task_deadline(cli, clock, database):
    app = an_app()
    app.declare("soon", app.workflows["ask"].fn, deadline=HOUR)
    at_rest(database, lambda app: app.emit("soon", {"timeout": 2 * HOUR}), clock, app)

    assert (
        "until the task's deadline at 2026-11-21 13:00:00Z, in 60 min; then the task fails" in cli("inbox", "list").out
    )


def test_inbox_list_is_oldest_first_and_marks_a_cut(cli, ask):
    first, second = ask()[1], ask()[1]

    assert [one["id"] for one in cli("--json", "inbox", "list").json] == [first, second]
    cut = cli("inbox", "list", "--limit", "1")
    assert second not in cut.out
    assert "these are the first 1, and there are more: --limit" in cut.err
    assert cli("inbox", "list").err == ""


def test_empty_inbox_is_reported(cli, core):
    assert cli("inbox", "list").out == "no open questions\n"
    assert cli("--json", "inbox", "list").json == []


def test_system_question_is_marked_as_from_craftcore(cli, clock, database, core):
    wait = a_task(database, "wait", clock)

    def stalled(tx):
        task = core.tasks.get(tx, wait)
        asked = NewQuestion(kind=QuestionKind.STALLED, question="It is stuck. Cancel?", options=("wait", "cancel"))
        QuestionStore().ask(tx, clock.new_id(), task.seq, None, asked, None)

    core.do(stalled)

    lines = cli("inbox", "list").out.splitlines()
    assert lines[0] == f"craftcore, about task {wait} of wait asked 0.0 s ago:"
    assert lines[2] == "  its turn runs on meanwhile. To answer:"
    result = cli("inbox", "answer", cli("--json", "inbox", "list").json[0]["id"], "cancel")
    assert result.out == f'answered with "cancel"; task {wait} of wait is CANCELLED\n'


@pytest.mark.parametrize(
    "option",
    [
        *("it's fine", "a & b; $(touch hacked) `id`", "-n", "--yes", "a\\b", 'say "hi"', "é"),
        *("red \x1b[31m", "two\nlines", "don't \t", "back\\\t"),
    ],
)
def test_answer_command_can_be_pasted_with_every_option_text(cli, ask, tmp_path, option):
    task_id, _ = ask(options=["no", option])
    line = cli("inbox", "list").out.splitlines()[-1].strip()
    assert line.isprintable()

    script = f"craftcore() {{ printf '%s\\0' \"$@\"; }}\n{line}\n"
    pasted = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
    *words, end = pasted.stdout.split("\0")
    assert (end, cli(*words).code) == ("", 0)

    assert find_question(cli, task_id)["answer"] == option
    assert not (tmp_path / "hacked").exists()


def test_answer_command_names_the_database_given_by_option(cli, ask, database):
    _, question_id = ask()

    listed = cli("--db", str(database), "inbox", "list").out

    assert f"  craftcore --db {database} inbox answer {question_id} send\n" in listed


def test_long_option_lists_are_shown_beside_a_single_command(cli, ask):
    _, question_id = ask(options=[f"option {n}" for n in range(11)])

    lines = cli("inbox", "list").out.splitlines()

    assert lines[3:] == [*(f"  | option {n}" for n in range(11)), f"  craftcore inbox answer {question_id} CHOICE"]


def test_hostile_question_is_printed_escaped(cli, ask):
    hostile = "red \x1b[31m\x07\n| craftcore release\u202e\u2028back"
    ask(question=hostile, options=None, default=hostile, timeout=HOUR)

    printed = cli("inbox", "list").out

    assert all(line.isprintable() for line in printed.splitlines())
    assert all(line.startswith(("task ", "  ")) for line in printed.splitlines())
    assert cli("--json", "inbox", "list").json[0]["question"] == hostile


# Irreversible actions


def test_action_in_doubt_is_asked_with_known_facts_and_a_command_per_answer(cli, bank, clock, database):
    task_id = bank.pay(LOST, amount=7)
    clock.advance(minutes=5)
    [row] = cli("--json", "inbox", "list").json
    key = f"activity:{task_id}:1.1"

    assert cli("--db", str(database), "inbox", "list").out.splitlines() == [
        f"craftcore, about task {task_id} of pay asked 5 min ago:",
        "  | Did bank.pay happen? It was called at 2026-11-21 12:00:00 UTC, and it failed after it was called "
        '(ConnectionResetError: the line is dead). Its arguments: {"amount":7}',
        f"  | {WHAT_ANSWERS_MEAN}",
        "  for as long as it takes. To answer (happened takes --reference REF, the provider's):",
        f"  craftcore --db {database} inbox answer {row['id']} happened",
        f"  craftcore --db {database} inbox answer {row['id']} resend",
        f"  craftcore --db {database} inbox answer {row['id']} 'give up'",
        "  All that is known of it:",
        f"  craftcore --db {database} activity show {key}",
    ]
    assert (row["kind"], row["activity_key"], row["options"]) == ("activity", key, ["happened", "resend", "give up"])


@pytest.mark.parametrize(
    ("answer", "says", "status", "result", "calls"),
    [
        (
            ["happened", "--reference", "pay-7"],
            "happened, reference pay-7: it is not called again",
            *("DONE", "pay-7", 1),
        ),
        (["happened"], "happened: it is not called again", *("DONE", None, 1)),
        (["resend"], "is called again with the same key, when task", *("DONE", "ref-2", 2)),
        (["give up"], "is given up: its outcome is unknown", *("FAILED", None, 1)),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_answer_about_an_action_prints_and_causes_the_outcome(cli, bank, answer, says, status, result, calls):
    task_id = bank.pay(LOST)
    [asked] = cli("--json", "inbox", "list").json

    done = cli("inbox", "answer", asked["id"], *answer, "--note", "I looked")
    bank.go_on()

    assert done.code == 0
    assert done.out.startswith(f"bank.pay (activity:{task_id}:1.1) {says}")
    assert done.out.endswith("no daemon runs; it goes on with the next one: craftcore run MODULE:APP\n")
    document = cli("--json", "task", "show", task_id).json
    assert (document["status"], document["result"], len(bank.calls)) == (status, result, calls)
    [decision] = cli("--json", "activity", "show", task_id).json["decisions"]
    assert (decision["decided_by"], decision["note"]) == (ME, "I looked")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["resend", "--reference", "x"], "a reference is for what happened"),
        (["happened", "--reference", ""], "a reference is 1 to 998 printable characters"),
        (["happened", "--reference", "a\nb"], "a reference is 1 to 998 printable characters"),
        (["give", "up"], "unexpected extra argument"),
        (["give-up"], "choose one of: happened, resend, 'give up'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_invalid_answer_about_an_action_is_refused(cli, bank, arguments, words):
    bank.pay(LOST)
    [asked] = cli("--json", "inbox", "list").json

    refused = cli("inbox", "answer", asked["id"], *arguments)

    assert (refused.code, words in refused.err) == (64, True), refused.err
    assert cli("--json", "inbox", "list").json == [asked]


def test_reference_is_accepted_only_for_an_irreversible_action(cli, ask):
    _, question_id = ask()

    refused = cli("inbox", "answer", question_id, "send", "--reference", "x")

    assert (refused.code, "for an irreversible action that happened" in refused.err) == (64, True)


def test_action_in_doubt_is_asked_also_after_the_task_has_ended(cli, bank):
    task_id = bank.pay(LOST, workflow="pay.soon")
    assert "until the task's deadline at 2026-11-21 13:00:00Z" in cli("inbox", "list").out
    cli("task", "cancel", task_id)

    listed = cli("inbox", "list").out
    assert "  for as long as it takes; its task is CANCELLED, and comes to it no more. To answer" in listed
    [asked] = cli("--json", "inbox", "list").json
    assert cli("inbox", "answer", asked["id"], "happened").out == (
        f"bank.pay (activity:{task_id}:1.1) happened: it is not called again; task {task_id} is CANCELLED\n"
    )


def test_key_reuse_with_other_arguments_asks_a_question(cli, bank):
    task_id = bank.pay(workflow="conflict")
    [asked] = cli("--json", "inbox", "list").json

    listed = cli("inbox", "list").out.splitlines()

    assert (asked["kind"], asked["activity_key"]) == ("conflict", None)
    assert listed[0] == f"craftcore, about task {task_id} of conflict asked 0.0 s ago:"
    assert f"its key activity:{task_id}:one was used before with other arguments" in listed[1]
    assert listed[2:] == [
        "  for as long as it takes; its task is FAILED meanwhile. To answer:",
        f"  craftcore inbox answer {asked['id']} retry",
        f"  craftcore inbox answer {asked['id']} leave",
        "  Its irreversible actions so far:",
        f"  craftcore activity list --task {task_id}",
    ]
    left = cli("inbox", "answer", asked["id"], "leave")
    assert left.out == f'answered with "leave"; task {task_id} of conflict is FAILED\n'
    assert len(bank.calls) == 1


def test_conflict_answered_with_retry_continues_the_task(cli, bank):
    task_id = bank.pay(workflow="conflict")
    [asked] = cli("--json", "inbox", "list").json

    again = cli("inbox", "answer", asked["id"], "retry")

    assert again.out.startswith(f'answered with "retry"; task {task_id} of conflict goes on\n')


@pytest.mark.parametrize(
    ("ended_by", "state"),
    [("cancel", "CANCELLED, and comes to it no more"), ("fail", "FAILED, and comes to it when it is retried")],
)
def test_inbox_list_shows_the_effect_of_an_answer_on_an_ended_task(cli, bank, clock, ended_by, state):
    task_id = bank.pay(LOST, workflow="pay.soon")
    if ended_by == "cancel":
        cli("task", "cancel", task_id)
    else:
        clock.advance(hours=2)  # the deadline of the task
        bank.go_on()

    listed = cli("inbox", "list").out

    assert f"  for as long as it takes; its task is {state}. To answer" in listed


# answer


def test_answer_continues_the_task_and_records_the_user(cli, ask, clock, database):
    task_id, question_id = ask()

    done = cli("inbox", "answer", question_id, "send", "--note", "she said so")
    at_rest(database, nothing, clock)

    assert done.out == (
        f'answered with "send"; task {task_id} of ask goes on\n'
        "no daemon runs; it goes on with the next one: craftcore run MODULE:APP\n"
    )
    question = find_question(cli, task_id)
    assert (question["status"], question["answer"], question["note"], question["answered_by"]) == (
        "ANSWERED",
        "send",
        "she said so",
        ME,
    )
    assert question["closed_at_iso"] == "2026-11-21T12:00:00.000Z"
    assert cli("--json", "task", "show", task_id).json["result"] == "send"
    assert cli("--json", "inbox", "list").json == []


def test_answer_with_json_prints_the_question(cli, ask):
    _, question_id = ask()

    document = cli("--json", "inbox", "answer", question_id, "hold").json

    assert (document["id"], document["status"], document["answer"]) == (question_id, "ANSWERED", "hold")


def test_second_answer_is_too_late_and_names_the_first_user(cli, ask):
    _, question_id = ask()
    cli("inbox", "answer", question_id, "send")

    late = cli("inbox", "answer", question_id, "hold")

    assert (late.code, late.out) == (1, "")
    assert late.err == (
        f'craftcore: too late: question {question_id} was answered by {ME} with "send"; nothing was written\n'
    )


def test_answer_after_expiry_is_too_late(cli, ask, clock, database):
    task_id, question_id = ask(timeout=HOUR, default="hold")
    clock.advance(hours=2)
    at_rest(database, nothing, clock)

    late = cli("inbox", "answer", question_id, "send")

    assert (late.code, f"too late: question {question_id} has expired" in late.err) == (1, True)
    assert cli("--json", "task", "show", task_id).json["result"] == "hold"


def test_answer_to_an_ended_task_is_too_late(cli, ask):
    task_id, question_id = ask()
    cli("task", "cancel", task_id)

    late = cli("inbox", "answer", question_id, "send")

    assert (late.code, "is withdrawn" in late.err) == (1, True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["maybe"], "'maybe' is not an option; choose one of: send, hold"),
        (["SEND"], "choose one of: send, hold"),
        ([""], "choose one of: send, hold"),
        ([], "the answer is missing: craftcore inbox answer"),
        (["send", "--note", "x" * 4_001], "the note has 4,001 characters; the limit is 4,000"),
        (["send", "--note", "\udcff"], "lone surrogate"),
        (["send", "hold"], "unexpected extra argument"),
        (["--field", "a=b"], "takes no --field"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else None,
)
def test_refused_answer_leaves_the_question_open(cli, ask, arguments, words):
    task_id, question_id = ask()

    refused = cli("inbox", "answer", question_id, *arguments)

    assert (refused.code, words in refused.err) == (64, True), refused.err
    assert find_question(cli, task_id)["status"] == "OPEN"


def test_question_without_options_accepts_any_text(cli, ask, clock, database):
    task_id, question_id = ask(options=None)
    assert f"craftcore inbox answer {question_id} TEXT" in cli("inbox", "list").out
    empty = cli("inbox", "answer", question_id, "")
    assert (empty.code, "the answer is empty" in empty.err) == (64, True), (
        "an unset shell variable gives an empty answer"
    )

    assert cli("inbox", "answer", question_id, "as you like, it's fine").code == 0
    at_rest(database, nothing, clock)

    assert cli("--json", "task", "show", task_id).json["result"] == "as you like, it's fine"


def test_question_id_may_be_shortened_while_unambiguous(cli, ask):
    first, second = ask()[1], ask()[1]
    common = first[: next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]

    ambiguous = cli("inbox", "answer", common, "send")

    assert (ambiguous.code, "fits several ids" in ambiguous.err) == (10, True)
    assert cli("--json", "inbox", "answer", first[: len(common) + 1], "send").json["id"] == first


@pytest.mark.parametrize("question_id", ["nothing", "", "\udcff"])
def test_unknown_question_id_exits_10_and_points_to_the_list(cli, core, question_id):
    unknown = cli("inbox", "answer", question_id, "send")

    assert (unknown.code, "no question has the id" in unknown.err) == (10, True)
    assert "see: craftcore inbox list" in unknown.err


def test_answer_rings_the_daemon(cli, ask, database):
    _, question_id = ask()
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as bell:
        bell.bind(doorbell_path(database))
        bell.setblocking(False)

        cli("inbox", "answer", question_id, "send")

        assert bell.recv(64) == b"*"


def test_user_without_a_name_is_shown_as_a_number(monkeypatch):
    def fail(uid):
        raise KeyError(uid)

    assert actor().text == ME
    monkeypatch.setattr("craftcore.audit.caller.pwd.getpwuid", fail)
    assert actor().text == f"uid {os.getuid()}"


# Questions with a form


@pytest.fixture
def ship(database, clock):
    """Run a task that asks finance with a form, and return the ids of both."""
    task_id = a_task(database, "ship", clock)
    core = VirtualCore(database, clock)
    [question] = core.rows("SELECT id FROM questions")
    core.close()
    return task_id, question["id"]


def test_question_with_a_form_lists_its_fields_and_a_command(cli, ship):
    task_id, question_id = ship

    lines = cli("inbox", "list").out.splitlines()
    [row] = cli("--json", "inbox", "list").json

    assert lines[0] == f"task {task_id} of ship asked finance 0.0 s ago:"
    assert "  | street: text" in lines
    assert "  | count: a whole number, 1 to 9, may be left out" in lines
    assert "  | express: true or false, may be left out" in lines
    assert lines[-1] == f"  craftcore inbox answer {question_id} --field street=VALUE"
    assert (row["to"], list(row["form"]["properties"])) == ("finance", ["street", "count", "express", "speed"])


@pytest.mark.parametrize(
    "given",
    [
        ["--field", "street=Main Street 5", "--field", "count=2", "--field", "express=yes"],
        ['{"street": "Main Street 5", "count": 2, "express": true}'],
    ],
)
def test_form_is_answered_by_fields_or_as_json(cli, ship, database, clock, given):
    task_id, question_id = ship

    done = cli("inbox", "answer", question_id, *given)

    assert done.code == 0, done.err
    at_rest(database, nothing, clock)
    result = cli("--json", "task", "show", task_id).json["result"]
    assert result == {"street": "Main Street 5", "count": 2, "express": True}


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "give --field NAME=VALUE for each field of the form: street (text), count"),
        (["Main Street"], "the answer is not JSON of the form"),
        (["--field", "count=2"], "street is missing"),
        (["--field", "street=x", "--field", "count=ten"], "count must be a whole number"),
        (["--field", "street=x", "--field", "count=10"], "count must be at most 9"),
        (["--field", "street=x", "--field", "town=y"], "town is not a field; the fields are street, count"),
        (["--field", "street"], "'street' is not NAME=VALUE"),
        (["{}", "--field", "street=x"], "give CHOICE or --field, not both"),
    ],
)
def test_answer_that_does_not_fit_the_form_is_refused(cli, ship, given, words):
    task_id, question_id = ship

    refused = cli("inbox", "answer", question_id, *given)

    assert (refused.code, words in refused.err) == (64, True), refused.err
    assert find_question(cli, task_id)["status"] == "OPEN"


def test_task_show_names_the_fields_of_a_form(cli, ship):
    task_id, question_id = ship

    why = " ".join(cli("task", "show", task_id).out.split())

    assert "To answer with its fields, street (text), count (a whole number, 1 to 9; default 1)" in why
    assert f"craftcore inbox answer {question_id} --field NAME=VALUE" in why
