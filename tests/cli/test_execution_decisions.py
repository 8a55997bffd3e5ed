"""`craftcore execution retry` and `skip`: an operator's decision about an attempt that failed or has no outcome."""

from __future__ import annotations

import os
import pwd
import signal

import pytest

from craftcore.audit.store import list_rows
from craftcore.config import Config
from craftcore.daemon.lock import DaemonLock
from craftcore.services import Services
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Released, Snoozed, Succeeded
from tests.support.attempts import begin, boot, end, start_due
from tests.support.fake_payments import LOST, Bank
from tests.support.idle_database import HOUR, a_task
from tests.support.processes import APP, a_daemon, craftcore, read_trace, until
from tests.support.trigger_steps import BROKEN, HOPELESS, claim_one, look

ME = pwd.getpwuid(os.getuid()).pw_name
WHY = ("--reason", "ada looked")


def a_daemons_lock(core):
    return DaemonLock.acquire(core.database.path, pid=os.getpid(), host="here", now=core.clock.now())


def logged(core):
    return core.rows("SELECT action, subject, reason, name FROM audit_log ORDER BY seq")


def decided(verb, id_):
    return {"action": f"execution {verb}", "subject": id_, "reason": "ada looked", "name": ME}


def refused(cli, core, verb, id_, *words):
    """Check that the command exits with 1 and prints all these words, and that it writes nothing."""
    before = core.rows("SELECT * FROM triggers"), core.rows("SELECT * FROM tasks"), logged(core)
    found = cli("execution", verb, id_, *WHY)
    assert found.code == 1, found.out
    assert f"{verb} of {id_} is refused: " in found.err
    assert "Nothing was written" in found.err
    for word in words:
        assert word in found.err
    assert (core.rows("SELECT * FROM triggers"), core.rows("SELECT * FROM tasks"), logged(core)) == before


# retry


def test_execution_retry_ends_a_backoff_and_keeps_counting_attempts(cli, core, clock):
    begun = begin(core)
    end(core, begun, BROKEN)
    before = look(core, begun.claim.id)
    assert before.due_at > clock.now()

    done = cli("execution", "retry", begun.id, *WHY)

    after = look(core, begun.claim.id)
    assert (done.code, after.status, after.due_at) == (0, TriggerStatus.PENDING, clock.now())
    assert (after.attempts, after.reason) == (1, "retried: ada looked")
    assert done.out.splitlines() == [
        f"{begun.id} is retried: {begun.claim.id} is pending again, due 2026-11-21 12:00:00Z",
        "no daemon runs; it goes on with the next one: craftcore run MODULE:APP",
    ]
    assert claim_one(core, epoch=2).id == begun.claim.id
    assert logged(core) == [decided("retry", begun.id)]


def test_execution_retry_keeps_the_due_time_of_a_trigger_already_due(cli, core, clock):
    begun = begin(core)
    boot(core)
    clock.advance(minutes=5)

    assert cli("execution", "retry", begun.id, *WHY).code == 0

    assert look(core, begun.claim.id).due_at == begun.claim.due_at < clock.now()


def test_execution_retry_ignores_the_expiry_of_the_trigger(cli, core, clock):
    begun = begin(core, expires_at=clock.now() + 60)
    end(core, begun, BROKEN)
    clock.advance(hours=1)

    assert cli("execution", "retry", begun.id, *WHY).code == 0

    assert start_due(core).id == f"exec-{begun.claim.id}.2"


@pytest.mark.parametrize(("outcome", "status"), [(BROKEN, "DEAD"), (HOPELESS, "FAILED")])
def test_execution_retry_resets_a_dead_or_failed_trigger(cli, core, outcome, status):
    begun = begin(core, max_attempts=1)
    end(core, begun, outcome)
    assert look(core, begun.claim.id).status == status

    document = cli("--json", "execution", "retry", begun.id, *WHY).json

    assert (document["execution_id"], document["decision"]) == (begun.id, "retry")
    assert (document["trigger"]["id"], document["trigger"]["status"], document["trigger"]["attempts"]) == (
        begun.claim.id,
        "PENDING",
        0,
    )
    assert document["task"] is None
    assert logged(core) == [decided("retry", begun.id)]


def test_execution_retry_lets_a_failed_task_continue(cli, core, clock, database):
    task_id = a_task(database, "fails", clock)
    last = cli("--json", "inspect", "--list", "--status", "error").json[0]["id"]

    done = cli("execution", "retry", last, *WHY)

    assert "and its task goes on with it" in done.out
    document = cli("--json", "task", "show", task_id).json
    assert (document["status"], document["turn"]) == ("RUNNING", 2)


# skip


def test_execution_skip_settles_a_trigger_that_would_run_again(cli, core):
    begun = begin(core)
    boot(core)

    done = cli("execution", "skip", begun.id, *WHY)

    after = look(core, begun.claim.id)
    assert (done.code, done.out) == (0, f"{begun.id} is skipped: {begun.claim.id} cancelled\n")
    assert (after.status, after.reason) == (TriggerStatus.DONE, "skipped: ada looked")
    assert logged(core) == [decided("skip", begun.id)]


