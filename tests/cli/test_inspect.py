"""`craftcore inspect` and `craftcore invalidate`: recorded attempts, their filters and statistics."""

from __future__ import annotations

import os
import pwd
import re

import pytest

from craftcore.daemon.lock import DaemonLock
from craftcore.errors import ErrorCode
from craftcore.triggers.settlement import Failed, Released, Snoozed, Succeeded
from tests.support.attempts import begin, boot, end, start_due
from tests.support.commands import short
from tests.support.damage import NO_TEXT, damage
from tests.support.event_rows import move_events_to_rows, needs_rows
from tests.support.fake_payments import LOST, Bank
from tests.support.idle_database import HOUR, a_task
from tests.support.trigger_steps import BROKEN, HOPELESS, emit, look

ME = pwd.getpwuid(os.getuid()).pw_name
HI = Succeeded(result_json='"hi"')
LATE = Failed(code="AGENT_TIMEOUT", message="Agent slow did not respond", retryable=True)
THEIRS = Failed(code="card.declined", message="no", retryable=False)

COLUMNS = "id created workflow status replayable"


@pytest.fixture
def daemon_runs(core):
    """Hold the lock as a daemon does."""
    with DaemonLock.acquire(core.database.path, pid=os.getpid(), host="here", now=core.clock.now()) as lock:
        yield lock


def an_end(core, outcome=HI, **spec):
    """Record an attempt with this outcome, and return the id of the record."""
    begun = begin(core, **spec)
    end(core, begun, outcome)
    return begun.id


@pytest.fixture
def some(core, clock):
    """Return one record of each status, the newest first, a minute apart."""
    ids = []
    for workflow, outcome in (("greet", HI), ("slow", LATE), ("nap", Snoozed(until=4e9)), ("lost", None)):
        begun = begin(core, workflow=workflow, max_attempts=1)
        clock.advance(seconds=0.25)
        if outcome is not None:
            end(core, begun, outcome)
        clock.advance(seconds=59.75)
        ids.append(begun.id)
    return ids[::-1]


def inspect(cli, id_, *more):
    found = cli("inspect", id_, *more)
    assert found.code == 0, found.err
    return found.json


# list


def test_inspect_list_is_newest_first_with_the_reason_for_not_replayable(cli, some):
    listed = cli("inspect", "--list")

    lines = [line.split() for line in listed.out.splitlines()]
    lost, nap, slow, greet = map(short, some)
    assert lines == [
        COLUMNS.split(),
        [lost, "2026-11-21", "12:03:00Z", "lost", "incomplete", "not-replayable:", "execution_incomplete"],
        [nap, "2026-11-21", "12:02:00Z", "nap", "suspended", "not-replayable:", "execution_incomplete"],
        [slow, "2026-11-21", "12:01:00Z", "slow", "error", "replayable"],
        [greet, "2026-11-21", "12:00:00Z", "greet", "success", "replayable"],
    ]


def test_inspect_list_with_json_has_moments_also_as_iso(cli, some, clock):
    *_, slow, _ = some

    row = cli("--json", "inspect", "--list", "--limit", "3").json[2]

    assert row == {
        "id": slow,
        "created_at": clock.now() - 180,
        "created_at_iso": "2026-11-21T12:01:00.000Z",
        "workflow": "slow",
        "status": "error",
        "replayable": True,
        "replayable_reason": None,
        "error_code": "AGENT_TIMEOUT",
        "latency_ms": 250.0,
        "trigger_id": slow.removeprefix("exec-").removesuffix(".1"),
        "attempt": 1,
    }


@pytest.mark.parametrize(
    ("filters", "places"),
    [
        ([], [0, 1, 2, 3]),
        (["--limit", "2"], [0, 1]),
        (["--status", "incomplete"], [0]),
        (["--status", "SUSPENDED"], [1]),
        (["--status", "error"], [2]),
        (["--status", "success"], [3]),
        (["--error-code", "AGENT_TIMEOUT"], [2]),
        (["--error-code", "agent_timeout"], [2]),
        (["--error-code", "AGENT_ERROR"], []),
        (["--status", "success", "--error-code", "AGENT_TIMEOUT"], []),
        (["--workflow", "nap"], [1]),
        (["--workflow", "nap@1.0"], [1]),
        (["--workflow", "nap@2.0"], []),
        (["--workflow", "nobody"], []),
        (["--since", "2026-11-21T12:02:00Z"], [0, 1]),
        (["--until", "2026-11-21T13:02:00+01:00"], [2, 3]),
        (["--since", "1795262460", "--until", "1795262520"], [2]),
        (["--envelope-hash", "sha256:" + "0" * 64], []),
    ],
    ids=lambda value: " ".join(value) if value and isinstance(value[0], str) else None,
)
def test_inspect_list_is_filtered_by_status_error_workflow_time_and_hash(cli, some, filters, places):
    listed = cli("--json", "inspect", "--list", *filters).json

    assert [row["id"] for row in listed] == [some[place] for place in places]


