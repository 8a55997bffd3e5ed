"""`craftcore trigger` and `craftcore dead`: views of triggers and operator actions on them."""

from __future__ import annotations

import json

import pytest

from craftcore.diagnostics.finding import Finding
from craftcore.diagnostics.reasons.trigger_reasons import list_reasons
from craftcore.schedules.model import Origin, ScheduleSpec
from craftcore.storage.facts import set_fact
from craftcore.triggers.model import TriggerStatus
from craftcore.triggers.settlement import Succeeded
from craftcore.triggers.store import TriggerStore
from tests.support import task_steps as life
from tests.support.attempts import begin, end
from tests.support.fakes import VirtualClock, VirtualCore
from tests.support.processes import APP, craftcore
from tests.support.trigger_steps import BROKEN, HOPELESS, claim_all, claim_one, emit, look, run_one, start_one

ROW = "SELECT status, due_at, not_before, started_at, reason FROM triggers WHERE id = '{}'"


@pytest.fixture
def core(database):
    """Return a table as an engine left it some time ago."""
    core = VirtualCore(database, VirtualClock(now=1_700_000_000.0))
    yield core
    core.close()


def dead_letter(core, **changes):
    """Create a trigger whose only attempt failed."""
    emitted = emit(core, max_attempts=1, **changes)
    assert run_one(core, BROKEN).status is TriggerStatus.DEAD
    return emitted.id


# list and show


def test_trigger_list_is_newest_first_and_filtered(cli, core):
    first = emit(core, session_id="s").id
    second = emit(core, workflow="other", source="MESSAGE").id

    def listed(*filters):
        return [row["id"] for row in cli("--json", "trigger", "list", *filters).json]

    assert listed() == [second, first]
    assert listed("--limit", "1") == [second]
    assert listed("--source", "message") == [second]
    assert listed("--workflow", "greet") == listed("--workflow", "greet@1.0") == listed("--session", "s") == [first]
    assert listed("--status", "pending") == [second, first]
    assert listed("--status", "DEAD") == []


def test_trigger_list_shows_the_code_of_a_failure(cli, core):
    dead_letter(core)
    emit(core)
    run_one(core, HOPELESS)

    failed, dead = cli("trigger", "list").out.splitlines()[1:]

    assert failed.rstrip().endswith(f"{HOPELESS.code}: {HOPELESS.message}")
    assert dead.rstrip().endswith(f"{BROKEN.code}: {BROKEN.message}")


@pytest.mark.parametrize(("option", "names"), [("--status", "PENDING, CLAIMED"), ("--source", "MESSAGE, CONTINUATION")])
def test_bad_trigger_filter_names_the_valid_values(cli, core, option, names):
    refused = cli("trigger", "list", option, "blue")

    assert refused.code == 12
    assert "'blue' is unknown" in refused.err
    assert names in refused.err


def test_trigger_id_may_be_shortened_while_unambiguous(cli, core):
    first, second = emit(core).id, emit(core).id

    common = first[: next(i for i, (a, b) in enumerate(zip(first, second, strict=True)) if a != b)]
    unique = first[: len(common) + 1]

    assert cli("--json", "trigger", "show", unique).json["id"] == first
    ambiguous = cli("trigger", "show", common)
    assert (ambiguous.code, "several ids" in ambiguous.err) == (10, True)
    assert cli("trigger", "show", "").code == cli("trigger", "show", "zzz").code == 10


def test_hostile_text_of_a_trigger_is_printed_escaped(cli, core):
    hostile = "red \x1b[31m\x07 new\nline \u202e back"
    trigger_id = emit(core, description=hostile, payload={"a": hostile}).id

    for arguments in (["show", trigger_id], ["list"], ["why", trigger_id]):
        shown = cli("trigger", *arguments).out
        assert all(line.isprintable() for line in shown.splitlines())
        assert "new\nline" not in shown
    assert cli("--json", "trigger", "show", trigger_id).json["description"] == hostile


