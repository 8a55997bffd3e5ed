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
    """Emit a trigger and return the id of the record of its first attempt."""
    emitted = craftcore(folder, "--json", "emit", workflow, "--payload", json.dumps(payload))
    assert emitted.code == 0, emitted.err
    return f"exec-{emitted.json['id']}.1"


def run_command(folder, command) -> Result:
    """Run a command that craftcore printed."""
    program, *words = shlex.split(command)
    assert program == "craftcore"
    return craftcore(folder, *words)


def list_statuses(folder, *filters):
    return {row["id"]: row["status"] for row in craftcore(folder, "--json", "inspect", "--list", *filters).json}


def read_recommendation(folder, execution_id):
    """Return the state of an attempt and the recommended commands."""
    recommendation = craftcore(folder, "inspect", execution_id).json["recommendation"]
    return recommendation["state"], recommendation["commands"]


def test_crash_at_night_is_found_decided_and_audited(folder):
    # Night: one workflow ends, one waits for its retry, and three run when the daemon is killed.
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        summary, weather = emit(folder, "summary", topic="owls"), emit(folder, "weather")
        wanted, unwanted = emit(folder, "report", of="May"), emit(folder, "report", of="June")
        bill = emit(folder, "bill", amount=7)
        until(lambda: len(read_trace(folder)) == 3, "three workflows to run")
        until(lambda: list_statuses(folder, "--status", "success", "--workflow", "summary"), "the summary")
        until(lambda: list_statuses(folder, "--error-code", "RATE_LIMIT"), "the weather")
        daemon.kill()

    # Morning: the status names the interrupted attempts, and each record shows its last event.
    status = craftcore(folder, "status").out
    see = "craftcore --db agent.db inspect --list --status incomplete"
    assert f"cut off   3 of those due ran when the daemon ended (see: {see})" in status
    assert set(list_statuses(folder, "--status", "incomplete")) == {wanted, unwanted, bill}
    assert craftcore(folder, "inspect", wanted).json["last_event"]["type"] == "AGENT_ATTEMPT_START"
    assert craftcore(folder, "inspect", bill).json["last_event"]["action"] == "pay"

    # The summary ended before the kill with its fallback; its record replays without another run.
    assert read_recommendation(folder, summary) == ("complete", [f"craftcore --db agent.db replay {summary}"])
    assert run_command(folder, read_recommendation(folder, summary)[1][0]).json["payload"] == "owls, in short"
    assert craftcore(folder, "inspect", summary).json["routing"]["decision"]["agent"] == "summary.small"

    # Both reports would run again; a person skips the second one.
    state, [_, skip] = read_recommendation(folder, unwanted)
    assert (state, skip) == ("interrupted", f"craftcore --db agent.db execution skip {unwanted} --reason TEXT")
    assert run_command(folder, skip.replace("TEXT", "'June is over'")).code == 0

    # The outcome of the payment is unknown, so a retry is refused.
    assert read_recommendation(folder, bill)[0] == "in_doubt"
    refused = craftcore(folder, "execution", "retry", bill, "--reason", "it was cut off")
    assert (refused.code, "Nothing was written" in refused.err) == (1, True)

    # The next daemon puts the payment in doubt; a person checks the bank and resolves the doubt.
    (folder / "morning").touch()
    with a_daemon(folder, "app:app") as daemon:
        daemon.ready()
        until(lambda: craftcore(folder, "--json", "inbox", "list").json, "the question about the payment")
        [doubt] = craftcore(folder, "--json", "activity", "list", "--status", "UNKNOWN").json
        paid = craftcore(
            folder, "activity", "resolve", doubt["key"], "--happened", "tx-1", "--note", "it is in the bank"
        )
        assert paid.code == 0, paid.err

        # The weather provider recovers long before the requested retry time.
        state, [retry, _] = read_recommendation(folder, weather)
        assert state == "pending"
        assert run_command(folder, retry.replace("TEXT", "'it is back'")).code == 0

        def successes():
            return sorted(row["workflow"] for row in craftcore(folder, "--json", *succeeded).json)

        succeeded = ("inspect", "--list", "--status", "success")
        until(lambda: successes() == ["bill", "report", "summary", "weather"], "all workflows to end")

    # The outcome: one payment, no second run of the skipped report, and an audit row with a reason per decision.
    assert sorted(read_trace(folder)) == ["pay 7", "report June", "report May", "report May"]
    assert read_recommendation(folder, wanted)[0] == "tried_again"
    assert read_recommendation(folder, unwanted)[0] == "over"
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

    connection = apsw.Connection(str(folder / "agent.db"))
    forgery = f"UPDATE executions SET response_json = replace(response_json, 'owls', 'cats') WHERE id = '{summary}'"
    with pytest.raises(apsw.ConstraintError, match="it is never changed"):
        connection.execute(forgery)
    connection.execute("DROP TRIGGER executions_are_closed")
    connection.execute(forgery)
    connection.close()

    verified = craftcore(folder, "verify", "--against", "head.json")
    assert verified.code == 1
    assert f"the first bad record: {summary} at place 1" in verified.out
    assert "a backup from before has it as it was written" in verified.out
    checked = craftcore(folder, "db", "check")
    assert (checked.code, "the trigger executions_are_closed is missing" in checked.out) == (1, True)
    assert craftcore(folder, "replay", summary).code == 11
    assert read_recommendation(folder, summary)[1] == [f"craftcore --db agent.db verify {summary}"]
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
    assert sorted(path.name for path in elsewhere.iterdir()) == ["first.json", "second.json"], "a database was created"
    (elsewhere / "first.json").write_text((elsewhere / "first.json").read_text().replace("owls, in", "cats, in"))
    edited = craftcore(elsewhere, "replay", "first.json")
    assert (edited.code, "record_corrupted" in edited.err) == (11, True)
