"""The programs of the guides, run as a reader runs them, and killed at the places that the guides describe."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from craftcore import Producer
from tests.support.code_blocks import PAGES
from tests.support.command_calls import call_command
from tests.support.engine_harness import look
from tests.support.processes import PATIENCE, Result, craftcore, environment
from tests.support.warm_parent import start

GUIDES = ("docs/how-to/write-handlers.md", "docs/how-to/test-workflows.md", "docs/how-to/change-code-safely.md")
PAGE = "\n".join(PAGES[name] for name in GUIDES)
PROGRAMS = dict(re.findall(r"```python\n# (\w+\.py)\n(.*?)```", PAGE, re.DOTALL))
PROGRAM_NAMES = {
    "invoice",
    "digest",
    "fetch",
    "probe",
    "reports",
    "essay",
    "reader",
    "trial",
    "shipping",
    "tools",
    "assistant",
    "chat",
    "desk",
    "primes",
    "totals",
    "stock",
    "brief",
    "welcome",
    "repaired",
    "test_welcome",
    "test_repaired",
    "test_renewal",
}

KILLED = """
import sys
from craftcore.cli.main import main
from craftcore.failpoints import Failpoint, arm, kill_process

point, at_pass, *sys.argv[1:] = sys.argv[1:]
arm(Failpoint(point), kill_process, at_pass=int(at_pass))
sys.exit(main())
"""
"""A program that runs the command `craftcore` and is killed at the nth pass of a point."""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """Return a folder in which a reader has saved all programs."""
    save(tmp_path)
    return tmp_path


def save(folder: Path) -> None:
    for name, text in PROGRAMS.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "killed.py").write_text(KILLED)


def emit(folder: Path, workflow: str, **payload: Any) -> str:
    emitted = call_command(folder, "--json", "emit", workflow, "--payload", json.dumps(payload))
    assert emitted.code == 0, emitted.err
    return str(emitted.json["id"])


def send(folder: Path, text: str) -> None:
    message = ("emit", "--source", "MESSAGE", "--session", "ada", "--payload", json.dumps({"text": text}))
    assert call_command(folder, *message).code == 0


def run(folder: Path, app: str, **env: str) -> Result:
    """Run an app until it is idle, as the page shows."""
    ended = craftcore(folder, "run", f"{app}:app", "--until-idle", **env)
    assert ended.code in {0, 4}, ended.err
    return ended


def run_killed_at(folder: Path, app: str, point: str, at_pass: int = 1) -> None:
    """Run an app until it is killed at a point."""
    command = ["killed.py", point, str(at_pass), "--db", "agent.db", "run", f"{app}:app", "--until-idle"]
    with start(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        _, printed = process.communicate(timeout=2 * PATIENCE)
    assert process.returncode == -signal.SIGKILL, printed.decode()


def task(folder: Path, task_id: str) -> tuple[str, Any]:
    """Return the status of a task with its result or its error code, or HELD with the reason that people see."""
    [row] = look(folder / "agent.db", "SELECT * FROM tasks WHERE id = :id", id=task_id)
    if held := look(folder / "agent.db", "SELECT reason, trigger_id FROM task_holds WHERE task_id = :id", id=task_id):
        details = call_command(folder, "task", "show", task_id).out
        assert f"is held, the code does not fit it: {held[0]['reason']}" in details
        assert f"craftcore --db agent.db task retry {task_id}" in details
        [trigger] = look(folder / "agent.db", "SELECT * FROM triggers WHERE id = :id", id=held[0]["trigger_id"])
        assert (row["status"], trigger["status"], trigger["reason"]) == (
            "RUNNING",
            "PENDING",
            f"held: {held[0]['reason']}",
        )
        return "HELD", held[0]["reason"]
    return row["status"], row["error_code"] if row["result_json"] is None else json.loads(row["result_json"])


def lines(folder: Path, name: str) -> list[str]:
    path = folder / name
    return path.read_text().splitlines() if path.exists() else []


def test_program_of_the_page_runs_here():
    assert {name.removesuffix(".py") for name in PROGRAMS} == PROGRAM_NAMES
    assert len(PROGRAMS) == PAGE.count("```python\n")


def test_unrecorded_step_runs_again_and_writes_the_same_file(folder):
    task_id = emit(folder, "invoice", customer="ada", cents=950)
    run_killed_at(folder, "invoice", "step.ran")
    [written] = folder.glob("invoice-*.txt")

    run(folder, "invoice")

    assert [*folder.glob("invoice-*.txt")] == [written]
    assert task(folder, task_id) == ("DONE", f"invoice-{task_id}.txt")
    assert lines(folder, "outbox.txt") == [f"activity:{task_id}:1.1 ada"]


def test_chat_continues_its_conversation(folder):
    for text in ("hello", "again"):
        send(folder, text)
        run(folder, "chat")

    listed = call_command(folder, "--json", "session", "history", "ada").json
    said = [(one["number"], one["message"]["role"], one["message"]["text"]) for one in listed]
    assert said == [
        (1, "user", "hello"),
        (2, "model", "0 messages before this one: hello"),
        (3, "user", "again"),
        (4, "model", "2 messages before this one: again"),
    ]


CRASHES = {"test_welcome.py": "step.ran:1", "test_repaired.py": "provider.answered:1"}
"""A point for each crash test of the page. Unchanged, these tests crash at each pair of points, hundreds of times."""

ALL_PAIRS = pytest.param("all pairs", marks=pytest.mark.acceptance)


@pytest.fixture(scope="module", params=["one point", ALL_PAIRS])
def own_tests(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Run the tests of the page and return the output of pytest. By default a crash test crashes at one point."""
    folder = tmp_path_factory.mktemp("own")
    save(folder)
    if request.param == "one point":
        for program, point in CRASHES.items():
            text = PROGRAMS[program]
            assert text.count("pairs=True") == 1
            (folder / program).write_text(text.replace("pairs=True", f"at={point!r}"))
    selected = ["test_renewal.py::test_contract_is_charged_once[asyncio]", *CRASHES]
    command = ["-m", "pytest", "-v", "-p", "no:cacheprovider", *selected]
    with start(command, cwd=folder, env=environment(), stdout=subprocess.PIPE) as process:
        printed, _ = process.communicate(timeout=5 * PATIENCE)
    assert process.returncode == 1, printed.decode()
    assert "1 failed, 2 passed" in printed.decode()
    return printed.decode()


