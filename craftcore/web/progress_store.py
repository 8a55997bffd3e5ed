"""The SQL of what running tasks say of themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.display import json_or_text
from craftcore.storage.damaged_rows import omit_damaged, read_rows
from craftcore.storage.transaction import Reader, Row

TASKS = """
SELECT triggers.id, tasks.id AS task_id, tasks.progress_json
  FROM json_each(:ids) AS asked
  JOIN triggers ON triggers.id = asked.value
  JOIN tasks ON tasks.id = coalesce(triggers.task_id, triggers.id)
"""


class RunningTask(NamedTuple):
    """The task of a trigger that is at work. `progress`: what it said last; None: nothing."""

    trigger_id: str
    id: str
    progress: Any


class ProgressStore:
    """Reads of tasks by the ids of their triggers."""

    def find_tasks(self, tx: Reader, ids: Sequence[str]) -> dict[str, RunningTask]:
        """Return the tasks of these triggers, by trigger. One without a task, or with a damaged one, is left out."""
        found = read_rows(tx, TASKS, _make_task, ids=canonicalize(list(ids)))
        return {one.trigger_id: one for one in omit_damaged(found)}


def _make_task(row: Row) -> RunningTask:
    return RunningTask(row["id"], row["task_id"], json_or_text(row["progress_json"]))
