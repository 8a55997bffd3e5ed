"""The stream of a task's events, as `ctx.events` returns it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from craftcore.engine.turn.journal import Journal


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEvent:
    """One event of a task's stream: what its turns did, over all their attempts."""

    at: datetime
    turn: int | None
    execution_id: str
    type: str
    data: dict[str, Any]


async def read_task_events(journal: Journal, task_id: str, newest: int) -> list[TaskEvent]:
    """Return the newest events of a task, at most `newest`, the oldest of them first."""
    rows = await journal.stream(task_id, newest)
    return [
        TaskEvent(
            at=datetime.fromtimestamp(row.at, UTC),
            turn=row.turn,
            execution_id=row.execution_id,
            type=row.type,
            data=json.loads(row.payload_json or "{}"),
        )
        for row in rows
    ]