def test_lab_of_the_page_needs_no_configuration(own_tests):
    assert "test_renewal.py::test_contract_is_charged_once[asyncio] PASSED" in own_tests


def test_email_in_a_plain_step_fails_as_the_page_shows(own_tests):
    [shown] = re.findall(r"```\n(crash at .*?)```", PAGE, re.DOTALL)
    report = own_tests.replace("\nE           ", "\n")
    for part in shown.split("    …\n"):
        assert part in report, own_tests
    assert "test_welcome.py::test_welcome_is_sent_once FAILED" in own_tests


def test_repaired_handler_of_the_page_passes(own_tests):
    assert "test_repaired.py::test_welcome_is_sent_once PASSED" in own_tests


def test_crash_test_of_the_page_is_shorter_than_ten_lines():
    lines_of_code = [line for line in PROGRAMS["test_repaired.py"].splitlines() if line.strip()]
    assert len(lines_of_code) < 10


def test_crashtest_finds_a_false_declaration(folder):
    """The app declares that the provider drops a second call, and the provider does not."""
    correct = PROGRAMS["invoice.py"]
    wrong = correct.replace("irreversible=True", "irreversible=True, on_unknown='resend', idempotent_provider=True")
    (folder / "invoice.py").write_text(wrong)
    payload = ("--payload", '{"customer": "ada", "cents": 950}')
    names = re.findall(r'@app.action\("([\w.]+)"', wrong)
    false_provider = ("--provider", f"{names[0]}:dedupes=false", "--at", "provider.answered:1")
    reported = craftcore(folder, "crashtest", "invoice:app", "--emit", "invoice", *payload, *false_provider)
    assert (reported.code, "had its effect 2 times under one key" in reported.out) == (1, True), reported.out


def test_random_draw_and_each_feed_read_happen_once(folder):
    feeds = [f"feed.{number}" for number in range(20)]
    task_id = emit(folder, "digest", feeds=feeds)
    run_killed_at(folder, "digest", "step.committed", 11)  # ten feeds are read, in a random order

    run(folder, "digest")

    status, titles = task(folder, task_id)
    assert status == "DONE"
    assert titles == [f"news of {feed}" for feed in lines(folder, "reads.txt")]
    assert sorted(lines(folder, "reads.txt")) == sorted(feeds)


