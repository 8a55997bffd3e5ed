"""A child: a task that another one started, and may wait for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from typing import Any

import msgspec

from craftcore.engine.turn.emit import commit_emit, emitted_before
from craftcore.engine.turn.steps import digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.engine.unawaited_calls import CallsMade, awaited
from craftcore.errors import ChildFailed, ErrorCode, InvalidInput
from craftcore.executions.model import EventType
from craftcore.serialization.decode import from_json, readable
from craftcore.tasks.model import NewTask, NewWait, ResolvedBy, TaskStatus, WaitKind
from craftcore.triggers.model import EmitOptions, TriggerSpec


class Ending(msgspec.Struct):
    """How a child ended."""

    status: str
    error: dict[str, Any] | None
    result: msgspec.Raw


class Child:
    """A task that was started by this one. `id` is that of the task, and of the trigger that created it."""

    def __init__(self, turn: Turn, id: str, workflow: str) -> None:
        self.id = id
        self.workflow = workflow
        self._turn = turn
        self._timeouts = 0

    @property
    def _calls_made(self) -> CallsMade:
        return self._turn.calls_made

    @awaited("child.result")
    async def result(self, type: Any = Any, *, timeout: float | timedelta | None = None) -> Any:
        """Suspend the turn until the child has ended; its result, converted to `type`.

        Raises ChildFailed when it FAILED or was CANCELLED, or had not ended after `timeout`.
        """
        due_at = None if timeout is None else self._turn.later("child.result: timeout", timeout)
        name = f"child/{self.id}" if self._timeouts == 0 else f"child/{self.id}~{self._timeouts}"
        wait = self._turn.over(name) or self._turn.suspend_for(
            "child.result", NewWait(name=name, kind=WaitKind.CHILD, event=self.id, due_at=due_at)
        )
        if wait.resolved_by is ResolvedBy.TIMER:
            self._timeouts += 1  # who asks once more waits once more
            message = f"child {self.id} ({self.workflow}) did not end in time"
            raise ChildFailed(message, id=self.id, status=TaskStatus.RUNNING, code=ErrorCode.AGENT_TIMEOUT)
        ending = msgspec.json.decode(wait.value_json or "null", type=Ending)
        if ending.status == TaskStatus.DONE:
            return from_json(bytes(ending.result).decode(), readable(type), f"the result of child {self.id}")
        error = ending.error or {}
        raise ChildFailed(
            f"child {self.id} ({self.workflow}) is {ending.status}: {error.get('message') or error.get('code')}",
            id=self.id,
            status=ending.status,
            **error,
        )


async def start_child(
    turn: Turn, workflow: str, payload: Mapping[str, Any] | None, key: str | None, options: EmitOptions
) -> Child:
    """Start a task, once per key, or place among the keyless, in a turn."""
    if options.get("dedup_key") is not None:
        raise InvalidInput("a child is started once for each key=… in a turn; it takes no dedup_key")
    identity = turn.count("start_child", key)
    digest = digest_of([workflow, payload, options])
    if identity in turn.memo:
        return Child(turn, emitted_before(turn, identity, digest).id, workflow)
    doors = turn.doors
    id = doors.clock.new_id()
    given = {} if payload is None else payload
    spec = replace(TriggerSpec(workflow=workflow, payload=given, **options), id=id, task_id=id)
    no_deadline = None  # it counts from its first start
    child = NewTask(id, workflow, spec.session_id, None, turn.task.id, id, spec.max_attempts, no_deadline)
    emitted = await commit_emit(turn, EventType.CHILD_STARTED, identity, digest, spec, child)
    return Child(turn, emitted.id, workflow)
