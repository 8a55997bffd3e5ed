"""The two chats of docs/how-to/choose-a-chat-design.md run as the page says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.code_blocks import PAGES
from tests.support.processes import craftcore

PAGE = PAGES["docs/how-to/choose-a-chat-design.md"]
PROGRAMS = dict(re.findall(r"^```python\n# (\w+)\.py\n(.*?)^```", PAGE, re.M | re.S))


def history(folder: Path) -> list[Any]:
    listed = craftcore(folder, "--json", "session", "history", "ada").json
    return [one["message"] for one in listed]


@pytest.mark.parametrize(
    ("name", "answers"),
    [
        ("each_message", ["answer 1 to hello", "answer 2 to again"]),
        ("whole_session", ["an answer to hello", "an answer to again"]),
    ],
)
def test_chat_of_the_page_answers_each_message(tmp_path, name, answers):
    (tmp_path / f"{name}.py").write_text(PROGRAMS[name], encoding="utf-8")
    for text in ("hello", "again"):
        message = ("emit", "--source", "MESSAGE", "--session", "ada", "--payload", json.dumps({"text": text}))
        assert craftcore(tmp_path, *message).code == 0
        ended = craftcore(tmp_path, "run", f"{name}:app", "--until-idle")
        assert ended.code == 0, ended.err

    assert history(tmp_path) == [{"user": "hello"}, {"model": answers[0]}, {"user": "again"}, {"model": answers[1]}]
    tasks = craftcore(tmp_path, "--json", "task", "list").json
    assert [task["status"] for task in tasks] == (["DONE"] * 2 if name == "each_message" else ["WAITING"])


def test_programs_of_the_page_all_run_here():
    assert sorted(PROGRAMS) == ["each_message", "whole_session"]
