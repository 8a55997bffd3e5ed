"""The audit of records: after a crash at night, after a record was changed, and on another machine."""

from __future__ import annotations

import json
import shlex
import shutil

import apsw
import pytest

from tests.support.processes import Result, a_daemon, craftcore, read_trace, until

APP = """
import asyncio, os
from craftcore import App, Call, Retry, TaskContext

app = App("night")

def trace(line):
    with open("trace", "a") as file:
        file.write(line + "\\n")

async def until_morning():
    while not os.path.exists("morning"):
        await asyncio.sleep(0.01)

@app.workflow("summary", fallback=["summary.small"])
async def summary(topic: str) -> str:
    raise Retry("the model is overloaded", code="AGENT_UNAVAILABLE")

@app.workflow("summary.small")
async def small(topic: str) -> str:
    return f"{topic}, in short"

@app.workflow("weather")
async def weather() -> str:
    if not os.path.exists("morning"):
        raise Retry("slow down", code="RATE_LIMIT", after=86_400)
    return "sunny"

@app.workflow("report")
async def report(of: str) -> str:
    trace(f"report {of}")
    await until_morning()
    return f"report of {of}"

@app.action("pay", irreversible=True, timeout=3600)
async def pay(call: Call, *, amount: int) -> str:
    trace(f"pay {amount}")
    await until_morning()
    return "never returned"

@app.workflow("bill")
async def bill(ctx: TaskContext, amount: int) -> str:
    return await ctx.act(pay, amount=amount)
"""


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    return tmp_path


def emit(folder, workflow, **payload):
    """The id of the record that the first attempt will have."""
    emitted = craftcore(folder, "--json", "emit", workflow, "--payload", json.dumps(payload))
    assert emitted.code == 0, emitted.err
    return f"exec-{emitted.json['id']}.1"


def paste(folder, command) -> Result:
    """What a person does who is told a command."""
    program, *words = shlex.split(command)
    assert program == "craftcore"
    return craftcore(folder, *words)


def listed(folder, *filters):
    return {row["id"]: row["status"] for row in craftcore(folder, "--json", "inspect", "--list", *filters).json}


def advice(folder, execution_id):
    """Where an attempt stands, and the commands for that."""
    told = craftcore(folder, "inspect", execution_id).json["recommendation"]
    return told["state"], told["commands"]


def test_crash_at_night_is_found_decided_and_accounted_for(folder):
    # At night: some of it ends, some waits for better times, three are in the middle. Then the machine goes down.
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        summary, weather = emit(folder, "summary", topic="owls"), emit(folder, "weather")
        wanted, unwanted = emit(folder, "report", of="May"), emit(folder, "report", of="June")
        bill = emit(folder, "bill", amount=7)
        until(lambda: len(read_trace(folder)) == 3, "three to be in the middle")
        until(lambda: listed(folder, "--status", "success", "--workflow", "summary"), "the summary")
        until(lambda: listed(folder, "--error-code", "RATE_LIMIT"), "the weather")
        daemon.kill()

    # In the morning: what was cut off, and how far had it come?
    status = craftcore(folder, "status").out
    see = "craftcore --db agent.db inspect --list --status incomplete"
    assert f"cut off   3 of those due ran when the daemon ended (see: {see})" in status
    assert set(listed(folder, "--status", "incomplete")) == {wanted, unwanted, bill}
    assert craftcore(folder, "inspect", wanted).json["last_event"]["type"] == "AGENT_ATTEMPT_START"
    assert craftcore(folder, "inspect", bill).json["last_event"]["action"] == "pay"

    # What ended before is on record, and nothing has to run again: the summary had fallen back.
    assert advice(folder, summary) == ("complete", [f"craftcore --db agent.db replay {summary}"])
    assert paste(folder, advice(folder, summary)[1][0]).json["payload"] == "owls, in short"
    assert craftcore(folder, "inspect", summary).json["routing"]["decision"]["agent"] == "summary.small"

    # The reports run again by themselves, which nobody needs of the second one.
    state, [_, skip] = advice(folder, unwanted)
    assert (state, skip) == ("interrupted", f"craftcore --db agent.db execution skip {unwanted} --reason TEXT")
    assert paste(folder, skip.replace("TEXT", "'June is over'")).code == 0

    # Of the payment nobody knows, so nobody may try it again unasked.
    assert advice(folder, bill)[0] == "in_doubt"
    refused = craftcore(folder, "execution", "retry", bill, "--reason", "it was cut off")
    assert (refused.code, "Nothing was written" in refused.err) == (1, True)

    # The daemon comes back. It puts the payment in doubt; a person looks at the bank, and says what is there.
    (folder / "morning").touch()
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        until(lambda: craftcore(folder, "--json", "inbox", "list").json, "the question about the payment")
        [doubt] = craftcore(folder, "--json", "activity", "list", "--status", "UNKNOWN").json
        paid = craftcore(
            folder, "activity", "resolve", doubt["key"], "--happened", "tx-1", "--note", "it is in the bank"
        )
        assert paid.code == 0, paid.err

        # The provider of the weather has recovered long before it asked to be tried again.
        state, [retry, _] = advice(folder, weather)
        assert state == "pending"
        assert paste(folder, retry.replace("TEXT", "'it is back'")).code == 0

        def successes():
            return sorted(row["workflow"] for row in craftcore(folder, "--json", *succeeded).json)

        succeeded = ("inspect", "--list", "--status", "success")
        until(lambda: successes() == ["bill", "report", "summary", "weather"], "all of it to end")

    # What became of it: no payment twice, no report that nobody wanted, and every decision with its reason.
    assert sorted(read_trace(folder)) == ["pay 7", "report June", "report May", "report May"]
    assert advice(folder, wanted)[0] == "tried_again"
    assert advice(folder, unwanted)[0] == "over"
    assert [(row["action"], row["reason"]) for row in craftcore(folder, "--json", "audit").json] == [
        ("execution retry", "it is back"),
        ("activity resolve", "it is in the bank"),
        ("execution skip", "June is over"),
    ]
    stats = craftcore(folder, "--json", "inspect", "--stats").json
    assert stats["by_status"] == {"success": 4, "error": 1, "incomplete": 3, "suspended": 1}
    assert stats["by_error_code"] == {"RATE_LIMIT": 1}
    verified = craftcore(folder, "verify")
    assert (verified.code, verified.out.splitlines()[-1]) == (0, "all of it is what was written")


