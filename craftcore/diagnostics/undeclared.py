"""Accepted work and operators' schedules whose workflow an app does not declare, for `craftcore check`.

Tasks are judged elsewhere (`engine/held_tasks.py`): a start holds them. A trigger that has not become a task is not
held. It would fail with CAPABILITY_NOT_FOUND, and so would what a schedule fires.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.plurals import format_count
from craftcore.storage.transaction import Reader

TRIGGERS = """
SELECT CAST(workflow AS BLOB), count(*), CAST(min(id) AS BLOB)
  FROM triggers
 WHERE status IN ('PENDING', 'CLAIMED')
   AND task_id IS NULL
   AND workflow IS NOT NULL
   AND workflow NOT IN (SELECT value FROM json_each(?1))
   AND NOT EXISTS (SELECT 1 FROM tasks WHERE tasks.id = triggers.id)
 GROUP BY workflow
 ORDER BY workflow
"""
SCHEDULES = """
SELECT CAST(workflow AS BLOB), CAST(id AS BLOB)
  FROM schedules
 WHERE status IN ('ACTIVE', 'PAUSED')
   AND origin IN ('operator', 'api')
   AND workflow NOT IN (SELECT value FROM json_each(?1))
 ORDER BY id
"""
"""Without those of code and file: a start declares them again, and disables what is not declared any more."""


class Undeclared(NamedTuple):
    """How many triggers and schedules there are, and a line for each workflow or schedule."""

    triggers: int
    schedules: int
    lines: list[str]


def find_undeclared(reader: Reader, workflows: Collection[str]) -> Undeclared:
    """Find the triggers that have not ended and the schedules whose workflow is not among `workflows`."""
    declared = (canonicalize(sorted(workflows)),)
    triggers = [(_text(name), count, _text(first)) for name, count, first in reader.fetch_tuples(TRIGGERS, declared)]
    schedules = [(_text(name), _text(one)) for name, one in reader.fetch_tuples(SCHEDULES, declared)]
    lines = [f"workflow {name}: {format_count(count, 'trigger')}, the first {first}" for name, count, first in triggers]
    lines += [f"workflow {name}: schedule {one}" for name, one in schedules]
    return Undeclared(sum(count for _, count, _ in triggers), len(schedules), lines)


def _text(value: bytes) -> str:
    return value.decode(errors="backslashreplace")
