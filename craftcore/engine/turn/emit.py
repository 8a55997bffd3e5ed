"""Emitting from a turn: the trigger and the record that it was emitted are one commit, so a re-entry emits nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from craftcore.engine.durable_commit import insist
from craftcore.engine.turn.steps import digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.errors import StepConflict
from craftcore.executions.model import EventType
from craftcore.serialization.canonical import canonical
from craftcore.serialization.decode import from_json
from craftcore.tasks.model import NewTask
from craftcore.tasks.turn_event_store import NewEvent
from craftcore.triggers.model import DedupScope, EmitOptions, Emitted, TriggerSpec, TriggerStatus


async def emit_recorded(
    turn: Turn, workflow: str | None, payload: Mapping[str, Any] | None, key: str | None, options: EmitOptions
) -> Emitted:
    """Accept a trigger, once per key, or place among the keyless, in a turn."""
    identity = turn.count("emit", key)
    digest = digest_of([workflow, payload, options])
    if identity in turn.memo:
        return emitted_before(turn, identity, digest)
    spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
    return await commit_emit(turn, EventType.EMITTED, identity, digest, spec, None)


def emitted_before(turn: Turn, identity: str, digest: str) -> Emitted:
    """What the record says was emitted under this identity. Raises StepConflict when that was something else."""
    told = from_json(turn.memo[identity])
    if told["args"] != digest:
        raise StepConflict(f"{identity} was emitted with other arguments in this turn: give each its own key=…")
    return Emitted(
        id=told["id"],
        created=told["created"],
        status=TriggerStatus(told["status"]),
        due_at=told["due_at"],
        payload_differs=told["payload_differs"],
        dedup_scope=DedupScope(told["dedup_scope"]) if told.get("dedup_scope") else None,
        held=told.get("held"),
    )


async def commit_emit(
    turn: Turn, type_: EventType, identity: str, digest: str, spec: TriggerSpec, child: NewTask | None
) -> Emitted:
    """One commit for the trigger, the record of it, and the child's task."""
    row = turn.doors.accept(spec)
    if child is not None and row.workflow is not None:
        child = child._replace(workflow=row.workflow)  # as it is known by: the first version is not said
        row = row._replace(id_given=False)  # it was made here, for this emit
    turn.spend()

    def event(emitted: Emitted) -> NewEvent:
        told = {
            "args": digest,
            "created": emitted.created,
            "dedup_scope": emitted.dedup_scope,
            "due_at": emitted.due_at,
            "held": emitted.held,
            "id": emitted.id,
            "payload_differs": emitted.payload_differs,
            "status": emitted.status,
            "workflow": spec.workflow,
        }
        return turn.event(type_, canonical(told), identity)

    doors = turn.doors
    work = doors.recording.emit_recorded
    try:
        emitted: Emitted = await insist(doors.writer, doors.set_aside, work, row, event, child)
    finally:
        doors.due(row.due_at)  # also when the turn is cancelled: the commit may have come about
    turn.completed(identity, event(emitted).payload_json)
    return emitted
