"""`craftcore emit`: accepted options, payloads, times and dedup keys, and their output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from datetime import datetime, time, timedelta
from zoneinfo import ZoneInfo

import pytest

from craftcore.triggers.settlement import Failed, Succeeded
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import PATIENCE
from tests.support.trigger_steps import run_one

HOUR = 3600.0


def row(cli, trigger_id):
    return cli("--json", "trigger", "show", trigger_id).json


def test_emit_prints_the_id_and_status_of_the_trigger(cli):
    done = cli("emit", "greet", "--payload", '{"name": "Ada"}')

    document = json.loads(done.out)
    assert (done.code, list(document)) == (0, ["id", "created", "status", "due_at"])
    assert (document["created"], document["status"]) == (True, "PENDING")
    assert row(cli, document["id"])["payload"] == {"name": "Ada"}


def test_emit_creates_a_missing_database_with_a_notice(cli, tmp_path):
    """A user in a wrong folder would wait for a daemon that uses another database."""
    first, second = cli("emit", "greet"), cli("emit", "greet")

    made = f"craftcore: made a new database: {tmp_path}/agent.db. Another one is named by --db or CRAFTCORE_DB\n"
    assert (first.code, first.err) == (0, made)
    assert (second.code, second.err) == (0, "")
    assert cli("--db", "other.db", "--json", "emit", "greet").err == ""


def test_database_made_in_another_locale_is_used_in_any_locale(cli, tmp_path):
    """In the C locale, without its usual exception, a text file is read as ASCII."""
    ascii_locale = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    command = [sys.executable, "-m", "craftcore", "--db", "agent.db", "emit", "greet"]
    made = subprocess.run(command, cwd=tmp_path, env=ascii_locale, capture_output=True)

    assert made.returncode == 0, made.stderr
    assert cli("db", "check").code == 0
    assert cli("emit", "greet").code == 0


def test_emit_with_json_has_moments_also_as_iso(cli):
    document = cli("--json", "emit", "greet", "--at", "2030-01-02T03:04:05+01:00").json

    assert (document["due_at"], document["due_at_iso"]) == (1893549845.0, "2030-01-02T02:04:05.000Z")


def test_emit_takes_a_time_of_day(cli, clock):
    document = cli("--json", "emit", "greet", "--at", "tomorrow 9am").json

    due, now = (datetime.fromtimestamp(at, ZoneInfo(clock.zone())) for at in (document["due_at"], clock.now()))
    assert due == datetime.combine(now.date() + timedelta(days=1), time(9), due.tzinfo)


def test_emit_refuses_a_moment_that_cannot_be_read(cli):
    refused = cli("emit", "greet", "--at", "soon")

    assert refused.code == 64
    assert "at 'soon' is not a moment" in refused.err


@pytest.mark.parametrize("before", [True, False])
def test_global_options_work_before_and_after_the_command(cli, tmp_path, before):
    options = ["--db", str(tmp_path / "other.db"), "--json"]

    done = cli(*options, "emit", "greet") if before else cli("emit", "greet", *options)

    assert done.json["created"]
    assert (tmp_path / "other.db").exists()


def test_payload_may_come_from_a_file_or_standard_input(cli, tmp_path):
    (tmp_path / "payload.json").write_text('{"from": "file"}')

    from_file = cli("--json", "emit", "greet", "--payload", "@payload.json").json
    from_stdin = cli("--json", "emit", "greet", "--payload", "-", stdin='{"from": "stdin ü"}'.encode()).json

    assert row(cli, from_file["id"])["payload"] == {"from": "file"}
    assert row(cli, from_stdin["id"])["payload"] == {"from": "stdin ü"}


def test_byte_order_mark_before_a_payload_is_skipped(cli, tmp_path):
    (tmp_path / "payload.json").write_bytes(b'\xef\xbb\xbf{"from": "file"}')

    from_file = cli("--json", "emit", "greet", "--payload", "@payload.json").json
    from_stdin = cli("--json", "emit", "greet", "--payload", "-", stdin=b'\xef\xbb\xbf{"from": "stdin"}').json

    assert row(cli, from_file["id"])["payload"] == {"from": "file"}
    assert row(cli, from_stdin["id"])["payload"] == {"from": "stdin"}


def test_dedup_key_is_accepted_once_and_a_different_payload_is_reported(cli):
    first = cli("--json", "emit", "greet", "--dedup-key", "k").json
    again = cli("--json", "emit", "greet", "--dedup-key", "k").json
    other = cli("--json", "emit", "greet", "--dedup-key", "k", "--payload", '{"a": 1}').json

    assert (again["id"], again["created"], "payload_differs" in again) == (first["id"], False, False)
    assert (other["id"], other["created"], other["payload_differs"]) == (first["id"], False, True)
    refused = cli("emit", "greet", "--dedup-key", "k", "--on-duplicate", "error")
    assert refused.code == 64
    assert first["id"] in refused.err


def test_dedup_scope_can_be_set_and_a_duplicate_names_the_holder(cli):
    first = cli("--json", "emit", "greet", "--dedup-key", "k", "--dedup-scope", "ever").json
    again = cli("--json", "emit", "greet", "--dedup-key", "k")
    in_words = cli("emit", "greet", "--dedup-key", "k")
    active = cli("--json", "emit", "greet", "--dedup-key", "a").json
    active_again = cli("emit", "greet", "--dedup-key", "a")

    assert (first["dedup_scope"], "held" in first) == ("ever", False)
    assert (again.json["dedup_scope"], again.json["held"], again.err) == ("ever", "dedup_key", "")
    refusal = f"no new trigger: trigger {first['id']} (PENDING) holds the dedup key k"
    assert f"{refusal} after it is settled, too (scope ever). To run it again, give another key" in in_words.err
    assert (in_words.code, in_words.json["id"]) == (0, first["id"])
    assert active["dedup_scope"] == "active"
    assert "until its work has ended (scope active). Emit it again then" in active_again.err


def test_dedup_scope_is_refused_when_unknown_or_without_a_key(cli):
    unknown = cli("emit", "greet", "--dedup-key", "k", "--dedup-scope", "today")
    empty = cli("emit", "greet", "--dedup-key", "k", "--dedup-scope", "")
    alone = cli("emit", "greet", "--dedup-scope", "ever")

    assert (unknown.code, alone.code) == (64, 64)
    assert "dedup_scope 'today' must be one of ever, active" in unknown.err
    assert "dedup_scope '' must be one of ever, active" in empty.err
    assert "dedup_scope 'ever' needs a dedup_key" in alone.err


def test_emit_options_reach_the_row(cli):
    cli("emit", "greet", "--session", "s1", "--source", "message")
    document = cli(
        *("--json", "emit", "greet", "--source", "MESSAGE", "--session", "s1", "--dedup-key", "k1", "--in", "2h"),
        *("--priority", "7", "--description", "why\nit is", "--supersedes", "session"),
    ).json

    found = row(cli, document["id"])
    assert {name: found[name] for name in ("source", "session_id", "dedup_key", "priority", "description")} == {
        "source": "MESSAGE",
        "session_id": "s1",
        "dedup_key": "k1",
        "priority": 7,
        "description": "why\nit is",
    }
    assert found["due_at"] - found["created_at"] == pytest.approx(2 * HOUR, abs=1)
    [older] = [one for one in cli("--json", "trigger", "list").json if one["id"] != document["id"]]
    assert (older["reason"], older["superseded_by"]) == ("superseded", document["id"])


@pytest.mark.parametrize(
    ("outcome", "code", "status", "key"),
    [
        (Succeeded(), 0, "DONE", "result"),
        (Failed(code="VALIDATION_ERROR", message="no", retryable=False), 4, "FAILED", "error"),
    ],
)
def test_emit_wait_ends_with_the_trigger(cli, database, outcome, code, status, key):
    """An engine in another thread settles the trigger while the command waits."""
    core = VirtualCore(database, VirtualClock(now=4e9))

    def engine():
        while not core.rows("SELECT 1 FROM triggers"):
            pass
        run_one(core, outcome)

    thread = threading.Thread(target=engine)
    thread.start()
    done = cli("--json", "emit", "greet", "--wait", str(PATIENCE))
    thread.join()
    core.close()

    assert (done.code, done.json["status"]) == (code, status)
    assert key in done.json


def test_emit_wait_timeout_is_reported_and_the_trigger_stays(cli):
    over = cli("--json", "emit", "greet", "--in", "1h", "--wait", "0.05")

    assert (over.code, over.json["error"]["code"]) == (75, "STILL_WAITING")
    [line] = over.err.splitlines()
    assert "is accepted and still PENDING" in line
    assert cli("--json", "trigger", "list").json[0]["id"] == over.json["error"]["id"]