def test_trigger_show_has_moments_also_as_iso(cli, core):
    emitted = emit(core, payload={"name": "Ada"}, at=1_700_000_100.5)

    document = cli("--json", "trigger", "show", emitted.id).json

    assert (document["due_at"], document["due_at_iso"]) == (1_700_000_100.5, "2023-11-14T22:15:00.500Z")
    assert (document["settled_at"], document["settled_at_iso"]) == (None, None)
    assert (document["payload"], document["executions"]) == ({"name": "Ada"}, [])
    assert "2023-11-14 22:15:00Z" in cli("trigger", "show", emitted.id).out


def test_trigger_show_has_each_event_with_an_object_payload(tmp_path):
    (tmp_path / "app.py").write_text(APP)
    trigger_id = craftcore(tmp_path, "--json", "emit", "greet").json["id"]
    assert craftcore(tmp_path, "run", "app:app", "--until-idle").code == 0

    [record] = craftcore(tmp_path, "--json", "trigger", "show", trigger_id).json["executions"]

    assert {tuple(event) for event in record["events"]} == {("seq", "type", "at", "at_iso", "payload")}
    assert record["events"][0]["payload"]["intent"] == "greet"


def test_trigger_show_has_bodies_stored_as_blobs(cli, core):
    large = "x" * 100_000
    begun = begin(core, payload={"name": large})
    end(core, begun, Succeeded(result_json=f'"{large}"'))

    [record] = cli("--json", "trigger", "show", begun.claim.id).json["executions"]

    assert record["envelope"]["payload"] == {"name": large}
    assert record["response"] == {"metadata": {}, "payload": large, "status": "success"}
    assert {name for name in record if name.endswith("_blob")} == set()


def test_trigger_show_points_to_inspect_for_an_attempt_without_success(cli, core, database):
    begun = begin(core)

    shown = cli("--db", str(database), "trigger", "show", begun.claim.id).out

    assert shown.endswith(f"\nto retry or skip it:\n  craftcore --db {database} inspect {begun.id}\n")
    end(core, begun, Succeeded(result_json='"hi"'))
    assert "what can be done" not in cli("trigger", "show", begun.claim.id).out


# why


def why(cli, trigger_id):
    """Return code -> text of each reason, and check that each query can be run."""
    return {one["code"]: one["text"] for one in cli("--json", "trigger", "why", trigger_id).json["reasons"]}


def test_trigger_why_queries_can_be_run(cli, core):
    holder = emit(core, session_id="s:id").id
    start_one(core)
    waiting = emit(core, session_id="s:id").id

    reasons = cli("--json", "trigger", "why", waiting).json["reasons"]

    lane = next(one for one in reasons if one["code"] == "lane busy")
    assert [row["id"] for row in core.rows(lane["query"])] == [holder]
    assert all(core.rows(one["query"]) for one in reasons)


def test_trigger_waiting_behind_a_lone_suspect_names_the_suspect(core, database):
    suspect, waiting = emit(core).id, emit(core).id
    claim_all(core)
    outside, later = emit(core).id, emit(core, delay=60).id
    live = {"epoch": 0, "alone": suspect, "alone_since": 1_700_000_000.0, "alone_until": 1_700_000_060.0}
    core.do(set_fact, "live_state", json.dumps(live))

    def find_reasons(id: str) -> list[Finding]:
        with core.reading() as reader:
            trigger = TriggerStore().get(reader, id)
            assert trigger is not None
            return list_reasons(reader, trigger, core.clock.now(), daemon_runs=True, priority_weight=1)

    waits_to = f"waits for trigger {suspect}, which was in crashes and waits to run alone since 2023-11-14 22:13:20Z"
    assert [one.text for one in find_reasons(waiting)] == [
        f"claimed; {waits_to}, until 2023-11-14 22:14:20Z at the latest"
    ]
    assert [(one.code, one.text.startswith(waits_to)) for one in find_reasons(outside)] == [("alone", True)]
    assert all(core.rows(one.query) for one in [*find_reasons(waiting), *find_reasons(outside)])
    assert "waits for a free place" in find_reasons(suspect)[0].text
    assert [one.code for one in find_reasons(later)] == ["not due"]

    core.do(lambda tx: tx.run("UPDATE triggers SET started_at = :now WHERE id = :id", now=1.7e9, id=suspect))

    assert "and runs alone since 2023-11-14 22:13:20Z" in find_reasons(outside)[0].text