def test_execution_skip_cancels_the_task(cli, core, clock, database):
    task_id = a_task(database, "shaky", clock)

    document = cli("--json", "execution", "skip", f"exec-{task_id}", *WHY).json

    assert (document["decision"], document["task"]["status"]) == ("skip", "CANCELLED")
    assert cli("--json", "task", "show", task_id).json["reason"] == "skipped: ada looked"


def test_execution_skip_discards_a_dead_letter(cli, core):
    begun = begin(core, max_attempts=1)
    end(core, begun, BROKEN)

    done = cli("execution", "skip", begun.id, *WHY)

    assert done.out == f"{begun.id} is skipped: {begun.claim.id} is discarded, and stays readable as FAILED\n"
    assert look(core, begun.claim.id).reason == "skipped: ada looked"
    assert cli("--json", "dead", "list").json == []
    assert logged(core) == [decided("skip", begun.id)]


def test_execution_skip_after_a_dead_daemon_is_applied_by_the_next_daemon(cli, core):
    begun = begin(core)

    done = cli("execution", "skip", begun.id, *WHY)

    assert done.out.endswith(
        f"{begun.claim.id} is cancelled by the next daemon, before anything runs; its own is gone\n"
    )
    refused(cli, core, "skip", begun.id, "its cancellation was asked for")
    boot(core)
    assert look(core, begun.claim.id).reason == "skipped: ada looked"
    refused(cli, core, "retry", begun.id, "its trigger is DONE (skipped: ada looked)")


# Refusals


@pytest.mark.parametrize("verb", ["retry", "skip"])
def test_running_execution_cannot_be_retried_or_skipped(cli, core, verb):
    begun = begin(core)

    with a_daemons_lock(core):
        refused(cli, core, verb, begun.id, "a daemon has its trigger", f"craftcore trigger why {begun.claim.id}")


@pytest.mark.parametrize("verb", ["retry", "skip"])
def test_superseded_attempt_cannot_be_retried_or_skipped(cli, core, verb):
    first = begin(core)
    boot(core)
    second = start_due(core, epoch=2)

    refused(cli, core, verb, first.id, f"See: craftcore inspect {second.id}")


@pytest.mark.parametrize("verb", ["retry", "skip"])
@pytest.mark.parametrize(
    ("outcome", "says"),
    [
        (Succeeded(), "its response is on record"),
        (Snoozed(until=4e9), "it ended as it should, and goes on later"),
    ],
)
def test_execution_with_a_proper_end_cannot_be_retried_or_skipped(cli, core, verb, outcome, says):
    begun = begin(core)
    end(core, begun, outcome)

    refused(cli, core, verb, begun.id, says)


def test_execution_retry_is_refused_when_the_next_daemon_repeats_the_attempt(cli, core):
    begun = begin(core)

    refused(
        cli, core, "retry", begun.id, "the next one runs it again by itself", "craftcore run MODULE:APP, or craftcore"
    )


def test_execution_skip_is_refused_after_a_final_failure(cli, core):
    begun = begin(core)
    end(core, begun, HOPELESS)

    refused(cli, core, "skip", begun.id, "nothing runs it again by itself", f"craftcore execution retry {begun.id}")


def test_refusal_names_commands_for_the_database_given_by_option(cli, core, database):
    first = begin(core)
    boot(core)
    second = start_due(core, epoch=2)

    refused = cli("--db", str(database), "execution", "retry", first.id, *WHY)

    assert f". See: craftcore --db {database} inspect {second.id}. Nothing was written" in refused.err


def test_execution_of_a_cancelled_trigger_cannot_be_retried(cli, core):
    begun = begin(core)
    end(core, begun, Released(reason="shutdown"))
    assert cli("trigger", "cancel", begun.claim.id).code == 0

    refused(cli, core, "retry", begun.id, "its trigger is DONE (cancelled)")


@pytest.mark.parametrize("verb", ["retry", "skip"])
def test_activity_in_doubt_must_be_resolved_before_the_execution(cli, core, clock, database, verb):
    """The deadline passed while a person was asked, and the turn that would have handled it failed."""
    bank = Bank(database, clock)
    task_id = bank.pay(LOST, workflow="pay.soon")
    clock.advance(seconds=HOUR)
    clock.advance(seconds=1)
    bank.go_on()
    [newest, *_] = cli("--json", "inspect", "--list").json
    assert (newest["status"], newest["error_code"] is None) == ("error", False)
    key = f"activity:{task_id}:1.1"

    commands = [f"craftcore activity resolve {key} {how}" for how in ("--happened", "--resend", "--give-up")]
    refused(cli, core, verb, newest["id"], "unknown whether bank.pay happened", *commands)

    assert cli("inspect", newest["id"]).json["recommendation"]["commands"] == commands
    assert cli("activity", "resolve", key, "--happened", "pay-1").code == 0
    assert cli("execution", "retry", newest["id"], *WHY).code == 0


