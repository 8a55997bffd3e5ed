"""`/records/{id}`: the record of one attempt: its header, its seal, its events, and what to do about it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from craftcore.diagnostics.records.record_advice import Advice, read_advice
from craftcore.diagnostics.records.record_documents import error_document
from craftcore.errors import NotFound
from craftcore.executions.chain.seal import Event
from craftcore.executions.chain.verify import Verification
from craftcore.executions.event_store import EventStore
from craftcore.executions.listing_store import ExecutionListStore
from craftcore.executions.record import ExecutionRecord, refusal_to_replay
from craftcore.serialization.display import json_or_text
from craftcore.storage.damaged_rows import Damaged, try_read
from craftcore.web.actions.subjects import find_record
from craftcore.web.excerpt import make_excerpt
from craftcore.web.links import change_query, read_number
from craftcore.web.page import Page
from craftcore.web.pictures.label import event_label, kind_of
from craftcore.web.pictures.mark import MarkKind, Sense
from craftcore.web.visit import Visit

EVENTS_SHOWN = 100
ACTIONS = ("retry", "skip")
"""The operator actions on an attempt, as its advice names them."""


class EventLine(NamedTuple):
    """An event as a row of a table."""

    event: Event
    kind: MarkKind
    meaning: Sense
    label: str
    excerpt: str | None


def show_record(visit: Visit) -> Page:
    """Return the page of a record; its seal is verified now. With `before`, older events alone. Raises NotFound."""
    id, services = visit.path["id"], visit.services
    before = read_number(visit, "before")
    if before is not None:
        return _show_older(visit, id, before)
    with visit.reading() as reader:
        record = find_record(reader, id)
        weight = services.config.triggers.priority_weight
        earlier = ExecutionListStore().find_earlier(reader, id)
        faults = [fault.wrong for fault in Verification(reader, visit.now).faults_of(record)]
        advice = try_read(
            "the advice",
            lambda: read_advice(reader, services.database.path, record, visit.now, weight=weight, known_faults=faults),
        )
    shown = record.events[-EVENTS_SHOWN:]
    facts = {
        "record": record,
        "error": error_document(record),
        "refusal": refusal_to_replay(record, faults),
        "faults": faults,
        "advice": advice,
        **_list_lines(visit, shown, earlier, has_more=len(record.events) > len(shown)),
        "envelope": json_or_text(record.envelope_json),
        "response": json_or_text(record.response_json),
        "actions": [] if isinstance(advice, Damaged) else list_actions(record, advice),
    }
    return Page(template="record.html", title=f"{record.workflow or 'no workflow'}: {record.status}", facts=facts)


def _show_older(visit: Visit, id: str, before: int) -> Page:
    with visit.reading() as reader:
        found = EventStore().list_before(reader, id, before, EVENTS_SHOWN + 1)
        earlier = ExecutionListStore().find_earlier(reader, id)
    if found is None:
        raise NotFound(f"no execution has the id {id!r:.80}")
    lines = _list_lines(visit, found[-EVENTS_SHOWN:], earlier, has_more=len(found) > EVENTS_SHOWN)
    return Page(template="record_older.html", title="Earlier events", facts={"id": id, "before": before, **lines})


def _list_lines(visit: Visit, shown: Sequence[Event], earlier: str | None, *, has_more: bool) -> dict[str, Any]:
    return {
        "lines": [_make_line(visit, event) for event in shown],
        "older": change_query(visit, before=shown[0].seq) if has_more else None,
        "earlier": earlier,
    }


def list_actions(record: ExecutionRecord, advice: Advice) -> list[str]:
    """Return the names of the operator actions that fit an attempt."""
    named = {words[1] for words in advice.recommendation.commands if words[0] == "execution"}
    found = [f"execution {name}" for name in ACTIONS if name in named]
    has_response = record.response_json is not None
    return [*found, "invalidate"] if has_response and record.invalidated is None else found


def _make_line(visit: Visit, event: Event) -> EventLine:
    facts = json_or_text(event.payload_json)
    kind, meaning = kind_of(event.type)
    return EventLine(event, kind, meaning, event_label(event.type, facts), make_excerpt(visit, facts))