@pytest.fixture(scope="module")
def fetched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[int, str]]:
    """Run a task for each answer of the provider, and return the folder and the tasks by answer."""
    folder = tmp_path_factory.mktemp("fetched")
    save(folder)
    tasks = {status: emit(folder, "fetch", status=status) for status in (200, 404, 429, 500)}
    assert run(folder, "fetch").code == 4
    return folder, tasks


@pytest.mark.parametrize(
    ("status", "settled", "ends", "asked"),
    [
        (200, ("DONE", None), ("DONE", "the page"), 1),
        (404, ("FAILED", "NO_SUCH_PAGE"), ("FAILED", "NO_SUCH_PAGE"), 1),
        (429, ("DEAD", "RATE_LIMIT"), ("FAILED", "RATE_LIMIT"), 2),
        (500, ("DEAD", "INTERNAL_AGENT_ERROR"), ("FAILED", "INTERNAL_AGENT_ERROR"), 2),
    ],
)
def test_exception_type_decides_the_outcome_of_the_attempt(fetched, status, settled, ends, asked):
    folder, tasks = fetched
    assert task(folder, tasks[status]) == ends
    [trigger] = look(folder / "agent.db", "SELECT * FROM triggers WHERE id = :id", id=tasks[status])
    assert (trigger["status"], trigger["error_code"]) == settled
    assert lines(folder, "asked.txt").count(str(status)) == asked


def test_hanging_call_is_cancelled_cleans_up_and_is_retried(folder):
    task_id = emit(folder, "probe", device="lamp")

    run(folder, "probe")

    assert task(folder, task_id) == ("DONE", "lamp is well")
    assert not (folder / "lamp.busy").exists()
    first, *_ = look(folder / "agent.db", "SELECT status, error_code FROM executions ORDER BY seq")
    assert first == {"status": "error", "error_code": "AGENT_TIMEOUT"}


def test_function_in_a_worker_process_returns_its_result(folder):
    task_id = emit(folder, "primes", limit=100)
    check = emit(folder, "check", number=91)

    (folder / "one.toml").write_text("[daemon]\nworker_processes = 1\n")
    run(folder, "primes", CRAFTCORE_CONFIG="one.toml")

    assert task(folder, task_id) == ("DONE", 25)
    [record] = look(folder / "agent.db", "SELECT response_json FROM executions WHERE trigger_id = :id", id=check)
    assert json.loads(record["response_json"])["payload"] is False


def test_inline_functions_return_their_results(folder):
    task_id = emit(folder, "bill", prices=[100, 250])
    double = emit(folder, "double", n=21)

    assert run(folder, "totals").code == 0

    assert task(folder, task_id) == ("DONE", "350 cents")
    [record] = look(folder / "agent.db", "SELECT response_json FROM executions WHERE trigger_id = :id", id=double)
    assert json.loads(record["response_json"])["payload"] == 42


def test_interrupted_wait_keeps_its_signal_while_no_daemon_runs(folder):
    task_id = emit(folder, "trial", user="ada")
    assert "entered: FIRST" in run(folder, "trial").out
    assert task(folder, task_id)[0] == "WAITING"

    assert call_command(folder, "task", "signal", task_id, "paid", '{"cents": 900}').code == 0
    assert "entered: SIGNAL" in run(folder, "trial").out

    assert task(folder, task_id) == ("DONE", "ada paid 900")
    assert lines(folder, "accounts.txt") == ["ada"]


def test_first_of_several_withdraws_the_others(folder):
    decided, dropped = emit(folder, "ship", order="A1"), emit(folder, "ship", order="B2")
    run(folder, "shipping")
    asked = {question["task_id"]: question["id"] for question in call_command(folder, "--json", "inbox", "list").json}
    assert {*asked} == {decided, dropped}

    assert call_command(folder, "inbox", "answer", asked[decided], "express").code == 0
    assert call_command(folder, "task", "signal", dropped, "cancelled").code == 0
    run(folder, "shipping")

    assert task(folder, decided) == ("DONE", "A1 goes out by express mail")
    assert task(folder, dropped) == ("DONE", "B2: cancelled")
    assert call_command(folder, "--json", "inbox", "list").json == []


