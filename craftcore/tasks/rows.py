"""Rows of `tasks` as models. A row that the engine could not go on with is refused here."""

from __future__ import annotations

import json

from craftcore.errors import UnreadableRow
from craftcore.storage.damaged_rows import model_of, model_reader
from craftcore.storage.transaction import Row
from craftcore.tasks.model import Task, TaskStatus
from craftcore.triggers.backoff import ATTEMPTS_MAX
from craftcore.triggers.validation import is_name

COUNT_LIMIT = 1 << 31


@model_reader
def task_of(row: Row) -> Task:
    """Return the model of a full row. Raises ValueError for a live one whose next trigger could not be emitted."""
    status = TaskStatus(row["status"])
    agents: tuple[str, ...] | None = None
    text = row["agents_json"]
    if status.is_live:
        _check(row)
        agents = None if text is None else agents_of(text)
        if row["agent"] is not None and row["agent"] not in (agents or ()):
            raise ValueError(f"agent {row['agent']!r:.80} is not one of agents_json {text!r:.80}")
    return model_of(Task, row, agents=agents)


def _check(row: Row) -> None:
    for name in ("workflow", "agent", "session_id"):
        if row[name] is not None and not is_name(row[name]):
            raise UnreadableRow(f"{name} {row[name]!r:.80} is not a name")
    if row["max_attempts"] is not None and not 1 <= row["max_attempts"] <= ATTEMPTS_MAX:
        raise UnreadableRow(f"max_attempts {row['max_attempts']} is not a number of attempts")
    for name, least in (("turn", 1), ("turns_alone", 0), ("steps_alone", 0)):
        if not least <= row[name] < COUNT_LIMIT:
            raise UnreadableRow(f"{name} {row[name]} is not a count")


def agents_of(text: str) -> tuple[str, ...]:
    """Return the column of a row. Raises UnreadableRow, or ValueError for text that is not JSON."""
    try:
        agents = json.loads(text)
    except RecursionError as error:
        raise UnreadableRow(f"agents_json {text!r:.80} is nested too deeply") from error
    if not isinstance(agents, list) or not agents or not all(is_name(name) for name in agents):
        raise UnreadableRow(f"agents_json {text!r:.80} is not a list of names")
    if len(set(agents)) < len(agents):
        raise UnreadableRow(f"agents_json {text!r:.80} says one twice, and each is tried once")
    return tuple(agents)
