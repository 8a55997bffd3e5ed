"""The first day of a new user, from `craftcore init` to `kill -9` and a restart."""

from __future__ import annotations

import pytest

from tests.support.processes import PATIENCE, a_daemon, craftcore, until

KEEP_TRACE = """
import os

@app.workflow("note")
async def note(number: int) -> int:
    while number >= 50 and not os.path.exists("go"):  # the first daemon is killed in the middle
        await asyncio.sleep(0.01)
    with open("notes", "a") as file:
        file.write(f"{number}\\n")
    return number
"""

COUNT = 200


def test_newcomer_loses_nothing_from_init_to_kill_9_and_back(tmp_path):
    made = craftcore(tmp_path, "init", "mine")
    assert made.code == 0
    folder = tmp_path / "mine"
    with (folder / "app.py").open("a") as app:
        app.write(KEEP_TRACE)
    notes = folder / "notes"

    def read_notes():
        return [int(line) for line in notes.read_text().splitlines()] if notes.exists() else []

    with a_daemon(folder, "--config", "craftcore.toml", "app:app") as daemon:
        daemon.ready()
        greeted = craftcore(folder, "emit", "greet", "--payload", '{"name": "Ada"}', "--wait", str(PATIENCE))
        assert (greeted.code, greeted.out) == (0, '"Hello, Ada!"\n')
        accepted = [emit_note(folder, number) for number in range(4)]
        accepted += emit_notes(folder, range(4, COUNT))
        until(lambda: len(read_notes()) >= 5)

        daemon.kill()

    before = set(read_notes())
    assert 5 <= len(before) <= 50, "the kill did not hit the middle of the work"
    assert "no daemon runs" in craftcore(folder, "status").out
    (folder / "go").touch()
    emit_note(folder, COUNT)  # while no daemon runs
    with a_daemon(folder, "--config", "craftcore.toml", "app:app") as daemon:
        daemon.ready()
        last = craftcore(
            folder, "--json", "emit", "note", "--payload", f'{{"number": {COUNT + 1}}}', "--wait", str(PATIENCE)
        )
        assert (last.code, last.json["result"]) == (0, COUNT + 1)
        until(lambda: set(read_notes()) == set(range(COUNT + 2)))
    rows = craftcore(folder, "--json", "trigger", "list", "--workflow", "note", "--limit", "1000").json
    assert len(rows) == COUNT + 2 == len({row["id"] for row in rows})
    assert set(accepted) <= {row["id"] for row in rows}
    assert {row["status"] for row in rows} <= {"DONE", "CLAIMED"}  # the last settle may be uncommitted at the exit
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0
    settled = craftcore(folder, "--json", "trigger", "list", "--status", "DONE", "--limit", "1000").json
    assert len(settled) == COUNT + 3
    assert craftcore(folder, "--json", "dead", "list").json == []


@pytest.mark.acceptance
def test_first_app_action_does_as_its_comment_says(tmp_path):
    """The kill hits the payment; after the restart, the inbox has a question about it."""
    folder = tmp_path / "mine"
    assert craftcore(tmp_path, "init", "mine").code == 0
    text = (folder / "app.py").read_text()
    assert "asyncio.sleep(10)" in text
    (folder / "app.py").write_text(
        text.replace("asyncio.sleep(10)", "asyncio.sleep(3600)")
    )  # it does not return before the kill
    with a_daemon(folder, "--config", "craftcore.toml", "app:app") as daemon:
        daemon.ready()
        task_id = craftcore(folder, "--json", "emit", "buy", "--payload", '{"amount": 7}').json["id"]
        until(lambda: craftcore(folder, "--json", "activity", "list").json, "the intent to be on disk")
        daemon.kill()
    with a_daemon(folder, "--config", "craftcore.toml", "app:app") as daemon:
        daemon.ready()
        until(lambda: craftcore(folder, "--json", "inbox", "list").json, "the question")
        [question] = craftcore(folder, "--json", "inbox", "list").json
        assert (question["task_id"], question["activity_key"]) == (task_id, f"activity:{task_id}:1.1")
        craftcore(folder, "inbox", "answer", question["id"], "happened", "--reference", "pay-7")
        until(lambda: craftcore(folder, "--json", "task", "show", task_id).json["status"] == "DONE", "the task to end")
    assert craftcore(folder, "--json", "task", "show", task_id).json["result"] == "pay-7"


def emit_note(folder, number):
    return craftcore(folder, "--json", "emit", "note", "--payload", f'{{"number": {number}}}').json["id"]


def emit_notes(folder, numbers):
    """Emit notes from a user program, which is faster than the command line."""
    from craftcore import Producer

    with Producer(folder / "agent.db") as producer:
        return [producer.emit("note", {"number": number}).id for number in numbers]
