"""Triggers and children of a turn. The record of each is in its commit, so a re-entry emits nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from dataclasses import replace
from typing import Any, Literal, get_args

import msgspec

from craftcore.engine.turn.argument_difference import describe_difference
from craftcore.engine.turn.steps import EventOf, commit_once, digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.engine.turn.unawaited_calls import CallsMade, track_await
from craftcore.errors import ChildFailed, ErrorCode, InvalidInput, StepConflict
from craftcore.executions.model import EventType
from craftcore.serialization.arguments import Duration, show_value
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.decode import decode
from craftcore.serialization.readable_types import decode_as
from craftcore.tasks.model import NewTask, NewWait, ResolvedBy, TaskStatus, Wait, WaitKind
from craftcore.tasks.turn_event_store import NewEvent
from craftcore.triggers.derived_ids import can_be_used_again, derive_id
from craftcore.triggers.model import DedupScope, EmitOptions, Emitted, TriggerSpec, TriggerStatus

OnParentEnd = Literal["abandon", "cancel"]
"""The fate of a live child when the task that started it ends."""


async def emit_recorded(
    turn: Turn, workflow: str | None, payload: Mapping[str, Any] | None, key: str | None, options: EmitOptions
) -> Emitted:
    """Accept a trigger, once per key, or place among the keyless, in a turn."""
    identity = turn.next_ordinal("emit", key)
    digest = digest_of([workflow, payload, options], with_pydantic=True)
    if identity in turn.memo:
        return find_emitted(turn, identity, digest)
    spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
    return await commit_emit(turn, EventType.EMITTED, identity, digest, spec, None)


def _id_at(turn: Turn, identity: str) -> str:
    """Return the id of what this place of the turn makes, also when a restored file comes to it a second time."""
    return derive_id(turn.task.id, f"{turn.task.turn}/{identity}")


def find_emitted(turn: Turn, identity: str, digest: str) -> Emitted:
    """Return what the record says was emitted under this identity. Raises StepConflict when that was something else."""
    answer = decode(turn.memo[identity])
    if answer["args"] != digest:
        difference = describe_difference(answer["args"], digest, ("workflow", "payload", "options"))
        raise StepConflict(
            f"{identity} was emitted with other arguments in this turn{difference}. Give each its own key=…"
        )
    return Emitted(
        id=answer["id"],
        created=answer["created"],
        status=TriggerStatus(answer["status"]),
        due_at=answer["due_at"],
        payload_differs=answer["payload_differs"],
        dedup_scope=DedupScope(answer["dedup_scope"]) if answer.get("dedup_scope") else None,
        held=answer.get("held"),
    )


async def commit_emit(
    turn: Turn, type_: EventType, identity: str, digest: str, spec: TriggerSpec, child: NewTask | None
) -> Emitted:
    """Commit the trigger, its event, and the task of the child at once."""
    row = turn.services.accept(spec)
    if spec.id is None:
        row = row._replace(id=_id_at(turn, identity))
    if child is not None and row.workflow is not None:
        child = child._replace(workflow=row.workflow)  # the name on record: that of a first version has no version
        row = row._replace(id_given=False)  # it was made here, for this emit
    turn.charge_budget()

    def event(emitted: Emitted) -> NewEvent:
        answer = {
            "args": digest,
            "created": emitted.created,
            "dedup_scope": emitted.dedup_scope,
            "due_at": emitted.due_at,
            "held": emitted.held,
            "id": emitted.id,
            "payload_differs": emitted.payload_differs,
            "status": emitted.status,
            "workflow": spec.workflow,
        }
        return turn.event(type_, canonicalize(answer), identity)

    emitted = await turn.services.journal.emit(row, event, child, id_may_be_used=can_be_used_again(turn.task.id))
    turn.add_completed(identity, event(emitted).payload_json)
    return emitted


async def signal_recorded(turn: Turn, task_id: str, event: str, payload: Any, key: str | None) -> bool:
    """Signal another task, once per key, or place among the keyless, in a turn. Return whether it waited for that."""
    identity = turn.next_ordinal("signal", key)
    if task_id == turn.task.id:
        raise InvalidInput("ctx.signal is for other tasks: this turn has what it would tell itself")

    def write(event_of: EventOf) -> Awaitable[tuple[str, str, Any]]:
        return turn.services.journal.signal(task_id, event, payload, sent_by=f"task {turn.task.id}", event_of=event_of)

    text, waited = await commit_once(turn, identity, "signal", (task_id, event, payload), canonicalize, write)
    return decode(text) is True if waited is None else bool(waited)


class ChildEnd(msgspec.Struct):
    """How a child ended."""

    status: str
    error: dict[str, Any] | None
    result: msgspec.Raw


_decode_end = msgspec.json.Decoder(ChildEnd).decode


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

    @track_await("child.result")
    async def result(self, type: Any = Any, *, timeout: Duration | None = None) -> Any:
        """Suspend the turn until the child has ended; its result, converted to `type`.

        Raises ChildFailed when it FAILED or was CANCELLED, or had not ended after `timeout`.
        """
        due_at = None if timeout is None else self._turn.moment_after("child.result: timeout", timeout)
        name = f"child/{self.id}" if self._timeouts == 0 else f"child/{self.id}~{self._timeouts}"
        wait = self._turn.resolved_wait(name) or await self._turn.suspend_for(
            NewWait(name=name, kind=WaitKind.CHILD, event=self.id, due_at=due_at)
        )
        if wait.resolved_by is ResolvedBy.TIMER:
            self._timeouts += 1  # who asks once more waits once more
            message = f"child {self.id} ({self.workflow}) did not end in time"
            raise ChildFailed(message, id=self.id, status=TaskStatus.RUNNING, code=ErrorCode.AGENT_TIMEOUT)
        return child_result(self, wait, type)


def child_result(child: Child, wait: Wait, type: Any) -> Any:
    """Return the result that the end of a child brought, converted to `type`. Raises ChildFailed."""
    ending = _decode_end(wait.value_json or "null")
    if ending.status == TaskStatus.DONE:
        return decode_as(bytes(ending.result).decode(), type, f"the result of child {child.id}")
    error = ending.error or {}
    raise ChildFailed(
        f"child {child.id} ({child.workflow}) is {ending.status}: {error.get('message') or error.get('code')}",
        id=child.id,
        status=ending.status,
        **error,
    )


async def start_child(
    turn: Turn,
    workflow: str,
    payload: Mapping[str, Any] | None,
    key: str | None,
    on_parent_end: OnParentEnd,
    options: EmitOptions,
) -> Child:
    """Start a task, once per key, or place among the keyless, in a turn."""
    if options.get("dedup_key") is not None or options.get("id") is not None:
        raise InvalidInput("a child is started once for each key=… in a turn; it takes no dedup_key and no id")
    if on_parent_end not in (choices := get_args(OnParentEnd)):
        raise InvalidInput(f"on_parent_end {show_value(on_parent_end)} must be one of {', '.join(choices)}")
    identity = turn.next_ordinal("start_child", key)
    ends = on_parent_end == "cancel"
    given = [workflow, payload, options, on_parent_end] if ends else [workflow, payload, options]
    digest = digest_of(given, with_pydantic=True)
    if identity in turn.memo:
        return Child(turn, find_emitted(turn, identity, digest).id, workflow)
    id = _id_at(turn, identity)
    spec = TriggerSpec(workflow=workflow, payload={} if payload is None else payload, **options)
    spec = replace(spec, id=id, task_id=id)
    no_deadline = None  # it counts from its first start
    child = NewTask(
        id, workflow, spec.session_id, None, turn.task.id, id, spec.max_attempts, no_deadline, ends_with_parent=ends
    )
    emitted = await commit_emit(turn, EventType.CHILD_STARTED, identity, digest, spec, child)
    return Child(turn, emitted.id, workflow)
