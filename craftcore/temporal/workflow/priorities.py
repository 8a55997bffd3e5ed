"""The priority of a task among the work that waits for a worker: five levels, and fair between sessions."""

from __future__ import annotations

from temporalio.common import Priority

from craftcore.serialization.canonical import sha256_of
from craftcore.temporal.workflow.messages import TaskStart

FAIRNESS_KEY_MAX = 64
"""Bytes of a fairness key. A longer session is known by its sha256."""


def make_priority(start: TaskStart) -> Priority:
    """Return the priority of a task, from 1 for 0-19 to 5 for 80-99."""
    session = start.session_id
    if session is not None and len(session.encode()) > FAIRNESS_KEY_MAX:
        session = sha256_of(session)
    return Priority(priority_key=1 + min(max(start.priority, 0), 99) // 20, fairness_key=session)