def test_tools_of_a_model_wait_in_tasks_of_their_own(folder):
    task_id = emit(folder, "plan", city="Rome")
    run(folder, "tools")
    [question] = call_command(folder, "--json", "inbox", "list").json

    assert call_command(folder, "task", "signal", task_id, "guests", "5").code == 0
    run(folder, "tools")
    assert [one["id"] for one in call_command(folder, "--json", "inbox", "list").json] == [question["id"]]
    assert call_command(folder, "inbox", "answer", question["id"], "100").code == 0
    run(folder, "tools")

    assert task(folder, task_id) == ("DONE", "Rome: sunny, for 5, at 100")


@pytest.mark.parametrize(
    "points",
    [
        ("step.committed", "handler.returned"),
        pytest.param(("activity.settled", "settle.committed"), marks=pytest.mark.acceptance),
    ],
    ids=" and ".join,
)
def test_model_is_paid_once_per_message_despite_kills(folder, points):
    """The kill campaigns cover the other points."""
    for number, point in enumerate(points):
        send(folder, f"message {number}")
        run_killed_at(folder, "assistant", point)
        run(folder, "assistant")

    [talk] = look(folder / "agent.db", "SELECT * FROM tasks")
    state = json.loads(talk["state_json"])
    assert (talk["status"], state["messages"]) == ("WAITING", 2)
    assert lines(folder, "calls.txt") == ["1", "3"]
    assert [f"model: {reply}" for reply in lines(folder, "replies.txt")] == state["lines"][1::2]


@pytest.mark.parametrize("point", ["step.committed", "handler.returned"])
def test_message_is_answered_although_its_turn_is_killed(folder, point):
    say = ("emit", "--source", "MESSAGE", "--session", "ada", "--payload")
    ids = []
    for text in ("hello", "and you?"):
        emitted = call_command(folder, "--json", *say, json.dumps({"text": text}))
        ids.append(str(emitted.json["id"]))
    run_killed_at(folder, "desk", point)
    run(folder, "desk")

    with Producer(folder / "agent.db") as producer:
        answers = [producer.handle(id).result(str, timeout=0) for id in ids]
    assert answers == ["1 messages so far", "2 messages so far"]
    assert lines(folder, "asked.txt") == ["hello", "and you?"]


def test_rows_and_their_record_are_written_in_a_single_commit(folder):
    task_id = emit(folder, "reserve", item="lamp", count=3)
    run_killed_at(folder, "stock", "handler.returned")
    run(folder, "stock")
    assert task(folder, task_id) == ("DONE", 7)
    assert look(folder / "agent.db", "SELECT * FROM stock") == [{"item": "lamp", "left_over": 7}]

    too_many = emit(folder, "reserve", item="lamp", count=8)
    assert run(folder, "stock").code == 4

    assert task(folder, too_many) == ("FAILED", "SOLD_OUT")
    assert look(folder / "agent.db", "SELECT * FROM stock") == [{"item": "lamp", "left_over": 7}]


def test_task_begun_with_the_old_version_ends_with_that_version(folder):
    both = PROGRAMS["brief.py"]
    (folder / "brief.py").write_text(both.partition('@app.workflow("brief", version="2.0")')[0])
    old = emit(folder, "brief", city="Rome")
    run(folder, "brief")

    (folder / "brief.py").write_text(both)
    run(folder, "brief")
    new = emit(folder, "brief@2.0", city="Oslo")
    run(folder, "brief")
    for waiting in (old, new):
        assert call_command(folder, "task", "signal", waiting, "style", '"short"').code == 0
    run(folder, "brief")

    assert task(folder, old) == ("DONE", "Rome, the old way, short")
    assert task(folder, new) == ("DONE", "Oslo in metric, short")


APP = """
from craftcore import App
app = App("changes")
"""

FIRST = """
from declared import app
from craftcore import TaskContext

def say(text: str) -> str:
    with open(f"{__name__}.txt", "a") as file:
        file.write(f"{text}\\n")
    return text

@app.workflow(__name__)
async def change(ctx: TaskContext) -> str:
    a = await ctx.step("a", say, "a")
    await ctx.wait_for("go", key="go")
    return a
"""


class Change(NamedTuple):
    """A change of the code, the status and result of a task that waited meanwhile, and the output of its steps."""

    before: str
    after: str
    ends: tuple[str, str]
    output: list[str]


