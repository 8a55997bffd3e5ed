"""The rules of an emission to a cluster, from a program and in a turn: what is refused, started and answered."""

from __future__ import annotations

from craftcore.errors import DuplicateTrigger, InvalidInput
from craftcore.temporal.ids import workflow_id_of_key
from craftcore.temporal.workflow.messages import TaskStart
from craftcore.triggers.duplicates import held_name
from craftcore.triggers.model import DedupScope, Emitted, NewTrigger, TriggerStatus


def find_target(row: NewTrigger, *, is_child: bool = False) -> str:
    """Return the id of the workflow that a trigger starts. Raises InvalidInput for what a cluster cannot keep."""
    if row.task_id is not None and not is_child:
        raise InvalidInput("on a cluster, emit takes no task_id: send the task a signal")
    if row.on_duplicate == "replace":
        raise InvalidInput("on a cluster, emit takes no on_duplicate='replace'")
    if row.id_given and row.dedup_key is not None:
        raise InvalidInput(
            "on a cluster, emit takes an id or a dedup_key, not both: the task has its id by one of them"
        )
    return row.id if row.dedup_key is None else workflow_id_of_key(row.dedup_key)


def is_kept_forever(row: NewTrigger) -> bool:
    """Return whether the workflow is refused also after its end: an id is never used twice."""
    return row.dedup_key is None or row.dedup_scope == DedupScope.EVER


def make_answer(row: NewTrigger, id: str, *, created: bool) -> Emitted:
    """Return the answer to an emission. Raises DuplicateTrigger when the spec asked for it and nothing was started."""
    if not created and row.on_duplicate == "error":
        raise DuplicateTrigger(f"the {held_name(row, id)} is held by task {id}; nothing was emitted", id=id)
    return make_emitted(row, id, created=created)


def make_emitted(row: NewTrigger, id: str, *, created: bool) -> Emitted:
    """Return the answer to an emission of which nothing is refused."""
    held = "id" if row.dedup_key is None else "dedup_key"
    return Emitted(
        id=id,
        created=created,
        status=TriggerStatus.PENDING,
        due_at=row.due_at,
        dedup_scope=None if row.dedup_scope is None else DedupScope(row.dedup_scope),
        held=None if created else held,  # type: ignore[arg-type]
    )


def start_of(
    row: NewTrigger, heartbeat_timeout: float, parent: str | None = None, *, ends_with_parent: bool = False
) -> TaskStart:
    return TaskStart(
        workflow=row.workflow or "",
        payload_json=row.payload_json,
        source=row.source,
        due_at=row.due_at,
        description=row.description,
        max_attempts=row.max_attempts,
        parent=parent,
        ends_with_parent=ends_with_parent,
        heartbeat_timeout=heartbeat_timeout,
        session_id=row.session_id,
        priority=row.priority,
        supersedes=row.supersedes,
        is_later=row.due_at > row.created_at,
        is_message=row.workflow is None and row.session_id is not None,
        expires_at=row.expires_at,
    )
