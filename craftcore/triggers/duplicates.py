"""The answer to an emit whose id or dedup key is held: a duplicate, or a refusal. Pure."""

from __future__ import annotations

from craftcore.errors import DuplicateTrigger
from craftcore.storage.transaction import Row
from craftcore.triggers.model import DedupScope, Emitted, NewTrigger, TriggerStatus
from craftcore.triggers.workflow_names import intent_of


def held_name(row: NewTrigger, holder_id: str) -> str:
    """Return the name of what a trigger has in common with the holder: its id, else its dedup key."""
    return "id" if row.id == holder_id else f"dedup key {row.dedup_key}"


def find_foreign_holder(row: NewTrigger, holder_id: str, workflow: str | None) -> DuplicateTrigger | None:
    """Return the refusal of a trigger whose id or key is that of another workflow's trigger or task: its caller would
    get the result of that. Versions are of one workflow. None: it is a duplicate, or a router chooses for one."""
    if not row.workflow or not workflow:
        return None
    name, _ = intent_of(row.workflow)
    if name == intent_of(workflow)[0]:
        return None
    return DuplicateTrigger(
        f"the {held_name(row, holder_id)} is held by {holder_id}, which runs another workflow, {workflow}; nothing was "
        f"written. Keys are unique over all workflows: let each name its matter, as in {name}:order-1",
        id=holder_id,
    )


def make_duplicate(row: NewTrigger, standing: Row, *, is_replaced: bool) -> Emitted:
    """Return the answer that names the trigger which holds the id or the key, as `find_key` of the store returns it."""
    return Emitted(
        id=standing["id"],
        created=False,
        status=TriggerStatus.PENDING if is_replaced else TriggerStatus(standing["status"]),
        due_at=row.fire_at if is_replaced else standing["due_at"],
        payload_differs=not is_replaced
        and standing["stripped_at"] is None  # else nobody knows any more
        and standing["payload_json"] != row.payload_json,
        dedup_scope=DedupScope(standing["dedup_scope"]) if standing["dedup_scope"] else None,
        held="id" if standing["id"] == row.id else "dedup_key",
    )
