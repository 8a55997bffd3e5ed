"""`craftcore session`: the conversation of a session is listed, and forgotten on purpose."""

from __future__ import annotations

from tests.support.damage import NO_TEXT, damage
from tests.support.populated_database import WorldCopy


def test_history_lists_the_newest_messages(cli, here):
    listed = cli("session", "history", "lobby")
    assert listed.code == 0
    assert [line.split()[0] for line in listed.out.splitlines()] == ["number", "1", "2"]
    assert '{"user":"hello"}' in listed.out

    [message] = cli("--json", "session", "history", "lobby", "--limit", "1").json
    assert (message["number"], message["message"], message["task_id"]) == (2, "ho", here.world.asks)
    assert [one["number"] for one in cli("--json", "session", "history", "lobby", "--before", "2").json] == [1]
    assert cli("--json", "session", "history", "nobody").json == []


def test_damaged_message_is_named_and_hides_no_other(cli, here, database):
    damage(database, "session_messages", f"task_id = {NO_TEXT}", "number = ?", 2)

    result, shown = cli("--json", "session", "history", "lobby"), cli("session", "history", "lobby")
    assert (result.code, shown.code) == (65, 65)
    assert [one.get("number", one["id"] if "damaged" in one else None) for one in result.json] == [1, "2"]
    assert "damaged" in shown.out
    assert "hello" in shown.out


def test_forget_removes_the_conversation_and_is_audited(cli, here: WorldCopy):
    assert cli("session", "forget", "lobby").out == "2 messages of session lobby removed\n"

    assert cli("--json", "session", "history", "lobby").json == []
    row = here.rows()[-1]
    assert (row.action, row.subject, row.details["messages"]) == ("session forget", "lobby", 2)
    refused = cli("session", "forget", "lobby")
    assert refused.code == 10
    assert "no turn of session lobby has appended a message" in refused.err