@pytest.mark.parametrize("verb", ["retry", "skip"])
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["exec-nothing", *WHY], 10, "no execution has the id"),
        (["exec-nothing"], 64, "--reason"),
        ([*WHY], 64, "ID"),
        (["exec-nothing", "--reason", ""], 64, "the reason must be"),
        (["exec-nothing", "--reason", "x" * 501], 64, "the reason must be"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_execution_decision_with_bad_arguments_is_refused_with_the_reason(cli, core, verb, arguments, code, words):
    refusal = cli("execution", verb, *arguments)

    assert (refusal.code, words in refusal.err) == (code, True), refusal.err


# After the kill of a real daemon: retry, skip, or resolve

KILLED_IN_A_CALL = """
import asyncio
from craftcore import Call, TaskContext

@app.action("pay", irreversible=True)
async def pay(call: Call) -> str:
    trace(call.key)
    await asyncio.sleep(3600)
    return "never"

@app.workflow("pay")
async def pay_one(ctx: TaskContext) -> str:
    return await ctx.act(pay)
"""


def audit_of(folder):
    """Return the operator actions on executions, in order."""
    with Services(folder / "agent.db", Config()).reading() as reader:
        return [(row.action, row.subject, row.reason) for row in list_rows(reader) if "execution" in row.action]


def test_incomplete_execution_after_a_kill_is_found_and_retried_or_skipped(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    with a_daemon(tmp_path, "app:app") as daemon:
        daemon.ready()
        for _ in range(2):
            craftcore(tmp_path, "emit", "slow")
        until(lambda: len(read_trace(tmp_path)) == 2, "both to run")
        daemon.kill()

    found = craftcore(tmp_path, "--json", "inspect", "--list", "--status", "incomplete").json
    second, first = (row["id"] for row in found)
    document = craftcore(tmp_path, "inspect", first).json
    assert (document["last_event"]["type"], document["last_event"]["agent"]) == ("AGENT_ATTEMPT_START", "slow")
    assert document["recommendation"]["state"] == "interrupted"
    assert craftcore(tmp_path, "execution", "skip", second, "--reason", "not needed").code == 0

    (tmp_path / "go").touch()
    with a_daemon(tmp_path, "app:app", "--paused") as daemon:
        daemon.ready()
        assert craftcore(tmp_path, "inspect", first).json["recommendation"]["state"] == "pending"
        assert craftcore(tmp_path, "execution", "retry", first, "--reason", "no harm").code == 0
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
    assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0

    assert read_trace(tmp_path) == ["slow begins"] * 3 + ["slow ends"]
    listed = {row["id"]: row["status"] for row in craftcore(tmp_path, "--json", "inspect", "--list").json}
    third = first.removesuffix("1") + "2"
    assert listed == {first: "incomplete", second: "incomplete", third: "success"}
    assert audit_of(tmp_path) == [("execution skip", second, "not needed"), ("execution retry", first, "no harm")]


def test_irreversible_call_after_a_kill_must_be_resolved_before_the_execution(tmp_path):
    (tmp_path / "app.py").write_text(APP + KILLED_IN_A_CALL)
    with a_daemon(tmp_path, "app:app") as daemon:
        daemon.ready()
        craftcore(tmp_path, "emit", "pay")
        [key] = until(lambda: read_trace(tmp_path), "the call")
        daemon.kill()

    [row] = craftcore(tmp_path, "--json", "inspect", "--list").json
    early = craftcore(tmp_path, "execution", "skip", row["id"], "--reason", "quick")
    assert (early.code, "a daemon that starts puts it in doubt" in early.err) == (1, True)

    with a_daemon(tmp_path, "app:app", "--paused") as daemon:
        daemon.ready()
        advice = craftcore(tmp_path, "inspect", row["id"]).json["recommendation"]
        assert advice["state"] == "in_doubt"
        assert advice["commands"][0] == f"craftcore --db agent.db activity resolve {key} --happened"
        refusal = craftcore(tmp_path, "execution", "retry", row["id"], "--reason", "quick")
        assert (refusal.code, f"craftcore --db agent.db activity resolve {key} --happened" in refusal.err) == (1, True)
        resolved = craftcore(tmp_path, "activity", "resolve", key, "--happened", "pay-7", "--note", "she saw it")
        assert resolved.code == 0
        assert craftcore(tmp_path, "execution", "retry", row["id"], "--reason", "paid").code == 0
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
    assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0

    assert read_trace(tmp_path) == [key], "the action was called again"
    newest = craftcore(tmp_path, "--json", "inspect", "--list").json[0]
    assert (newest["status"], newest["replayable"]) == ("success", True)
    [decision] = craftcore(tmp_path, "--json", "activity", "show", key).json["decisions"]
    assert (decision["decision"], decision["note"]) == ("happened", "she saw it")
    assert audit_of(tmp_path) == [("execution retry", row["id"], "paid")]
