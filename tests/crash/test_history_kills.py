"""A daemon is killed at each commit of a conversation: every message is stored once, and none is missing."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.support.processes import PATIENCE, craftcore, environment
from tests.support.warm_parent import start

APP = """
import random
from craftcore import App, TaskContext

app = App("chat")

@app.workflow("chat", sources=["MESSAGE"])
async def chat(ctx: TaskContext, text: str) -> int:
    await ctx.history.append({"user": text}, {"noise": random.random()})
    window = await ctx.history.last(50)
    seen = await ctx.step("model", count, [one for one in window if "noise" not in one])
    await ctx.sleep(0.01)
    await ctx.history.append({"model": seen})
    return seen

def count(messages: list) -> int:
    return len(messages)
"""

KILLED = """
import sys
from craftcore.cli.main import main
from craftcore.failpoints import Failpoint, arm, kill_process

point, at_pass, *sys.argv[1:] = sys.argv[1:]
arm(Failpoint(point), kill_process, at_pass=int(at_pass))
sys.exit(main())
"""


def run_killed(folder: Path, point: str, at_pass: int) -> int | None:
    """Run the app until it is idle or killed; its exit code."""
    command = ["killed.py", point, str(at_pass), "--db", "agent.db", "run", "app:app", "--until-idle"]
    with start(command, cwd=folder, env=environment(), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        process.communicate(timeout=2 * PATIENCE)
    return process.returncode


def read_conversation(folder: Path) -> list[Any]:
    listed = craftcore(folder, "--json", "session", "history", "ada").json
    return [one["message"] for one in listed if "noise" not in one["message"]]


@pytest.mark.parametrize("point", ["writer.flushed", "step.ran", "handler.returned", "turn.suspended"])
def test_conversation_has_each_message_once_after_a_kill(tmp_path, point):
    (tmp_path / "app.py").write_text(APP)
    (tmp_path / "killed.py").write_text(KILLED)
    said: list[Any] = []
    for number in range(1, 6 if point == "writer.flushed" else 3):
        message = {"text": f"m{number}"}
        emitted = ("emit", "--source", "MESSAGE", "--session", "ada", "--payload", json.dumps(message))
        assert craftcore(tmp_path, *emitted).code == 0
        assert run_killed(tmp_path, point, number if point == "writer.flushed" else 1) == -signal.SIGKILL
        assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0

        said += [{"user": f"m{number}"}, {"model": len(said) + 1}]
        assert read_conversation(tmp_path) == said
