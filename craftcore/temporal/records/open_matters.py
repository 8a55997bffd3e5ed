"""The tasks that wait for a person, over all of a namespace: by visibility, and then each by its history."""

from __future__ import annotations

from temporalio.client import Client

from craftcore.errors import NotFound
from craftcore.temporal.records.recorded_task import RecordedTask
from craftcore.temporal.records.task_list import list_tasks
from craftcore.temporal.task_operations import TaskOperations


async def list_asking(client: Client, limit: int) -> list[RecordedTask]:
    """Return the live tasks with open questions."""
    return await _load_having(client, "CraftcoreAsks", limit)


async def list_doubting(client: Client, limit: int) -> list[RecordedTask]:
    """Return the live tasks with actions in doubt."""
    return await _load_having(client, "CraftcoreDoubts", limit)


async def _load_having(client: Client, attribute: str, limit: int) -> list[RecordedTask]:
    operations = TaskOperations(client)
    found = []
    for one in await list_tasks(client, limit=limit, is_live=True, having=attribute):
        try:
            found.append(await operations.load(one.id))
        except NotFound:  # it has ended, and the retention took it meanwhile
            continue
    return found
