"""The view of a whole activity for people: its facts, its decisions, and the commands that settle it."""

from __future__ import annotations

from typing import Any

from craftcore.activities.model import Activity, ActivityStatus, Decision
from craftcore.activities.result_shape import describe_required
from craftcore.cli.session import Session
from craftcore.diagnostics.text.activity_text import decisions_for
from craftcore.diagnostics.text.event_text import event_text
from craftcore.diagnostics.text.printable import Verbatim, show_json
from craftcore.registry.call import message_id
from craftcore.serialization.display import shorten
from craftcore.serialization.time_text import clock_time
from craftcore.tasks.model import Task

EVENT_COLUMNS = ("time", "type", "record", "what")
DECISION_COLUMNS = ("decided", "by", "decision", "reference", "note")
FLAGS = {Decision.HAPPENED: "--happened", Decision.RESEND: "--resend", Decision.GIVE_UP: "--give-up"}
"""The options of `activity resolve`, one for each decision."""

TEXT_MAX = 1_000
EMAIL = "email.send"


def print_activity(session: Session, found: Activity, task: Task, document: dict[str, Any], means: str | None) -> None:
    """Print an activity with what belongs to it. `means`: its status in words."""
    out = session.out
    out.line(f"{found.key} is {found.status}: {found.reason}", style="bold")
    if means is not None:
        out.line(f"  {means}")
    out.line()
    again = f", the last at {clock_time(found.last_call_at)}" if found.calls > 1 else ""
    arguments = "(too large to be kept, or stripped)" if found.request_json is None else _value(document["arguments"])
    out.facts(
        {
            "action": found.action,
            "task": f"{task.id} of {task.workflow}, {task.status}; called at its turn {found.turn}",
            "arguments": arguments,
            "calls": f"{found.calls:,}, the first at {clock_time(found.first_call_at)}{again}",
            "mailed as": _message_id(found),
            "policy": found.policy,
            "reference": found.provider_ref,
            "result": None if found.result_json is None else _value(document["result"]),
            "unstored": found.result_unstored,
            "error": None if found.error_code is None else f"{found.error_code}: {found.error_message}",
            "settled": None if found.settled_at is None else clock_time(found.settled_at),
        }
    )
    if document["decisions"]:
        names = ("decided_by", "decision", "reference", "note")
        out.line()
        out.table(
            DECISION_COLUMNS,
            [(clock_time(one["decided_at"]), *(one[name] for name in names)) for one in document["decisions"]],
        )
    if document["events"]:
        out.line()
        out.table(EVENT_COLUMNS, [_event_cells(one) for one in document["events"]])
    if open_to := decisions_for(found):
        out.line()
        purpose = "To send it again" if found.status is ActivityStatus.FAILED else "To settle it"
        needed = describe_required(found.result_shape)
        takes = "the reference of the provider" if needed is None else f"the result of the action: {needed}"
        out.line(f"{purpose}{f' (--happened takes {takes})' if len(open_to) > 1 else ''}:")
        for decision in open_to:
            session.suggest("activity", "resolve", found.key, FLAGS[decision])


def _message_id(found: Activity) -> str | None:
    """Return the Message-ID of a mail in doubt, which has no result that shows it."""
    if found.status is ActivityStatus.DONE or found.action != EMAIL:
        return None
    return f"{message_id(found.key, '')[:-1]}… (the domain is that of its sender)"


def _event_cells(document: dict[str, Any]) -> tuple[object, ...]:
    return (
        clock_time(document["at"]),
        document["type"],
        document["execution_id"],
        event_text(document["type"], document["payload"]),
    )


def _value(value: Any) -> Verbatim:
    return Verbatim(shorten(show_json(value), TEXT_MAX))
