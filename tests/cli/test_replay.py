"""`craftcore replay`, `export` and `diff`: recorded responses are returned and compared, and nothing is executed."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from craftcore.triggers.settlement import Failed, Released, Succeeded
from tests.support.record_steps import (
    HELLO,
    TIMEOUT,
    checkpoint,
    fingerprint,
    invalidate,
    look,
    record_attempt,
    spoil,
    strip,
)


def one_line(result, code, *words):
    assert result.code == code, result
    [line] = result.err.splitlines()
    assert line.startswith("craftcore: ")
    for word in words:
        assert word in line


def write(name: str, value: Any) -> str:
    Path(name).write_text(value if isinstance(value, str) else json.dumps(value), "utf-8")
    return name


# replay


def test_replay_prints_the_recorded_response(cli, core):
    record_attempt(core, id="t")

    result = cli("replay", "exec-t.1")

    assert (result.code, result.err) == (0, "")
    assert result.json == {
        "status": "success",
        "payload": {"hello": "Ada"},
        "metadata": {},
        "error": None,
        "from_replay": True,
        "original_execution_id": "exec-t.1",
        "original_timestamp": "2026-11-21T12:00:00.000Z",
        "warnings": [],
    }
    assert cli("--json", "replay", "exec-t.1").out == result.out


def test_replay_of_a_recorded_error_exits_0(cli, core):
    record_attempt(core, TIMEOUT, id="t")

    result = cli("replay", "exec-t.1")

    assert result.code == 0
    assert (result.json["status"], result.json["payload"]) == ("error", None)
    assert result.json["error"]["code"] == "AGENT_TIMEOUT"


def test_replay_id_may_be_shortened(cli, core):
    record_attempt(core, id="other")
    record_attempt(core, id="t-1")

    for given in ("exec-t-1.1", "exec-t", "exec-t…"):
        assert cli("replay", given).json["original_execution_id"] == "exec-t-1.1"


def test_replay_finds_the_longest_possible_id(cli, core):
    record_attempt(core, id="t" * 200)

    assert cli("replay", "exec-" + "t" * 200 + ".1").code == 0
    assert cli("diff", "exec-" + "t" * 198, "exec-" + "t" * 200 + ".1").code == 0


def test_replay_of_an_unknown_ambiguous_or_trigger_id_exits_10(cli, core):
    record_attempt(core, id="t1")
    record_attempt(core, id="t2")

    one_line(cli("replay", "nobody"), 10, "no execution has the id 'nobody'", "craftcore inspect --list")
    one_line(cli("replay", "exec-t"), 10, "fits several ids: exec-t1.1, exec-t2.1")
    one_line(cli("replay", "t1"), 10, "t1 is a trigger", "exec-t1.1")
    one_line(cli("replay", ""), 10, "no execution")
    one_line(cli("replay", "exec-é%"), 10, "no execution")
    result = cli("--json", "replay", "nobody")
    assert result.json["error"]["code"] == "NOT_FOUND"


def test_replay_without_a_database_exits_10_and_creates_none(cli, database):
    one_line(cli("replay", "t"), 10, "no such database")
    assert not database.exists()


def test_replay_of_an_unreplayable_record_exits_11_with_the_reason(cli, core):
    gone = record_attempt(core, id="gone")
    invalidate(core, gone)
    record_attempt(core, Released(reason="shutdown"), id="open")

    one_line(cli("replay", "exec-open"), 11, "exec-open.1 cannot be replayed (execution_incomplete)")
    one_line(cli("replay", "exec-gone"), 11, "manually_invalidated", "it names another customer")
    result = cli("replay", "exec-gone", "--json")
    assert result.json["error"] == {
        "execution_id": "exec-gone.1",
        "reason": "manually_invalidated",
        "code": "NOT_REPLAYABLE",
        "message": result.err.removeprefix("craftcore: ").strip(),
        "exit_code": 11,
    }


def test_replay_with_force_prints_the_record_with_warnings(cli, core):
    gone = record_attempt(core, id="gone")
    invalidate(core, gone)
    record_attempt(core, None, id="open")

    result = cli("replay", "exec-gone", "--force")
    assert result.code == 0
    assert result.json["payload"] == {"hello": "Ada"}
    assert result.json["warnings"][0] == "Forced replay of non-replayable record"
    one_line(result, 0, "exec-gone.1: Forced replay", "names another customer")
    assert cli("replay", "exec-open", "--force").json["payload"] is None
    assert cli("--json", "replay", "exec-open", "--force").err == ""


def test_replay_verifies_a_given_envelope(cli, core):
    record = look(core, record_attempt(core, id="t", payload={"n": 1, "m": 2}))
    assert record.envelope is not None
    same = write("same.json", dict(reversed(record.envelope.items())) | {"routingMetadata": {"hop": 1}})
    other = write("other", record.envelope | {"payload": {"n": 2, "m": 2}})

    assert cli("replay", "exec-t", "--verify-envelope", same).code == 0
    assert cli("export", "exec-t", "-o", "whole.json").code == 0
    assert cli("replay", "exec-t", "--verify-envelope", "whole.json").code == 0
    one_line(cli("replay", "exec-t", "--verify-envelope", other), 11, "another envelope", record.envelope_hash)
    one_line(cli("replay", "exec-t", "--force", "--verify-envelope", other), 11, "another envelope")
    refused = cli("--json", "replay", "exec-t", "--verify-envelope", other).json["error"]
    assert refused["code"] == "REPLAY_HASH_MISMATCH"
    assert refused["recorded"] == record.envelope_hash != refused["provided"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[1]", ["must be a JSON object, not list"]),
        ("{", ["is not JSON", "line 1, column 2"]),
        ('{"a":1,"a":2}', ["'a' twice"]),
        ('{"a":NaN}', ["NaN"]),
        ('{"a":1e999}', ["not JSON"]),
        ('{"a":' * 100_000, ["not JSON"]),
        (None, ["cannot be read", "No such file"]),
    ],
    ids=lambda value: str(value)[:20],
)
def test_replay_with_an_invalid_envelope_exits_64(cli, core, text, words):
    record_attempt(core, id="t")
    if text is not None:
        write("envelope.json", text)

    one_line(cli("replay", "exec-t", "--verify-envelope", "envelope.json"), 64, "envelope", *words)


def test_replay_of_several_ids_answers_each_and_exits_with_the_highest_code(cli, core):
    record_attempt(core, id="a")
    record_attempt(core, None, id="open")
    record_attempt(core, Succeeded(), id="b")
    write("bad.json", "{}")

    good = cli("replay", "exec-a", "exec-b")
    unknown = cli("replay", "exec-a", "nobody", "exec-b")
    refused = cli("replay", "exec-a", "exec-open", "nobody", "exec-b")
    unreadable = cli("replay", "bad.json", "exec-open", "nobody", "exec-b")

    assert [one.code for one in (good, unknown, refused, unreadable)] == [0, 10, 11, 64]
    assert [row["payload"] for row in good.json] == [{"hello": "Ada"}, None]
    assert [row.get("original_execution_id") for row in refused.json] == ["exec-a.1", None, None, "exec-b.1"]
    assert refused.json[1] == {
        "given": "exec-open",
        "refused": {
            "code": "NOT_REPLAYABLE",
            "execution_id": "exec-open.1",
            "reason": "execution_incomplete",
            "message": refused.err.splitlines()[0].removeprefix("craftcore: "),
            "exit_code": 11,
        },
    }
    assert refused.json[2]["refused"]["code"] == "NOT_FOUND"
    assert len(refused.err.splitlines()) == 2
    assert cli("--json", "replay", "exec-a", "nobody").err == ""


def test_damaged_row_does_not_stop_replay_of_the_others(cli, core):
    bad = record_attempt(core, id="bad")
    record_attempt(core, id="good")
    spoil(core, "UPDATE executions SET workflow = CAST(X'ff' AS TEXT) WHERE id = :id", id=bad)

    result = cli("replay", "exec-bad", "exec-good")

    assert result.code == 11
    assert result.json[0]["refused"]["reason"] == "record_corrupted"
    assert result.json[1]["payload"] == {"hello": "Ada"}
    one_line(cli("replay", "exec-bad"), 11, "record_corrupted")
    one_line(cli("export", "exec-bad"), 65, "a damaged row cannot be read")
    one_line(cli("diff", "exec-bad", "exec-good"), 65, "a damaged row cannot be read")


def test_replay_export_and_diff_change_no_row_or_byte(cli, core):
    for name in "ab":
        record_attempt(core, Succeeded(result_json=json.dumps(name * 100_000)), id=name)
    gone = record_attempt(core, id="gone")
    invalidate(core, gone)
    checkpoint(core)
    before = fingerprint(core)

    cli("replay", "exec-a")
    cli("replay", "exec-gone", "--force")
    cli("export", "exec-a", "-o", "a.json")
    cli("diff", "exec-a", "exec-b")
    cli("diff", "a.json", "exec-gone")

    assert fingerprint(core) == before
    checkpoint(core)
    assert fingerprint(core) == before


# export


def test_export_prints_the_document(cli, core):
    record_attempt(core, id="t")

    result = cli("export", "exec-t")

    assert result.code == 0
    assert list(result.json) == ["header", "envelope", "routerDecision", "events", "finalResponse", "craftcore"]
    assert result.json["header"]["executionId"] == "exec-t.1"
    assert result.out == cli("--json", "export", "exec-t").out


def test_export_writes_a_private_file_and_prints_the_size(cli, core):
    record_attempt(core, id="t")
    write("t.json", "old")

    result = cli("export", "exec-t", "-o", "t.json")

    assert result.out == f"exec-t.1 is in t.json: 5 events, {os.path.getsize('t.json'):,} bytes\n"
    assert stat.S_IMODE(os.stat("t.json").st_mode) == 0o600
    assert json.loads(Path("t.json").read_text()) == cli("export", "exec-t").json
    document = cli("--json", "export", "exec-t", "-o", "t.json").json
    assert document == {"execution_id": "exec-t.1", "file": "t.json", "bytes": os.path.getsize("t.json")}


def test_export_of_an_open_record_warns_that_replay_is_impossible(cli, core):
    record_attempt(core, None, id="open")

    assert (
        cli("export", "exec-open", "-o", "open.json").out.splitlines()[1]
        == "it cannot be replayed: execution_incomplete"
    )
    assert cli("replay", "./open.json").code == 11


@pytest.mark.parametrize(
    "name", ["agent.db", "./agent.db", "link", "agent.db-wal", "agent.db.lock", "folder", "no/where", ""]
)
def test_export_never_overwrites_the_database_or_a_special_file(cli, core, database, name):
    record_attempt(core, id="t")
    Path("folder").mkdir()
    Path("link").symlink_to("agent.db")
    before = sorted(os.listdir())

    result = cli("export", "exec-t", "-o", name)

    one_line(result, result.code)
    assert result.code in (64, 73)
    assert sorted(os.listdir()) == before
    assert cli("replay", "exec-t").code == 0


def test_exported_file_is_replayed_on_another_machine(cli, core, database, tmp_path):
    record_attempt(core, TIMEOUT, id="t")
    here = cli("replay", "exec-t").json
    cli("export", "exec-t", "-o", "t.json")
    core.close()
    for file in tmp_path.glob("agent.db*"):
        file.unlink()

    assert cli("replay", "t.json").json == here
    assert cli("replay", str(tmp_path / "t.json")).json == here
    assert not database.exists()


def test_edited_export_file_is_refused(cli, core):
    record_attempt(core, id="t")
    document = cli("export", "exec-t").json
    write("edited.json", json.dumps(document).replace("Ada", "Eve"))
    document["events"][3]["seq"] = "four"
    write("broken.json", document)

    one_line(cli("replay", "edited.json"), 11, "record_corrupted", "response")
    one_line(
        cli("replay", "broken.json"),
        64,
        "broken.json: it is not the document of a record: events[3].seq: Expected `int`",
    )
    one_line(cli("replay", "nowhere.json"), 64, "nowhere.json cannot be read: No such file")
    one_line(cli("diff", "exec-t", "broken.json"), 64, "events[3].seq")
    Path("bytes.json").write_bytes(b'{"a": "\xff"}')
    one_line(cli("replay", "bytes.json"), 64, "not UTF-8")


# diff


def test_diff_treats_equal_records_as_the_same_despite_ids_and_times(cli, core, clock):
    record_attempt(core, id="a", payload={"n": 1})
    clock.advance(minutes=3)
    record_attempt(core, id="b", payload={"n": 1})

    result = cli("diff", "exec-a", "exec-b")

    assert result.code == 0, result
    assert result.out.splitlines() == [
        "A  exec-a.1  2026-11-21 12:00:00Z  success",
        "B  exec-b.1  2026-11-21 12:03:00Z  success",
        "",
        "they say the same: status, response, envelope, routing and 5 events",
        "",
        "beside what every record has of its own: ids, times, latencies; --json has those, too",
    ]
    document = cli("--json", "diff", "exec-a", "exec-b").json
    assert document["same"] is True
    assert all(one["own"] for one in document["differences"])
    paths = {one["path"] for one in document["differences"]}
    assert {"id", "created_at", "envelope.metadata.requestId", "events.1.at", "events.1.timestamp"} <= paths
    assert document["a"]["execution_id"] == "exec-a.1"
    assert document["a"]["created_at_iso"] == "2026-11-21T12:00:00.000Z"


def test_record_and_export_have_no_differences(cli, core):
    record_attempt(core, id="a")
    cli("export", "exec-a", "-o", "a.json")

    assert cli("diff", "exec-a", "a.json").out.splitlines()[-1].startswith("they say the same")
    document = cli("diff", "a.json", "exec-a", "--json").json
    assert (document["same"], document["differences"]) == (True, [])
    assert (document["a"]["file"], document["b"]["file"]) == ("a.json", None)


def test_differences_are_named_by_path(cli, core):
    record_attempt(
        core, Succeeded(result_json='{"items":[{"price":1},{"price":2}],"n":1,"same":true}'), id="a", payload={"n": 1}
    )
    record_attempt(core, Succeeded(result_json='{"items":[{"price":1},{"price":3}],"n":1.0,"more":null}'), id="b")
    record_attempt(core, TIMEOUT, id="c", payload={"n": 1})

    result = cli("diff", "exec-a", "exec-b")
    assert result.code == 1
    assert [line.split() for line in result.out.splitlines()[3:-2]] == [
        ["what", "A", "B"],
        ["response.payload.items[1].price", "2", "3"],
        ["response.payload.more", "(not", "there)", "null"],
        ["response.payload.n", "1", "1.0"],
        ["response.payload.same", "true", "(not", "there)"],
        ["envelope.payload.n", "1", "(not", "there)"],
    ]

    document = cli("--json", "diff", "exec-a", "exec-c").json
    counted = {one["path"]: one for one in document["differences"] if not one["own"]}
    assert counted["status"] == {"path": "status", "a": "success", "b": "error", "own": False}
    assert counted["error_code"]["b"] == "AGENT_TIMEOUT"
    assert counted["events.5.has_error"] == {"path": "events.5.has_error", "a": False, "b": True, "own": False}
    assert "a" not in counted["response.error"]
    assert "b" not in counted["response.payload"]


def test_events_are_compared_by_position(cli, core):
    record_attempt(core, id="a")
    record_attempt(core, Released(reason="shutdown"), id="b")

    lines = [line.split() for line in cli("diff", "exec-a", "exec-b").out.splitlines()]

    assert ["events.3", "AGENT_ATTEMPT_END", "ATTEMPT_RELEASED"] in lines
    assert ["events.4", "ROUTER_DECISION", "(not", "there)"] in lines
    assert ["events.5", "FINAL_RESPONSE", "(not", "there)"] in lines
    assert ["not_replayable", "null", "execution_incomplete"] in lines


def test_long_text_is_shown_at_the_difference(cli, core):
    record_attempt(core, Succeeded(result_json=json.dumps("x" * 5_000 + "left" + "y" * 5_000)), id="a")
    record_attempt(core, Succeeded(result_json=json.dumps("x" * 5_000 + "right" + "y" * 5_000)), id="b")

    result = cli("diff", "exec-a", "exec-b")

    assert "xxleftyy" in result.out
    assert "xxrightyy" in result.out
    assert max(map(len, result.out.splitlines())) < 160


def test_many_differences_are_cut_and_counted(cli, core):
    for name, start in (("a", 0), ("b", 1000)):
        record_attempt(core, Succeeded(result_json=json.dumps(list(range(start, start + 100)))), id=name)

    result = cli("diff", "exec-a", "exec-b")

    assert result.out.splitlines()[-1] == "and 60 more; --json has all of them"
    assert len(result.out.splitlines()) == 3 + 1 + 40 + 1
    assert sum(not one["own"] for one in cli("--json", "diff", "exec-a", "exec-b").json["differences"]) == 100


def test_hostile_text_in_a_diff_is_printed_escaped(cli, core):
    record_attempt(core, Failed(code="AGENT_ERROR", message="\x1b[2J\nA  exec-b.1", retryable=False), id="a")
    record_attempt(core, Failed(code="AGENT_ERROR", message="fine", retryable=False), id="b")

    result = cli("diff", "exec-a", "exec-b")

    assert "\x1b" not in result.out
    assert "\\x1b[2J" in result.out
    assert len([line for line in result.out.splitlines() if line.startswith("A  ")]) == 1


def test_damaged_record_is_reported_before_the_differences(cli, core):
    bad = record_attempt(core, id="bad")
    record_attempt(core, id="good")
    spoil(core, "UPDATE executions SET response_json = 'gone' WHERE id = :id", id=bad)
    stripped = record_attempt(core, HELLO, id="stripped")
    strip(core, stripped)

    result = cli("diff", "exec-bad", "exec-good")

    assert result.code == 1
    assert result.out.splitlines()[1] == "   its response is not the one that its hash was made of"
    assert "gone" in result.out
    assert cli("--json", "diff", "exec-bad", "exec-good").json["a"]["faults"] == [
        "its response is not the one that its hash was made of"
    ]
    assert cli("diff", "exec-stripped", "exec-good").code == 1


def test_diff_of_an_unknown_id_exits_10(cli, core):
    record_attempt(core, id="a")

    one_line(cli("diff", "exec-a", "nobody"), 10, "nobody")
    one_line(cli("diff", "exec-a"), 64, "Missing argument 'B'")
