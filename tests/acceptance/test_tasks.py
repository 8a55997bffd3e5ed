"""Tasks that wait for a person or a signal, through the command line and real daemons that are killed meanwhile."""

from __future__ import annotations

import sys

import pytest

from craftcore import Producer
from tests.support.processes import PATIENCE, a_daemon, a_program, craftcore, read_trace, until

APP = """
from craftcore import App, TaskContext

app = App("story")

def trace(line):
    with open("trace", "a") as file:
        file.write(line + "\\n")

def write(city):
    trace(f"write {city}")
    return f"A brief about {city}"

def send(text):
    trace(f"send {text}")

@app.workflow("brief")
async def brief(ctx: TaskContext, city: str) -> str:
    text = await ctx.step("write", write, city)
    answer = await ctx.ask("Send it?", options=["send", "hold"])
    if answer == "send":
        await ctx.step("send", send, text)
    return answer

@app.workflow("deploy")
async def deploy(ctx: TaskContext) -> str:
    return (await ctx.wait_for("approved"))["by"]
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def emit(folder, workflow, payload="{}"):
    emitted = craftcore(folder, "--json", "emit", workflow, "--payload", payload)
    assert emitted.code == 0, emitted.err
    return emitted.json["id"]


def show(folder, task_id):
    shown = craftcore(folder, "--json", "task", "show", task_id)
    return shown.json if shown.code == 0 else {"status": "not begun"}


def wait_for_status(folder, task_id, status):
    return until(lambda: show(folder, task_id)["status"] == status, f"task {task_id} to be {status}")


def wait_for_question(folder):
    """Wait for an open question, and return the only one."""
    [question] = until(lambda: craftcore(folder, "--json", "inbox", "list").json, "a question")
    return question


@pytest.mark.acceptance
def test_question_is_answered_from_the_inbox_and_the_task_continues(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        task_id = emit(folder, "brief", '{"city": "Rome"}')
        question = wait_for_question(folder)
        assert (question["task_id"], question["question"], question["options"]) == (
            task_id,
            "Send it?",
            ["send", "hold"],
        )
        assert "tasks     running 0, waiting 1, questions 1" in craftcore(folder, "status").out

        answered = craftcore(folder, "inbox", "answer", question["id"], "send")
        assert (answered.code, answered.err) == (0, "")
        assert answered.out == f'answered with "send"; task {task_id} of brief goes on\n'
        wait_for_status(folder, task_id, "DONE")

    assert show(folder, task_id)["result"] == "send"
    assert read_trace(folder) == ["write Rome", "send A brief about Rome"]
    events = craftcore(folder, "task", "events", task_id).out
    assert 'ANSWER: ask#1 -> "send" by answer; 1 completed before' in events
    late = craftcore(folder, "inbox", "answer", question["id"], "hold")
    assert (late.code, 'with "send"; nothing was written' in late.err) == (1, True)


@pytest.mark.acceptance
def test_signals_come_from_other_processes(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        from_command, from_program = emit(folder, "deploy"), emit(folder, "deploy")
        wait_for_status(folder, from_command, "WAITING")
        wait_for_status(folder, from_program, "WAITING")

        signalled = craftcore(folder, "task", "signal", from_command, "approved", '{"by": "Ada"}')
        assert signalled.out == f"{from_command} waited for approved, and goes on\n"
        with Producer(folder / "agent.db") as producer:
            assert producer.signal(from_program, "approved", {"by": "Grace"}, sent_by="a test")

        wait_for_status(folder, from_command, "DONE")
        wait_for_status(folder, from_program, "DONE")

    assert [show(folder, task_id)["result"] for task_id in (from_command, from_program)] == ["Ada", "Grace"]


def test_killed_daemon_with_a_waiting_task_loses_nothing_and_an_answer_ends_the_task(folder):
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        task_id = emit(folder, "brief", '{"city": "Rome"}')
        question = wait_for_question(folder)
        daemon.kill()

    assert "no daemon runs" in craftcore(folder, "task", "show", task_id).out
    assert craftcore(folder, "inbox", "answer", question["id"], "send").out.endswith(
        "no daemon runs; it goes on with the next one: craftcore --db agent.db run MODULE:APP\n"
    )
    for _ in range(2):
        with a_daemon(folder, "app:app") as daemon:
            daemon.ready()
            wait_for_status(folder, task_id, "DONE")
            daemon.kill()

    assert read_trace(folder) == ["write Rome", "send A brief about Rome"]
    assert show(folder, task_id)["result"] == "send"
    rows = craftcore(folder, "--json", "trigger", "list").json
    assert [(row["status"], row["reason"]) for row in rows] == [("DONE", "succeeded"), ("DONE", "suspended: ask#1")]


@pytest.mark.acceptance
def test_emit_wait_survives_the_kill_of_a_daemon(folder):
    options = ("--payload", '{"city": "Oslo"}', "--wait")
    command = [sys.executable, "-m", "craftcore", "--db", "agent.db", "emit", "brief", *options]
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0
    with a_program(command, folder) as waiting:
        with a_daemon(folder, "app:app") as daemon:
            daemon.ready()
            question = wait_for_question(folder)
            daemon.kill()
        with a_daemon(folder, "app:app") as daemon:
            daemon.ready()
            assert wait_for_question(folder)["id"] == question["id"]
            assert craftcore(folder, "inbox", "answer", question["id"], "hold").code == 0
            output, _ = waiting.communicate(timeout=PATIENCE)

    assert (waiting.returncode, output) == (0, b'"hold"\n')
    assert read_trace(folder) == ["write Oslo"]
