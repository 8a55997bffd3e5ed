"""The facts of an event of a task's stream, in one line. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from craftcore.diagnostics.text.printable import Verbatim, show_json
from craftcore.executions.model import EventType
from craftcore.log_format import escape_control
from craftcore.serialization.time_text import clock_time, format_span

_JSON_FACTS = frozenset({"value", "question", "result", "data"})
"""Facts that are shown as JSON, which escapes by itself."""


def event_text(type_: str, facts: Any) -> Verbatim:
    """Return `weather -> {"sky":"blue"} after 0.3 s`. An event of unknown type, or a damaged one, is shown as it is."""
    try:
        return Verbatim(_text(EventType(type_), {name: _escape_value(name, value) for name, value in facts.items()}))
    except (ValueError, KeyError, TypeError, AttributeError):
        return _json(facts)


def _text(type_: EventType, facts: dict[str, Any]) -> str:
    match type_:
        case EventType.INTENT_RECEIVED:
            return facts["intent"] or "no workflow named"
        case EventType.AGENT_ATTEMPT_START:
            return f"{facts['agent']}, attempt {facts['attempt_num']}"
        case EventType.AGENT_ATTEMPT_END:
            return f"{facts['agent']}: {facts.get('error_code') or facts['status']}{_delay_text(facts)}"
        case EventType.ROUTER_DECISION:
            return f"{facts['agent']}: {facts['reason']}"
        case EventType.FINAL_RESPONSE:
            return str(facts.get("error_code") or facts["status"])
        case EventType.FALLBACK_TRIGGERED:
            return f"{facts['from_agent']} -> {facts['to_agent']}"
        case EventType.OVERDUE:
            return f"due {clock_time(facts['due_at'])}, {format_span(facts['overdue_seconds'])} late"
        case EventType.CANCEL_REQUESTED | EventType.TURN_CONTINUED:
            return ""
        case EventType.ATTEMPT_RELEASED:
            return str(facts["reason"])
        case EventType.TURN_ENTERED:
            return _entered_text(facts)
        case EventType.TURN_SUSPENDED:
            return _suspension_text(facts)
        case EventType.STEP_COMPLETED:
            return f"{name_step(facts)} -> {_json(facts['result'])}{_delay_text(facts)}"
        case EventType.STEP_FAILED:
            again = f"; again after {format_span(facts['retry_in'])}"
            return f"{name_step(facts)}, attempt {facts['attempt']}: {facts['error']}{again}"
        case EventType.NOTE:
            return f"{name_step(facts)}: {_json(facts['data'])}"
        case EventType.EMITTED | EventType.CHILD_STARTED:
            there = "" if facts["created"] else ", which was there already"
            return f"{facts['workflow'] or 'no workflow named'}: {facts['id']}{there}"
        case EventType.DELIVERED:
            return f"to task {facts['task']}"
        case EventType.ACTIVITY_INTENT:
            again = "" if facts["attempt"] == 1 else f", call {facts['attempt']}"
            return f"{facts['action']}{again}: {facts['key']}"
        case EventType.ACTIVITY_DONE:
            return f"{facts['action']} -> {facts['provider_ref'] or 'done'}"
        case EventType.ACTIVITY_FAILED | EventType.ACTIVITY_UNKNOWN:
            error = f": {facts['error']}" if facts.get("error") else ""
            return f"{facts['action']}: {facts['reason']}{error}"
        case EventType.ACTIVITY_RESOLVED:
            reference = f" ({facts['reference']})" if facts["reference"] else ""
            return f"{facts['action']}: {facts['decision']}{reference}, by {facts['by']}"


def _entered_text(facts: dict[str, Any]) -> str:
    done = f"; {facts['completed']} completed before" if facts["completed"] else ""
    brought = f": {facts['wait']} -> {_json(facts['value'])} by {facts['resolved_by']}" if "wait" in facts else ""
    return f"{facts['resume']}{brought}{done}"


def _suspension_text(facts: dict[str, Any]) -> str:
    if facts["kind"] == "first":
        return " or ".join(_suspension_text(alternative) for alternative in facts["first_of"])
    if facts["kind"] == "several":
        return "; ".join(_suspension_text(wait) for wait in facts["waits"])
    until = "" if facts["due_at"] is None else f" until {clock_time(facts['due_at'])}"
    match facts["kind"]:
        case "event":
            what = f" for the event {facts['event']}"
        case "question":
            what = f" for an answer to {_json(facts['question'])}"
        case _:
            what = ""  # the name of the wait says it
    return f"{facts['wait']}{what}{until}"


def name_step(facts: Mapping[str, Any]) -> str:
    """Return `weather`, and with its key `weather/rome`."""
    return str(facts["name"]) if facts["key"] is None else f"{facts['name']}/{facts['key']}"


def _delay_text(facts: dict[str, Any]) -> str:
    return f" after {format_span(facts['latency_ms'] / 1000)}"


def _escape_value(name: str, value: Any) -> Any:
    """Return the value, without what could act on a terminal: JSON and text are escaped once each."""
    if name in _JSON_FACTS or value is None or type(value) in (bool, int, float):
        return value
    return escape_control(value) if isinstance(value, str) else show_json(value, compact=True)


def _json(value: Any) -> Verbatim:
    return show_json(value, compact=True)
