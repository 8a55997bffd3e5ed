"""The commands on tasks of a cluster, with a worker that is started and killed meanwhile."""

from __future__ import annotations

import asyncio
import json
import os
import time
from dataclasses import replace
from typing import Any

import pytest

from craftcore.cli import main
from craftcore.temporal.cluster_connection import connect
from tests.support.processes import PATIENCE
from tests.temporal.command_app import QUEUE
from tests.temporal.task_client import TaskClient
from tests.temporal.worker_processes import Workers, lines

NO_TASK = "01a1fdfa-4600-7008-9f39-0b2018072e8c"


class Commands:
    """A runner of commands on one cluster."""

    def __init__(self, capsys: pytest.CaptureFixture[str], cluster: Any) -> None:
        self._capsys = capsys
        self.cluster = cluster

    def run(self, *words: str) -> tuple[int, str, str]:
        code = main.main(["temporal", *words, "--address", self.cluster.address])
        captured = self._capsys.readouterr()
        return code, captured.out, captured.err

    def read(self, *words: str) -> Any:
        code, out, err = self.run(*words, "--json")
        assert code == 0, (words, out, err)
        return json.loads(out)

    def wait_for(self, task: str, status: str, reason: str = "") -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while True:
            shown: dict[str, Any] = self.read("task", "show", task)
            if shown["status"] == status and reason in (shown["reason"] or ""):
                return shown
            assert time.monotonic() < until, shown
            time.sleep(0.1)

    def read_listed(self, *words: str) -> list[dict[str, Any]]:
        """Return a list once it is not empty, because the lists of a cluster lag."""
        until = time.monotonic() + PATIENCE
        while not (found := self.read(*words)):
            assert time.monotonic() < until, words
            time.sleep(0.1)
        return list(found)

    def wait_listed(self, id: str, *words: str) -> None:
        """Wait until a list has this id."""
        until = time.monotonic() + PATIENCE
        while id not in [one["id"] for one in self.read(*words)]:
            assert time.monotonic() < until, words
            time.sleep(0.1)


@pytest.fixture
def commands(capsys: pytest.CaptureFixture[str], cluster: Any) -> Commands:
    return Commands(capsys, cluster)


def emit(cluster: Any, what: str, **options: Any) -> str:
    async def run() -> str:
        settings = replace(cluster, task_queue=QUEUE)
        return await TaskClient(await connect(settings), None, settings).emit("order", {"what": what}, **options)

    return asyncio.run(run())