def test_future_trigger_shows_the_due_time(cli, core):
    trigger_id = emit(core, at=4e9).id

    found = why(cli, trigger_id)

    assert found["not due"].startswith("not due until 2096-10-02 07:06:40Z, in ")
    assert found["no daemon"] == "no daemon runs on this database. Start one: craftcore run MODULE:APP"
    assert f"{ROW.format(trigger_id)};" in cli("trigger", "why", trigger_id).out


def test_trigger_in_backoff_shows_the_failure(cli, database, clock):
    core = VirtualCore(database, clock)
    trigger_id = emit(core).id
    run_one(core, BROKEN)
    core.close()

    assert "attempt 1 failed with AGENT_ERROR: it broke" in why(cli, trigger_id)["backoff"]


def test_trigger_why_reports_lanes_holds_and_unknown_workflows(cli, core):
    first = emit(core, session_id="s").id
    second = emit(core, session_id="s").id
    core.do(lambda tx: tx.run("INSERT INTO facts VALUES ('held', 'it was restored')"))
    core.do(lambda tx: tx.run("INSERT INTO workflows VALUES ('other', 1)"))

    assert why(cli, second)["lane order"] == f"trigger {first} of its lane s comes first"
    assert why(cli, second)["held"] == "everything is held: it was restored. Look at it, then: craftcore release"
    assert "declared no workflow greet" in why(cli, second)["unknown workflow"]
    claim = claim_one(core)
    assert why(cli, second)["lane busy"] == f"its lane s is busy: trigger {first} is claimed"
    assert "epoch 1, which is gone; due when a daemon starts" in why(cli, first)["no daemon"]
    assert claim.id == first


@pytest.mark.parametrize(("source", "waits"), [("SCHEDULED", True), ("RESUME", True), ("MESSAGE", False)])
def test_scheduled_and_resumed_triggers_wait_for_the_end_of_safe_mode(cli, core, source, waits):
    trigger_id = emit(core, source=source).id
    core.do(lambda tx: tx.run("INSERT INTO facts VALUES ('safe_mode', '6 unclean starts within 10 minutes')"))

    reasons = {one["code"]: one for one in cli("--json", "trigger", "why", trigger_id).json["reasons"]}

    assert ("safe mode" in reasons) is waits
    if waits:
        reason = reasons["safe mode"]
        assert reason["text"] == (
            "safe mode, scheduled and resumed work waits: 6 unclean starts within 10 minutes. "
            "It ends after 10 minutes without a crash. Find out why the daemon dies; to end it now: craftcore release"
        )
        assert core.rows(reason["query"]) == [{"value": "6 unclean starts within 10 minutes"}]


def test_trigger_of_a_catch_up_is_reported_as_spaced_not_failed(cli, database, clock):
    core = VirtualCore(database, clock)
    spec = ScheduleSpec(id="s", when="every 1h", workflow="greet", overlap="allow", catch_up="all", catch_up_spacing=60)
    core.do(core.schedules.put, spec, Origin.OPERATOR)
    clock.advance(hours=2)
    core.do(core.ticks.tick)
    [_, second] = core.rows("SELECT id FROM triggers ORDER BY due_at")
    core.close()

    assert why(cli, second["id"])["spaced"].startswith("schedule s spaces what it catches up; not due until 2026-11-21")


def test_settled_trigger_shows_the_outcome(cli, core):
    trigger_id = emit(core).id
    run_one(core, HOPELESS)

    settled = why(cli, trigger_id)["settled"]

    assert settled.startswith("settled FAILED at 2023-11-14 22:13:20Z, reason: VALIDATION_ERROR: it")
    assert settled.endswith("it never will")


# cancel and requeue


def test_cancel_settles_a_pending_trigger_and_is_requested_for_a_running_trigger(cli, core):
    running = emit(core).id
    start_one(core)
    waiting = emit(core, at=4e9).id

    done = cli("trigger", "cancel", running, waiting, "--reason", "not needed")

    assert done.out == f"{running} has started; asked to cancel\n{waiting} cancelled\n"
    assert look(core, waiting).reason == "cancelled: not needed"
    assert look(core, running).cancel_requested_at is not None
    assert "cancellation was asked for" in why(cli, running)["no daemon"]
    again = cli("trigger", "cancel", waiting)
    assert (again.code, "cannot be cancelled" in again.err) == (1, True)