CHANGES = {
    "add_a_step": Change(
        "    return a\n", '    return a + await ctx.step("b", say, "b")\n', ("DONE", "ab"), ["a", "b"]
    ),
    "remove_one": Change('    a = await ctx.step("a", say, "a")\n', '    a = "no step"\n', ("DONE", "no step"), ["a"]),
    "change_it": Change("    return text\n", "    return text.upper()\n", ("DONE", "a"), ["a"]),
    "rename_it": Change('ctx.step("a"', 'ctx.step("renamed"', ("DONE", "a"), ["a", "a"]),
    "other_arguments": Change('say, "a")', 'say, "other")', ("FAILED", "STEP_CONFLICT"), ["a"]),
    "rerun": Change('say, "a")', 'say, "other", on_change="rerun")', ("DONE", "other"), ["a", "other"]),
    "add_a_field": Change("(ctx: TaskContext)", "(ctx: TaskContext, more: int = 0)", ("DONE", "a"), ["a"]),
    "no_workflow": Change("(__name__)", '("another")', ("HELD", "workflow no_workflow is not declared"), ["a"]),
}


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, str]]:
    """Change the module of a waiting task in each way, and return the folder and the tasks by change."""
    folder = tmp_path_factory.mktemp("changed")
    (folder / "declared.py").write_text(APP)
    (folder / "changes.py").write_text(f"import {', '.join(CHANGES)}\nfrom declared import app\n")
    for name in CHANGES:
        (folder / f"{name}.py").write_text(FIRST)
    tasks = {name: emit(folder, name) for name in CHANGES}
    run(folder, "changes")

    for name, change in CHANGES.items():
        assert FIRST.count(change.before) == 1
        assert task(folder, tasks[name])[0] == "WAITING"
        (folder / f"{name}.py").write_text(FIRST.replace(change.before, change.after))
        assert call_command(folder, "task", "signal", tasks[name], "go").code == 0
    run(folder, "changes")
    return folder, tasks


@pytest.mark.parametrize("name", CHANGES)
def test_waiting_task_continues_in_changed_code_as_the_table_says(changed, name):
    folder, tasks = changed
    assert task(folder, tasks[name]) == CHANGES[name].ends
    assert lines(folder, f"{name}.txt") == CHANGES[name].output


def test_wait_without_a_key_is_confused_with_an_inserted_wait(folder):
    """The page warns of this case."""
    (folder / "declared.py").write_text(APP)
    keyless = FIRST.replace(', key="go"', "").replace("    return a\n", '    return await ctx.wait_for("name")\n')
    (folder / "change.py").write_text(keyless)
    task_id = emit(folder, "change")
    run(folder, "change")
    assert call_command(folder, "task", "signal", task_id, "go", '"gone"').code == 0
    run(folder, "change")  # the first wait is over, and the task is in the second

    before = '    await ctx.wait_for("go")\n'
    (folder / "change.py").write_text(keyless.replace(before, '    await ctx.wait_for("new")\n' + before))
    assert call_command(folder, "task", "signal", task_id, "name", '"ada"').code == 0
    run(folder, "change")

    assert task(folder, task_id)[0] == "WAITING", "`new` must take the signal of `go`, and `go` the name"


def test_action_can_be_called_with_a_custom_call(folder):
    program = (
        "import asyncio; from datetime import datetime, UTC; from craftcore import Call; from invoice import send\n"
        'call = Call(key="k", attempt=1, deadline=datetime.now(UTC))\n'
        'print(asyncio.run(send(call, to="ada", file="f")) == call.message_id)'
    )
    with start(["-c", program], cwd=folder, env=environment(), stdout=subprocess.PIPE) as process:
        printed, _ = process.communicate(timeout=PATIENCE)
    assert (process.returncode, printed) == (0, b"True\n")
    assert lines(folder, "outbox.txt") == ["k ada"]


def test_reports_of_a_customer_end_although_a_limit_delays_some(folder):
    for month in range(5):
        emit(folder, "report.make", customer="ada", month=f"2026-0{month + 1}")
    emit(folder, "report.make", customer="bob", month="2026-01")

    run(folder, "reports")

    done = look(folder / "agent.db", "SELECT status, count(*) AS n FROM triggers GROUP BY status")
    assert done == [{"status": "DONE", "n": 6}]