@pytest.mark.cluster
def test_order_is_answered_decided_signalled_and_retried(commands, cluster, tmp_path, monkeypatch):
    task = emit(cluster, "lamp", dedup_key="lamp@1")
    assert task.startswith("k:lamp@1@")
    shown = commands.read("task", "show", "k:lamp@1")
    assert (shown["id"], shown["status"], shown["reason"]) == (task, "RUNNING", "waits for a worker")
    shown = commands.read("trigger", "show", task)
    assert (shown["id"], shown["status"], shown["attempts"], shown["dedup_key"]) == (task, "PENDING", 0, "lamp@1")
    assert (shown["source"], shown["workflow"], shown["payload"]) == ("IMMEDIATE", "order", {"what": "lamp"})
    assert shown["due_at"] <= shown["created_at"]
    commands.wait_listed("k:lamp@1", "trigger", "list", "--status", "pending", "--workflow", "order")
    assert commands.run("replay", task)[0] == 10
    workers = Workers("tests.temporal.command_app", [cluster.address], tmp_path, count=1)
    try:
        shown = commands.wait_for(task, "WAITING")
        [question] = shown["questions"]
        assert (question["question"], question["options"]) == ("Send the lamp?", ["send", "hold"])
        assert question in commands.read_listed("inbox", "list")
        page = commands.run("inbox", "list")[1]
        answer = f"temporal inbox answer --address {cluster.address} {question['id']} send"
        assert answer in page

        assert commands.run("inbox", "answer", question["id"], "never")[0] == 64
        workers.close()
        monkeypatch.setattr("craftcore.temporal.task_operations.ANSWER_SECONDS", 1.0)
        code, _, err = commands.run("inbox", "answer", question["id"], "send")
        assert code == 75
        assert "may be applied later" in err
        monkeypatch.undo()
        workers = Workers("tests.temporal.command_app", [cluster.address], tmp_path, count=1)
        code, err, until = 75, "", time.monotonic() + PATIENCE
        while code == 75 and time.monotonic() < until:  # the worker starts
            code, _, err = commands.run("inbox", "answer", question["id"], "send", "--note", "in stock")
        assert code == 0 or "was answered" in err
        code, _, err = commands.run("inbox", "answer", question["id"], "hold")
        assert code == 1
        assert "with 'send'" in err

        shown = commands.wait_for(task, "WAITING", "activity")
        [doubt] = [one for one in commands.read_listed("activity", "list") if one["task_id"] == task]
        assert (doubt["action"], doubt["status"]) == ("send", "UNKNOWN")
        code, out, _ = commands.run("activity", "show", doubt["key"])
        assert code == 0
        assert f"{doubt['key']} --give-up" in out
        done = commands.read("activity", "resolve", doubt["key"], "--happened", "ref-9", "--note", "seen")
        assert (done["status"], done["provider_ref"]) == ("DONE", "ref-9")
        assert commands.run("activity", "resolve", doubt["key"], "--resend")[0] == 1

        commands.wait_for(task, "WAITING", "wait_for")
        assert commands.read("task", "signal", task, "paid", '"cash"')["waited"] is True
        shown = commands.wait_for(task, "FAILED")
        assert (shown["error_code"], shown["questions"]) == ("INTERNAL_AGENT_ERROR", [])
        assert commands.run("replay", task)[0] == 0
        assert commands.run("task", "signal", task, "paid")[0] == 1
        shown = commands.read("trigger", "show", task)
        assert (shown["status"], shown["error_code"], shown["attempts"]) == ("DEAD", "INTERNAL_AGENT_ERROR", 1)
        commands.wait_listed("k:lamp@1", "trigger", "list", "--status", "dead")
        assert commands.run("trigger", "cancel", task)[0] == 1
        assert commands.run("trigger", "show", task)[0] == 0
        workers.close()
        (tmp_path / "fixed").touch()
        code, out, _ = commands.run("task", "retry", task, "--reason", "paper is there")
        assert (code, out) == (0, f"{task} goes on at turn 1\n")
        commands.wait_listed("k:lamp@1", "trigger", "list", "--status", "pending")
        workers = Workers("tests.temporal.command_app", [cluster.address], tmp_path, count=1)
        shown = commands.wait_for(task, "DONE")
        assert shown["result"] == ["send", "ref-9", "cash"]
        assert commands.run("trigger", "requeue", task)[0] == 1
    finally:
        workers.close()

    assert lines(tmp_path / "priced") == ["lamp"]
    assert len(lines(tmp_path / "sent")) == 1
    events = [one["type"] for one in commands.read("task", "events", task)]
    for type in ("STEP_COMPLETED", "TURN_SUSPENDED", "ACTIVITY_INTENT", "ACTIVITY_UNKNOWN", "TASK_RETRY"):
        assert type in events
    assert len(commands.read("task", "events", task, "--limit", "3")) == 3
    audit = commands.read("audit", task)
    assert [one["action"] for one in audit] == ["task retry", "task signal", "activity resolve", "inbox answer"]
    assert audit[0]["reason"] == "paper is there"
    assert all(f"uid {os.getuid()}" in one["by"] for one in audit)
    replayed = commands.read("replay", task)
    assert (replayed["status"], replayed["payload"]) == ("success", ["send", "ref-9", "cash"])
    record = commands.read("inspect", f"exec-{task}.1", "--events", "--envelope")
    assert (record["status"], record["replayable_reason"]) == ("suspended", "execution_incomplete")
    assert record["envelope"]["payload"] == {"what": "lamp"}
    assert commands.run("replay", f"exec-{task}.1")[0] == 11
    for view in ("show", "events"):
        assert commands.run("task", view, task)[0] == 0
    assert commands.run("audit", task)[0] == 0


def test_task_is_cancelled_and_listed(commands, cluster, tmp_path):
    task = emit(cluster, "chair", session_id="chairs")
    with_worker = Workers("tests.temporal.command_app", [cluster.address], tmp_path, count=1)
    try:
        commands.wait_for(task, "WAITING")
        assert [one["id"] for one in commands.read_listed("task", "list", "--status", "waiting", "--limit", "1")] == [
            task
        ]
        shown = commands.read("trigger", "show", task)
        assert (shown["status"], shown["session_id"]) == ("WAITING", "chairs")
        code, out, _ = commands.run("trigger", "cancel", task[:30], "--reason", "wrong colour")
        assert (code, out) == (0, f"{task}: asked to cancel; a worker ends it\n")
        commands.wait_for(task, "CANCELLED")
    finally:
        with_worker.close()
    assert commands.run("task", "cancel", task)[0] == 1
    assert [one["reason"] for one in commands.read("audit", task)] == ["wrong colour"]
    listed = commands.read_listed("task", "list", "--status", "cancelled", "--workflow", "order")
    assert task in [one["id"] for one in listed]


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["task", "show", NO_TASK], 10),
        (["task", "cancel", NO_TASK], 10),
        (["task", "list", "--status", "odd"], 12),
        (["trigger", "show", NO_TASK], 10),
        (["trigger", "list", "--status", "failed"], 12),
        (["inbox", "answer", f"{NO_TASK}.1", "yes"], 10),
        (["inbox", "answer", NO_TASK, "yes"], 10),
        (["inbox", "answer", "", "yes"], 10),
        (["activity", "show", f"activity:{NO_TASK}:1.1"], 10),
        (["inspect", f"exec-{NO_TASK}.1"], 10),
        (["audit", NO_TASK], 10),
    ],
    ids=str,
)
def test_command_without_its_subject_is_refused_in_a_line(commands, words, code):
    found, _, err = commands.run(*words)
    assert found == code
    assert len(err.splitlines()) == 1