def test_equal_envelopes_are_found_by_hash(cli, core):
    """Two attempts of one trigger have the same envelope; that of another trigger has another id."""
    first = begin(core)
    core.do(core.claims.release_epoch, 1)
    second = start_due(core)
    other = emit(core)
    asked = inspect(cli, second.id)["envelope_hash"]

    found = cli("--json", "inspect", "--list", "--envelope-hash", asked).json

    assert [row["id"] for row in found] == [second.id, first.id]
    assert other.id not in asked


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--status", "blue"], 12, "status 'blue' is unknown; it must be one of success, error, incomplete, suspended"),
        (["--status", ""], 12, "must be one of success"),
        (["--error-code", "AGENT_SLOW"], 12, "error code 'AGENT_SLOW' is unknown; it must be one of VALIDATION_ERROR"),
        (["--error-code", ""], 12, "ACTIVITY_UNKNOWN"),
        (["--since", "yesterday"], 12, "'yesterday' is not a moment"),
        (["--until", "2026-01-01T00:00:00"], 12, "until 2026-01-01T00:00:00 has no time zone"),
        (["--since", "nan"], 12, "since"),
        (["--envelope-hash", "b01a0cdc"], 12, "envelope hash 'b01a0cdc' is not a hash; give sha256: and its 64 digits"),
        (["--envelope-hash", "sha256:" + "A" * 64], 12, "as inspect ID shows it"),
        (["--workflow", "\udcff"], 12, "workflow '\\\\udcff' is not a text to look for"),
        (["--envelope-hash", "\udcff"], 12, "envelope hash '\\\\udcff' is not a text to look for"),
        (["--limit", "0"], 64, "--limit"),
        (["--limit", "100001"], 64, "--limit"),
        (["--limit", "many"], 64, "--limit"),
        (["--stats"], 64, "give one of ID, --list and --stats"),
        (["exec-1.1"], 64, "give one of ID, --list and --stats"),
        (["--events"], 64, "belong to an ID"),
        (["--envelope"], 64, "belong to an ID"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_inspect_list_with_a_bad_filter_is_refused_with_the_reason(cli, some, arguments, code, words):
    refused = cli("inspect", "--list", *arguments)

    assert (refused.code, words in refused.err) == (code, True), refused.err
    assert refused.out == ""


def test_inspect_without_an_id_or_with_id_and_filters_is_refused(cli, some):
    for arguments in ([], ["exec-1.1", "--limit", "3"], ["exec-1.1", "--status", "error"]):
        assert cli("inspect", *arguments).code == 64


def test_error_code_filter_accepts_built_in_and_recorded_codes(cli, core):
    failed = an_end(core, THEIRS)

    for code in ErrorCode:
        assert cli("--json", "inspect", "--list", "--error-code", code).json == []
    assert [row["id"] for row in cli("--json", "inspect", "--list", "--error-code", "card.declined").json] == [failed]
    assert "card.declined" in cli("inspect", "--list", "--error-code", "card.stolen").err


def test_inspect_list_without_executions_is_empty(cli, core):
    assert cli("--json", "inspect", "--list").json == []
    assert cli("inspect", "--list").out.split() == COLUMNS.split()


# stats


def test_inspect_stats_count_the_rows_of_the_list(cli, some):
    document = cli("--json", "inspect", "--stats").json

    assert document == {
        "records": 4,
        "oldest_at": 1_795_262_400.0,
        "oldest_at_iso": "2026-11-21T12:00:00.000Z",
        "newest_at": 1_795_262_580.0,
        "newest_at_iso": "2026-11-21T12:03:00.000Z",
        "limit": 10_000,
        "by_status": {"success": 1, "error": 1, "incomplete": 1, "suspended": 1},
        "by_error_code": {"AGENT_TIMEOUT": 1},
        "replayable": 2,
        "not_replayable": {"execution_incomplete": 2},
        "latency_ms": {"median": 250.0, "p95": 250.0},
    }
    assert cli("--json", "inspect", "--stats", "--workflow", "nap").json["records"] == 1


def test_inspect_stats_in_text_show_the_number_of_executions(cli, some):
    assert cli("inspect", "--stats").out.splitlines() == [
        "executions      4, from 2026-11-21 12:00:00Z to 2026-11-21 12:03:00Z",
        "status          success 1, error 1, incomplete 1, suspended 1",
        "errors          AGENT_TIMEOUT 1",
        "replayable      2",
        "not-replayable  execution_incomplete 2",
        "latency         median 250.0 ms, 95 of 100 within 250.0 ms",
    ]
    assert cli("inspect", "--stats", "--limit", "2").out.startswith("executions      the last 2, from ")


def test_inspect_stats_without_executions_have_a_notice(cli, core):
    assert cli("inspect", "--stats").out == "no execution\n"
    assert cli("--json", "inspect", "--stats").json["latency_ms"] == {"median": None, "p95": None}


# One


def test_failed_record_shows_error_routing_and_last_event(cli, some, clock):
    *_, slow, _ = some
    trigger_id = slow.removeprefix("exec-").removesuffix(".1")

    document = inspect(cli, slow)

    assert re.fullmatch("sha256:[0-9a-f]{64}", document.pop("envelope_hash"))
    assert document.pop("recommendation")["state"] == "dead"
    begun, ended = clock.now() - 180, clock.now() - 179.75
    assert document == {
        "execution_id": slow,
        "trigger_id": trigger_id,
        "task_id": None,
        "turn": None,
        "attempt": 1,
        "created_at": begun,
        "created_at_iso": "2026-11-21T12:01:00.000Z",
        "ended_at": ended,
        "ended_at_iso": "2026-11-21T12:01:00.250Z",
        "workflow": "slow",
        "status": "error",
        "latency_ms": 250.0,
        "replayable": True,
        "replayable_reason": None,
        "invalidated": None,
        "event_count": 5,
        "last_event": {
            "seq": 5,
            "type": "FINAL_RESPONSE",
            "at": ended,
            "at_iso": "2026-11-21T12:01:00.250Z",
            "error_code": "AGENT_TIMEOUT",
            "has_error": True,
            "latency_ms": 250.0,
            "status": "error",
        },
        "routing": {
            "strategy": "DIRECT",
            "decision": {"agent": "slow", "intent": "slow", "reason": "explicit workflow"},
        },
        "error": {
            "code": "AGENT_TIMEOUT",
            "message": "Agent slow did not respond",
            "retryable": True,
            "details": {},
            "effect_possible": False,
            "retry_after": None,
        },
    }


def test_incomplete_record_shows_the_last_event_reached(cli, some):
    document = inspect(cli, some[0])

    assert (document["status"], document["replayable"], document["replayable_reason"]) == (
        "incomplete",
        False,
        "execution_incomplete",
    )
    assert (document["ended_at"], document["ended_at_iso"], document["latency_ms"], document["error"]) == (
        None,
        None,
        None,
        None,
    )
    last = document["last_event"]
    assert (last["seq"], last["type"], last["agent"]) == (2, "AGENT_ATTEMPT_START", "lost")


def test_inspect_shows_events_and_envelope_on_request(cli, core):
    id_ = an_end(core, workflow="brief@2.0", payload={"city": "Rome"}, description="now")

    document = inspect(cli, id_, "--events", "--envelope")

    assert [event["type"] for event in document["events"]] == [
        *("INTENT_RECEIVED", "AGENT_ATTEMPT_START", "AGENT_ATTEMPT_END", "ROUTER_DECISION", "FINAL_RESPONSE")
    ]
    assert set(document["events"][0]) == {"seq", "type", "at", "at_iso", "payload"}
    assert document["envelope"]["intent"] == {"name": "brief", "version": "2.0"}
    assert document["envelope"]["payload"] == {"city": "Rome"}
    assert not {"events", "envelope"} & inspect(cli, id_).keys()


def test_events_of_a_turn_name_task_and_turn(cli, clock, database):
    task_id = a_task(database, "nap", clock)

    document = inspect(cli, f"exec-{task_id}", "--events")

    assert (document["task_id"], document["turn"]) == (task_id, 1)
    [step] = [event for event in document["events"] if event["type"] == "STEP_COMPLETED"]
    assert (step["task_seq"], step["turn"], step["payload"]["result"]) == (1, 1, "LA LA")
    assert step["memo"]


# Ids


def test_record_id_may_be_shortened_while_unambiguous(cli, core):
    first = begin(core)
    core.do(core.claims.release_epoch, 1)
    second = start_due(core)
    other = an_end(core)
    short = first.id[: next(i for i, (a, b) in enumerate(zip(first.id, other, strict=True)) if a != b)]

    assert inspect(cli, first.id)["execution_id"] == first.id
    assert inspect(cli, second.id)["execution_id"] == second.id
    assert inspect(cli, other[: len(short) + 1])["execution_id"] == other
    for ambiguous in (short, first.id[: len(short) + 1], "exec-"):
        refused = cli("inspect", ambiguous)
        assert (refused.code, "fits several ids" in refused.err) == (10, True)


@pytest.mark.parametrize("given", ["nothing", "exec-nothing", "", "exec- ", "é", "\udcff", "x" * 1_000])
def test_unknown_record_id_exits_10_and_points_to_the_list(cli, some, given):
    unknown = cli("inspect", given)

    assert (unknown.code, "no execution has the id" in unknown.err) == (10, True)
    assert "see: craftcore inspect --list" in unknown.err


def test_trigger_id_given_to_inspect_names_the_executions(cli, core):
    first = begin(core)
    core.do(core.claims.release_epoch, 1)
    second = start_due(core)

    refused = cli("inspect", first.claim.id)

    assert refused.code == 10
    assert refused.err.endswith(
        f"{first.claim.id} is a trigger; its executions are, the newest first: {second.id}, {first.id}\n"
    )


def test_trigger_without_a_start_is_reported_as_never_started(cli, core):
    """The process was killed before the start, or no daemon has claimed the trigger yet."""
    trigger_id = emit(core).id

    refused = cli("inspect", trigger_id)

    assert (refused.code, "it was never started, and nothing of it happened" in refused.err) == (10, True)
    assert f"See: craftcore trigger why {trigger_id}" in refused.err


# Recommended commands


def advice(cli, id_):
    found = inspect(cli, id_)["recommendation"]
    return found["state"], found["text"], found["commands"]


def test_record_of_a_running_attempt_needs_no_decision(cli, core, daemon_runs):
    begun = begin(core)

    state, _, commands = advice(cli, begun.id)

    assert (state, commands) == ("running", [f"craftcore trigger why {begun.claim.id}"])


def test_interrupted_record_shows_the_action_of_the_next_daemon(cli, core):
    begun = begin(core)

    state, text, commands = advice(cli, begun.id)

    assert state == "interrupted"
    assert "its process died in it" in text
    assert "it is safe to run again" in text
    assert commands == ["craftcore run MODULE:APP", f"craftcore execution skip {begun.id} --reason TEXT"]


def test_recommended_run_command_without_an_app_is_refused_and_changes_nothing(cli, core):
    """A daemon without the app would claim the interrupted trigger, find no workflow for it, and fail it for good."""
    begun = begin(core)
    before = core.rows("SELECT * FROM triggers"), core.rows("SELECT * FROM executions")
    [run, _] = advice(cli, begun.id)[2]

    pasted = cli(*run.split()[1:])

    assert (pasted.code, "no module is named MODULE" in pasted.err) == (78, True)
    assert (core.rows("SELECT * FROM triggers"), core.rows("SELECT * FROM executions")) == before


def test_interrupted_record_can_be_retried_or_skipped_after_a_new_start(cli, core):
    begun = begin(core)
    boot(core)

    state, _, commands = advice(cli, begun.id)

    assert state == "pending"
    assert commands == [f"craftcore execution {verb} {begun.id} --reason TEXT" for verb in ("retry", "skip")]


def test_record_of_an_earlier_attempt_points_to_the_later_attempt(cli, core):
    first = begin(core)
    boot(core)
    second = start_due(core, epoch=2)

    assert advice(cli, first.id)[::2] == ("tried_again", [f"craftcore inspect {second.id}"])


def test_complete_record_recommends_replay(cli, core):
    id_ = an_end(core)

    assert advice(cli, id_)[::2] == ("complete", [f"craftcore replay {id_}"])


def test_record_that_cannot_be_replayed_does_not_recommend_replay(cli, core):
    invalidated, changed = an_end(core), an_end(core)
    assert cli("invalidate", invalidated, "--reason", "wrong").code == 0
    spoil(core, f"UPDATE executions SET latency_ms = 1 WHERE id = '{changed}'")

    of_invalidated, of_changed = advice(cli, invalidated), advice(cli, changed)

    assert "its record cannot be replayed (manually_invalidated)" in of_invalidated[1]
    assert "its record is not what was written" in of_changed[1]
    for (command,), code in ((of_invalidated[2], 0), (of_changed[2], 1)):
        assert cli(*command.split()[1:]).code == code, command


@pytest.mark.parametrize(("outcome", "state"), [(HOPELESS, "failed"), (BROKEN, "dead")])
def test_record_of_a_given_up_trigger_recommends_retry(cli, core, outcome, state):
    id_ = an_end(core, outcome, max_attempts=1)

    found, text, commands = advice(cli, id_)

    assert (found, outcome.code in text) == (state, True)
    assert f"craftcore execution retry {id_} --reason TEXT" in commands


def test_released_record_is_reported_as_handed_back(cli, core):
    assert advice(cli, an_end(core, Released(reason="shutdown")))[1].startswith("it was handed back before its end; ")


def test_record_of_a_waiting_task_names_the_wait(cli, clock, database):
    nap, ask = (a_task(database, workflow, clock) for workflow in ("nap", "ask"))

    state, text, commands = advice(cli, f"exec-{nap}")

    assert (state, commands) == ("waits", [f"craftcore task show {nap}"])
    assert f"task {nap} sleeps until 2026-11-21 13:00:00Z, in 60 min" in text
    assert f"task {ask} waits for an answer to question" in advice(cli, f"exec-{ask}")[1]
    clock.advance(seconds=HOUR)
    a_task(database, "plain", clock)
    over = ("over", "it ended as it should; its task has ended since: there is nothing to decide of it", commands)
    assert advice(cli, f"exec-{nap}") == over, "the task has continued with another trigger"


def test_snoozed_record_shows_the_time_of_the_next_run(cli, core):
    id_ = an_end(core, Snoozed(until=4e9))

    state, text, _ = advice(cli, id_)

    assert state == "waits"
    assert "asked to be run again at 2096-10-02" in text


def test_record_with_an_action_in_doubt_points_to_the_activity(cli, clock, database):
    task_id = Bank(database, clock).pay(LOST)

    state, text, _ = advice(cli, f"exec-{task_id}")

    assert state == "waits"
    assert f"craftcore activity show activity:{task_id}:1.1" in text


def test_recommended_commands_name_the_database_given_by_option(cli, core, database):
    id_ = an_end(core)

    document = cli("--db", str(database), "inspect", id_).json

    assert document["recommendation"]["commands"] == [f"craftcore --db {database} replay {id_}"]


# Damage


def spoil(core, *statements):
    """Change the row as a foreign program or a bad disk does, past the guards of the schema."""
    with core.transaction() as tx:
        for (name,) in list(tx.fetch_tuples("SELECT name FROM sqlite_schema WHERE type = 'trigger'")):
            tx.run(f"DROP TRIGGER {name}")
        if needs_rows(*statements):
            move_events_to_rows(tx.run)
        for statement in statements:
            assert tx.run(statement) > 0, statement


def test_damaged_record_is_shown_as_stored(cli, core):
    id_ = an_end(core, HOPELESS)
    spoil(
        core,
        "UPDATE executions SET envelope_json = '{no', routing_json = 'DIRECT', response_json = '{\"error\":'",
        "UPDATE event_rows SET payload_json = '{oops' WHERE seq = 5",
        "UPDATE event_rows SET payload_json = '[1]' WHERE seq = 1",
        "DELETE FROM event_rows WHERE seq = 2",
    )

    document = inspect(cli, id_, "--events", "--envelope")

    assert (document["replayable"], document["replayable_reason"]) == (False, "record_corrupted")
    assert (document["envelope"], document["routing"]) == ("{no", "DIRECT")
    assert document["error"] == {"code": "VALIDATION_ERROR", "message": None, "retryable": None}
    assert (document["last_event"]["seq"], document["last_event"]["payload"]) == (5, "{oops")
    assert [event["payload"] for event in document["events"]][::3] == [[1], "{oops"]
    assert cli("inspect", "--list").code == cli("inspect", "--stats").code == 0


def test_statistics_report_a_damaged_record(cli, core):
    id_ = an_end(core, HOPELESS)
    damage(core.database.path, "executions", f"error_code = {NO_TEXT}", "id = ?", id_)

    assert cli("inspect", "--stats").code == 65
    assert cli("inspect", "--list", "--error-code", "NONE").code == 12


def test_deeply_nested_json_in_a_record_is_shown_as_stored(cli, core):
    id_ = an_end(core)
    deep = "replace(hex(zeroblob(50000)), '00', '[')"
    spoil(
        core,
        f"UPDATE event_rows SET payload_json = {deep} WHERE seq = 1",
        f"UPDATE executions SET envelope_json = {deep}",
    )

    document = inspect(cli, id_, "--events", "--envelope")

    assert document["replayable_reason"] == "record_corrupted"
    assert document["envelope"] == document["events"][0]["payload"] == "[" * 50_000


def test_record_without_events_is_shown(cli, core):
    id_ = an_end(core)
    spoil(core, "DELETE FROM event_rows")

    document = inspect(cli, id_)

    assert (document["event_count"], document["last_event"], document["replayable_reason"]) == (
        0,
        None,
        "record_corrupted",
    )


def test_record_of_a_deleted_trigger_is_reported_as_gone(cli, core):
    id_ = an_end(core, HOPELESS)
    spoil(core, "DELETE FROM triggers")

    assert advice(cli, id_)[0] == "gone"


def test_record_with_invalid_utf8_exits_65_without_a_traceback(cli, core):
    id_ = an_end(core)
    spoil(core, "UPDATE executions SET envelope_json = CAST(x'ff' AS TEXT)")

    refused = cli("inspect", id_)

    assert (refused.code, "a damaged row" in refused.err) == (65, True)


# invalidate


def test_invalidated_record_is_not_replayable_in_any_view(cli, core):
    id_, other = an_end(core), an_end(core)

    done = cli("invalidate", id_, "--reason", "the price was wrong")

    assert (done.code, done.out) == (0, f"{id_} is invalidated: it is not replayed any more\n")
    kept, gone = cli("inspect", "--list").out.splitlines()[1:]
    assert (kept.split()[0], kept.endswith(" replayable")) == (short(other), True)
    assert (gone.split()[0], gone.endswith(" not-replayable: manually_invalidated")) == (short(id_), True)
    document = inspect(cli, id_)
    assert (document["replayable"], document["replayable_reason"]) == (False, "manually_invalidated")
    assert document["invalidated"] == "the price was wrong"
    assert cli("--json", "inspect", "--stats").json["not_replayable"] == {"manually_invalidated": 1}
    [row] = core.rows("SELECT uid, name, action, subject, reason FROM audit_log")
    assert row == {
        "uid": os.getuid(),
        "name": ME,
        "action": "invalidate",
        "subject": id_,
        "reason": "the price was wrong",
    }


def test_invalidate_with_several_ids_applies_to_all_or_none(cli, core):
    first, second = an_end(core), an_end(core)
    assert cli("invalidate", second, "--reason", "one").code == 0

    refused = cli("invalidate", first, second, "--reason", "both")

    assert (refused.code, f"{second} is invalidated already: one" in refused.err) == (1, True)
    assert inspect(cli, first)["replayable"] is True
    document = cli("--json", "invalidate", first, first, "--reason", "said twice").json
    assert [(one["execution_id"], one["replayable_reason"]) for one in document] == [(first, "manually_invalidated")]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["exec-nothing", "--reason", "why"], 10, "no execution has the id"),
        (["exec-nothing"], 64, "--reason"),
        (["--reason", "why"], 64, "ID"),
        (["exec-nothing", "--reason", "  "], 64, "the reason must be"),
        (["exec-nothing", "--reason", "x" * 501], 64, "the reason must be"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else None,
)
def test_invalidate_with_bad_arguments_is_refused_with_the_reason(cli, some, arguments, code, words):
    refused = cli("invalidate", *arguments)

    assert (refused.code, words in refused.err) == (code, True), refused.err


def test_inspect_writes_nothing(cli, some, core):
    before = core.rows("SELECT * FROM executions"), core.rows("SELECT * FROM triggers")

    for arguments in (["--list"], ["--stats"], [some[0]], [some[1], "--events", "--envelope"]):
        assert cli("inspect", *arguments).code == 0

    assert (core.rows("SELECT * FROM executions"), core.rows("SELECT * FROM triggers")) == before
    assert look(core, some[0].removeprefix("exec-").removesuffix(".1")).status == "CLAIMED"
