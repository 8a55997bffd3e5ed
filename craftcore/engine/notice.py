"""The restart notice: one trigger for all tasks that go on after a start, for the workflow that takes SYSTEM."""

from __future__ import annotations

from craftcore.engine.boot import Boot
from craftcore.errors import InvalidInput
from craftcore.registry.registry import Registry
from craftcore.storage.transaction import Transaction
from craftcore.triggers.model import TriggerSource, TriggerSpec
from craftcore.triggers.service import TriggerService
from craftcore.triggers.sources import system_key


def notify(tx: Transaction, app: Registry, triggers: TriggerService, boot: Boot) -> str | None:
    """Emit one restart notice where tasks were resumed and a workflow takes SYSTEM; why it cannot take it, or None.

    Its payload: `kind` ("restart"), `resumed` and `stale` (how many), `tasks` (the ids of the first of them).
    """
    workflow = app.by_source.get(TriggerSource.SYSTEM)
    if workflow is None or not boot.resumed.is_anything:
        return None
    row = triggers.accept(
        TriggerSpec(
            source=TriggerSource.SYSTEM,
            payload=boot.resumed.notice(),
            dedup_key=system_key("restart", boot.epoch),
            description="The daemon was started, and these tasks go on where they were.",
        )
    )
    try:
        app.check(row._replace(workflow=workflow))
    except InvalidInput as error:
        return error.message
    triggers.emit_all(tx, [row])
    return None
