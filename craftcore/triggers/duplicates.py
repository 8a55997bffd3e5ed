"""When an emit whose id or dedup key is held is no duplicate: another workflow holds it. Pure."""

from __future__ import annotations

from craftcore.errors import DuplicateTrigger
from craftcore.triggers.model import NewTrigger
from craftcore.triggers.workflow_names import intent_of


def held_name(row: NewTrigger, holder_id: str) -> str:
    """Return the name of what a trigger has in common with the holder: its id, else its dedup key."""
    return "id" if row.id == holder_id else f"dedup key {row.dedup_key}"


def find_foreign_holder(row: NewTrigger, holder_id: str, workflow: str | None) -> DuplicateTrigger | None:
    """Return the refusal of a trigger whose id or key is that of another workflow's trigger or task: its caller would
    get the result of that. Versions are of one workflow. None: it is a duplicate, or a router chooses for one."""
    if not row.workflow or not workflow or intent_of(row.workflow)[0] == intent_of(workflow)[0]:
        return None
    name = intent_of(row.workflow)[0]
    return DuplicateTrigger(
        f"the {held_name(row, holder_id)} is held by {holder_id}, which runs another workflow, {workflow}; nothing was "
        f"written. Keys are unique over all workflows: let each name its matter, as in {name}:order-1",
        id=holder_id,
    )