@pytest.mark.parametrize("reason", ["", " ", "x" * 501, "\udcff"])
def test_cancel_with_an_invalid_reason_changes_nothing(cli, core, reason):
    waiting = emit(core).id

    refused = cli("trigger", "cancel", waiting, "--reason", reason)

    assert (refused.code, "the reason must be 1 to 500 characters" in refused.err) == (64, True)
    assert look(core, waiting).status is TriggerStatus.PENDING


def test_cancel_of_many_triggers_prints_a_single_line(cli, core):
    for _ in range(60):
        emit(core)

    assert cli("trigger", "cancel", "--all", "--yes").out == "60 triggers: each cancelled\n"


def test_cancel_all_includes_schedules_only_with_the_option(cli, core):
    core.do(core.schedules.put, ScheduleSpec(id="nightly", when="every 1m", workflow="greet"), Origin.OPERATOR)
    life.suspend(core, life.begin(core), life.for_event("paid"))

    without_all = cli("trigger", "cancel", "--schedules", "--yes")
    assert (without_all.code, "--schedules needs --all" in without_all.err) == (64, True)
    assert cli("trigger", "cancel", "--all", "--yes").code == 0
    assert core.rows("SELECT status FROM tasks") == [{"status": "CANCELLED"}]
    assert core.rows("SELECT status FROM schedules") == [{"status": "ACTIVE"}]

    assert cli("trigger", "cancel", "--all", "--schedules", "--yes").code == 0
    assert core.rows("SELECT status FROM schedules") == [{"status": "REMOVED"}]


def test_cancel_with_an_unknown_id_cancels_nothing(cli, core):
    waiting = emit(core).id

    assert cli("trigger", "cancel", waiting, "nowhere").code == 10
    assert look(core, waiting).status is TriggerStatus.PENDING


@pytest.mark.parametrize("command", [["trigger", "cancel"], ["dead", "requeue"], ["dead", "discard"]], ids=" ".join)
def test_all_option_without_yes_or_a_terminal_is_refused(cli, core, command):
    emit(core)

    refused = cli(*command, "--all")

    assert (refused.code, "without a terminal" in refused.err) == (64, True)
    assert cli(*command).code == cli(*command, "--all", "x").code == 64
    assert [row["status"] for row in core.rows("SELECT status FROM triggers")] == ["PENDING"]
    assert cli(*command, "--all", "--yes").code == 0


def test_requeue_resets_the_attempts_of_a_dead_trigger(cli, core):
    trigger_id = dead_letter(core)

    [row] = cli("--json", "trigger", "requeue", trigger_id).json

    assert (row["status"], row["reason"], row["attempts"]) == ("PENDING", "requeued", 0)
    refused = cli("trigger", "requeue", trigger_id)
    assert (refused.code, "only DEAD and FAILED" in refused.err) == (1, True)


def test_dead_letters_are_listed_requeued_and_discarded(cli, core):
    first, second, third = dead_letter(core), dead_letter(core), dead_letter(core)
    assert {row["id"] for row in cli("--json", "dead", "list").json} == {first, second, third}
    assert "it broke" in cli("dead", "list").out

    assert cli("dead", "discard", first).out == f"{first} is discarded, and stays readable as FAILED\n"
    assert cli("dead", "requeue", "--all", "--yes").code == 0

    statuses = {row["id"]: row["status"] for row in core.rows("SELECT id, status FROM triggers")}
    assert statuses == {first: "FAILED", second: "PENDING", third: "PENDING"}
    assert cli("--json", "dead", "list").json == []
    assert cli("dead", "discard", first).code == 1


def test_damaged_trigger_payload_is_shown_as_stored(cli, core):
    trigger_id = emit(core).id
    core.do(lambda tx: tx.run("UPDATE triggers SET payload_json = '{broken'"))

    assert cli("--json", "trigger", "show", trigger_id).json["payload"] == "{broken"
    assert json.dumps("{broken").strip('"') in cli("trigger", "show", trigger_id).out