@pytest.mark.acceptance
def test_changed_record_is_named_and_a_backup_has_the_original(folder):
    summary, other = emit(folder, "summary", topic="owls"), emit(folder, "summary", topic="elks")
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0
    assert craftcore(folder, "verify", "--write-head", "head.json").code == 0
    shutil.copy(folder / "agent.db", folder / "backup.db")

    somebody = apsw.Connection(str(folder / "agent.db"))
    forgery = f"UPDATE executions SET response_json = replace(response_json, 'owls', 'cats') WHERE id = '{summary}'"
    with pytest.raises(apsw.ConstraintError, match="it is never changed"):
        somebody.execute(forgery)
    somebody.execute("DROP TRIGGER executions_are_closed")
    somebody.execute(forgery)
    somebody.close()

    verified = craftcore(folder, "verify", "--against", "head.json")
    assert verified.code == 1
    assert f"the first bad record: {summary} at place 1" in verified.out
    assert "a backup from before has it as it was written" in verified.out
    checked = craftcore(folder, "db", "check")
    assert (checked.code, "the trigger executions_are_closed is missing" in checked.out) == (1, True)
    assert craftcore(folder, "replay", summary).code == 11
    assert advice(folder, summary)[1] == [f"craftcore --db agent.db verify {summary}"]
    assert craftcore(folder, "replay", other).json["payload"] == "elks, in short"

    assert craftcore(folder, "--db", "backup.db", "export", summary, "-o", "was.json").code == 0
    found = craftcore(folder, "diff", "was.json", summary)
    assert found.code == 1
    [changed] = [line.split("  ") for line in found.out.splitlines() if line.startswith("response.payload")]
    assert [cell.strip() for cell in changed if cell] == ["response.payload", "owls, in short", "cats, in short"]


@pytest.mark.acceptance
def test_record_is_exported_and_replayed_and_compared_on_another_machine(folder, tmp_path_factory):
    first, second = emit(folder, "summary", topic="owls"), emit(folder, "summary", topic="elks")
    assert craftcore(folder, "run", "app:app", "--until-idle").code == 0
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    for name, execution_id in (("first.json", first), ("second.json", second)):
        assert craftcore(folder, "export", execution_id, "-o", str(elsewhere / name)).code == 0

    replayed = craftcore(elsewhere, "replay", "first.json")
    differing = craftcore(elsewhere, "--json", "diff", "first.json", "second.json")

    assert (replayed.code, replayed.json["payload"]) == (0, "owls, in short")
    assert (replayed.json["from_replay"], replayed.json["original_execution_id"]) == (True, first)
    assert differing.code == 1
    paths = [found["path"] for found in differing.json["differences"] if not found["own"]]
    assert paths == ["response.payload", "envelope.payload.topic"]
    assert sorted(path.name for path in elsewhere.iterdir()) == ["first.json", "second.json"], "and no database"
    (elsewhere / "first.json").write_text((elsewhere / "first.json").read_text().replace("owls, in", "cats, in"))
    edited = craftcore(elsewhere, "replay", "first.json")
    assert (edited.code, "record_corrupted" in edited.err) == (11, True)
