"""The ids of tasks and of their workflows on the cluster.

A task without a dedup key has the id of its workflow. With a key, the workflow is `k:{key}` and the task
`k:{key}@{first run id}`, because a key may be used again, and the keys of actions contain the task id.
"""

from __future__ import annotations

import re

from craftcore.errors import InvalidInput

_RUN = re.compile(r"@[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\Z")
"""The first run id at the end of a task id."""

KEY_MAX = 150
"""Characters of a dedup key: a task id has room for a run id, and an action key has room for a task id."""


def workflow_id_of_key(dedup_key: str) -> str:
    """Return the workflow id of work with this dedup key. Raises InvalidInput for a key that is too long."""
    if len(dedup_key) > KEY_MAX:
        raise InvalidInput(f"dedup_key has {len(dedup_key)} characters; on a cluster the limit is {KEY_MAX}")
    return f"k:{dedup_key}"


def task_id_of(workflow_id: str, first_run_id: str) -> str:
    return f"{workflow_id}@{first_run_id}" if workflow_id.startswith("k:") else workflow_id


def workflow_id_of_task(task_id: str) -> str:
    """Return the id of the workflow of a task; the id itself when that is the workflow's already."""
    return _RUN.sub("", task_id) if task_id.startswith("k:") else task_id


def first_run_of_task(task_id: str) -> str | None:
    """Return the first run of a task with a dedup key; None for an id that names no run."""
    found = _RUN.search(task_id) if task_id.startswith("k:") else None
    return None if found is None else found[0][1:]


def make_session_gate_id(task_queue: str, session_id: str) -> str:
    """Return the workflow id of the gate of a session: apps that share a namespace share no gate."""
    return f"lane:{task_queue}/{session_id}"


def make_limit_gate_id(task_queue: str, workflow: str, key: str | None) -> str:
    """Return the workflow id of the gate of a limited workflow, as a whole (None) or for one key."""
    return f"limit:{task_queue}/{workflow}" + ("" if key is None else f":{key}")


def workflow_id_of_schedule(schedule_id: str) -> str:
    return f"s:{schedule_id}"


def queue_name(namespace: str, task_queue: str) -> str:
    """Return the name of what runs the work of a task queue: its workers share their slots."""
    return f"{namespace}/{task_queue}"
