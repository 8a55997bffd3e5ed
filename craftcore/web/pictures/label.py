"""The label of an event in a picture: a few words, without what its payload holds. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from craftcore.diagnostics.text.event_text import name_step
from craftcore.executions.model import EventType
from craftcore.web.pictures.mark import MarkKind, Sense

KINDS: Mapping[str, tuple[MarkKind, Sense]] = {
    EventType.STEP_COMPLETED: (MarkKind.STEP, Sense.DONE),
    EventType.STEP_FAILED: (MarkKind.STEP, Sense.FAILED),
    EventType.ACTIVITY_INTENT: (MarkKind.INTENT, Sense.WORK),
    EventType.ACTIVITY_DONE: (MarkKind.OUTCOME, Sense.DONE),
    EventType.ACTIVITY_FAILED: (MarkKind.OUTCOME, Sense.FAILED),
    EventType.ACTIVITY_UNKNOWN: (MarkKind.OUTCOME, Sense.UNKNOWN),
    EventType.ACTIVITY_RESOLVED: (MarkKind.OUTCOME, Sense.DONE),
    EventType.TURN_SUSPENDED: (MarkKind.EVENT, Sense.WAITING),
    EventType.CANCEL_REQUESTED: (MarkKind.EVENT, Sense.FAILED),
}
"""The types of events that do not look like all others."""

TYPES: Mapping[str, EventType] = {one.value: one for one in EventType}

PLAIN = (MarkKind.EVENT, Sense.WORK)
LABEL_MAX = 120


def kind_of(type_: str) -> tuple[MarkKind, Sense]:
    """Return how an event is drawn; one of unknown type is a plain one."""
    return KINDS.get(type_, PLAIN)


def latency_of(type_: str, facts: Any) -> float:
    """Return for how many seconds an event tells that it took; 0.0 when it does not say so, or not in a number."""
    if type_ != EventType.STEP_COMPLETED or not isinstance(facts, Mapping):
        return 0.0
    took = facts.get("latency_ms")
    return took / 1000 if isinstance(took, (int, float)) and 0 < took < math.inf else 0.0


def event_label(type_: str, facts: Any) -> str:
    """Return `write`, `bank.transfer INTENT`, `RETRY`. A damaged event, or one of unknown type, has its type."""
    try:
        return _label(TYPES[type_], facts)[:LABEL_MAX]
    except (ValueError, KeyError, TypeError, AttributeError):
        return type_[:LABEL_MAX]


def _label(type_: EventType, facts: Any) -> str:
    match type_:
        case EventType.STEP_COMPLETED:
            return name_step(facts)
        case EventType.STEP_FAILED:
            return f"{name_step(facts)}, attempt {facts['attempt']} failed"
        case EventType.NOTE:
            return f"note {name_step(facts)}"
        case EventType.EMITTED | EventType.CHILD_STARTED:
            verb = "emitted" if type_ is EventType.EMITTED else "child"
            return f"{verb} {facts['workflow'] or ''} {facts['id']}"
        case EventType.TURN_ENTERED:
            return f"entered: {facts['resume']}"
        case EventType.TURN_SUSPENDED:
            return f"waits: {facts['wait']}"
        case EventType.ACTIVITY_INTENT:
            again = "" if facts["attempt"] == 1 else f", call {facts['attempt']}"
            return f"{facts['action']} INTENT{again}"
        case EventType.ACTIVITY_DONE:
            reference = f", reference {facts['provider_ref']}" if facts.get("provider_ref") else ""
            return f"{facts['action']} DONE{reference}"
        case EventType.ACTIVITY_FAILED:
            return f"{facts['action']} FAILED"
        case EventType.ACTIVITY_UNKNOWN:
            return f"{facts['action']} UNKNOWN"
        case EventType.ACTIVITY_RESOLVED:
            return f"{facts['action']} {facts['decision']}, by {facts['by']}"
        case EventType.AGENT_ATTEMPT_START:
            return f"{facts['agent']} starts"
        case EventType.AGENT_ATTEMPT_END:
            return f"{facts['agent']} ends: {facts.get('error_code') or facts['status']}"
        case EventType.FALLBACK_TRIGGERED:
            return f"{facts['from_agent']} -> {facts['to_agent']}"
        case EventType.FINAL_RESPONSE:
            return f"response: {facts.get('error_code') or facts['status']}"
        case EventType.ATTEMPT_RELEASED:
            return f"released: {facts['reason']}"
        case _:
            return type_.lower().replace("_", " ")
