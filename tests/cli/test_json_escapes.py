"""JSON in text output: each string is escaped once, by the rules of JSON."""

from __future__ import annotations

import pytest

from craftcore.audit.model import Actor
from craftcore.audit.store import audit, list_rows
from craftcore.cli.audit import _cells
from craftcore.cli.execution.diff import _show_value
from craftcore.cli.output import Output
from craftcore.diagnostics.text.event_text import event_text
from craftcore.schedules.model import Origin, ScheduleSpec

VALUE = {"said": 'he said "no"', "where": "C:\\temp", "name": "é", "bell": "\x07"}
ONCE = [r"he said \"no\"", r"C:\\temp", "é", r"\u0007"]


def assert_once(text: str) -> None:
    """Check that each string is escaped once, by the rules of JSON."""
    assert [one for one in ONCE if one not in text] == []
    assert [twice for twice in (r"\\\"", r"C:\\\\", r"\u00e9", r"\\u0007") if twice in text] == []
    assert all(line.isprintable() for line in text.splitlines())


@pytest.mark.parametrize(
    ("type_", "facts"),
    [
        ("NOTE", {"name": "n", "key": None, "data": VALUE}),
        ("STEP_COMPLETED", {"name": "n", "key": None, "latency_ms": 1.0, "result": VALUE}),
        ("TURN_SUSPENDED", {"wait": "w", "kind": "question", "due_at": None, "question": VALUE}),
        ("TURN_ENTERED", {"resume": "x", "completed": 0, "wait": "w", "value": VALUE, "resolved_by": "b"}),
        ("UNKNOWN_TYPE", VALUE),
        ("NOTE", VALUE),
    ],
)
def test_event_text_escapes_json_once(capsys, type_, facts):
    Output(as_json=False).line("", event_text(type_, facts))
    assert_once(capsys.readouterr().out)


@pytest.mark.parametrize("reason", ["\x1b[31mred", "a\nline", "\x9b"])
def test_event_text_is_printable_with_hostile_text(reason):
    text = event_text("ROUTER_DECISION", {"agent": reason, "reason": reason})
    assert text.isprintable()
    assert event_text("ROUTER_DECISION", {"agent": "a", "reason": [reason]}).isprintable()


def test_diff_escapes_json_once(capsys):
    Output(as_json=False).table(["what", "A"], [["response", _show_value(VALUE)]])
    assert_once(capsys.readouterr().out)


def test_audit_details_escape_json_once(core):
    core.do(lambda tx: audit(tx, Actor(uid=1, name="a"), "task cancel", "x", details={"before\x1b": VALUE}))
    with core.reading() as reader:
        [row] = list(list_rows(reader))
    assert_once(str(_cells(row)[-1]))


def test_schedule_payload_escapes_json_once(cli, core):
    spec = ScheduleSpec(id="s", when="@daily", workflow="greet", payload=VALUE)
    core.do(core.schedules.put, spec, Origin.OPERATOR)
    assert_once(cli("schedule", "show", "s").out)
