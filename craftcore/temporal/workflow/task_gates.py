"""The gates of a task in its workflow: it passes them before an entry, and leaves them after it."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from craftcore.tasks.model import MESSAGE, TaskStatus
    from craftcore.temporal.ids import make_session_gate_id
    from craftcore.temporal.workflow.commands import run_shielded, send_signal, start_task
    from craftcore.temporal.workflow.gate_messages import (
        GATE,
        LATER_PRIORITY,
        Announcement,
        EnterCall,
        GateLimit,
        GateStart,
        LeaveCall,
        Passed,
    )
    from craftcore.temporal.workflow.messages import (
        HANDED_BACK,
        ROLLOVER,
        EntryEnd,
        Mail,
        TaskEnd,
        TaskStart,
        TaskState,
    )

UNDISTURBED = "tells its gates undisturbed"
"""The patch of tasks whose signals to gates are not cancelled with them. Histories without it replay as before."""

T = TypeVar("T")

ASK_AGAIN = timedelta(minutes=10)
"""How often a task that waits asks its gate again: the gate may have been full, or ended by an operator."""


class TaskGates:
    """The gates of one task. Those that it has passed are in its state, and are carried to its next run."""

    def __init__(self, start: TaskStart, state: TaskState) -> None:
        self._start = start
        self._state = state
        self._answers: dict[str, Passed] = {}

    def accept(self, answer: Passed) -> None:
        self._answers[answer.gate] = answer

    async def enter(self) -> TaskEnd | None:
        """Pass all gates of the next entry, in a fixed order. Return the end of a task that is not to be entered."""
        state = self._state
        for limit in [*self._lane(), *state.limits]:
            if limit.id in state.gates and limit.rate_count is None:
                continue  # it keeps its place
            answer = await self._pass(limit)
            if answer.superseded_by is not None:
                reason = f"superseded by {answer.superseded_by}"
                return TaskEnd(status=TaskStatus.CANCELLED, reason=reason)
            while answer.live is not None:
                if await self._deliver(answer.live):
                    return TaskEnd(status=TaskStatus.DONE, reason=f"delivered to {answer.live}")
                answer = await self._pass(limit, gone=answer.live)
        return None

    @property
    def are_ahead(self) -> bool:
        """Return whether there are gates that the next entry has to pass, and may wait for."""
        return bool(self._lane() or self._state.limits)

    async def leave(self, end: EntryEnd) -> None:
        """Free the gates after an entry, unless the next one begins in the same place, or the task is over."""
        is_handed_back = end.status == "PENDING" and (end.not_before is None or end.move == HANDED_BACK)
        is_rollover = end.wait is not None and end.wait.name.startswith(ROLLOVER)
        if is_handed_back or is_rollover or not self._state.gates:
            return
        if end.status == "PENDING" or end.move in ("suspends", "continues"):
            waits = [] if end.wait is None else [end.wait, *end.wait.others]
            await self._leave(
                stays=end.is_task,
                takes_message=any(
                    wait.event == MESSAGE or (wait.question is not None and wait.question.by_message) for wait in waits
                ),
            )

    async def take_limits(self, limits: list[GateLimit]) -> None:
        """Pass these from now on, which the app declares, and none of the earlier ones."""
        kept = [limit.id for limit in [*self._lane(), *limits]]
        for gate in [gate for gate in self._state.gates if gate not in kept]:
            await self._signal_if_open(gate, "leave", LeaveCall(holder=self._id))
            del self._state.gates[gate]
        self._state.limits = limits

    async def close(self) -> None:
        """Leave all gates for good. Messages that the task has not read are emitted again before."""
        await self.emit_unread()
        await self._leave(stays=False)

    @property
    def has_unread(self) -> bool:
        """Return whether there are messages that the task has not read."""
        return any(mail.start is not None for mail in self._state.mails)

    async def emit_unread(self) -> None:
        """Emit the messages again that the task has not read."""
        while self.has_unread:
            unread = [mail.start for mail in self._state.mails if mail.start is not None]
            self._state.mails = [mail for mail in self._state.mails if mail.start is None]
            for start in unread:
                await self._emit_again(start)

    async def announce(self, workflow_id: str, start: TaskStart, *, is_first: bool = False) -> Announcement | None:
        """Signal to the gate of its session that a trigger is emitted next. Return None for a trigger of no session."""
        if start.session_id is None:
            return None
        call = start.make_announcement(holder=workflow_id, mark=str(workflow.uuid4()), is_first=is_first)
        await self._signal_gate(self._limit_of(start.session_id), "announce", call)
        return call

    async def withdraw(self, start: TaskStart, call: Announcement | None) -> None:
        """Signal to the gate that nothing was emitted."""
        if call is not None and start.session_id is not None:
            gate = self._limit_of(start.session_id).id
            await self._signal_if_open(gate, "withdraw", call.holder, call.mark)

    @property
    def _id(self) -> str:
        return workflow.info().workflow_id

    def _limit_of(self, session_id: str) -> GateLimit:
        return GateLimit(id=make_session_gate_id(workflow.info().task_queue, session_id), places=1)

    def _lane(self) -> list[GateLimit]:
        return [] if self._start.session_id is None else [self._limit_of(self._start.session_id)]

    async def _pass(self, limit: GateLimit, gone: str | None = None) -> Passed:
        start, state, run = self._start, self._state, workflow.info().first_execution_run_id
        state.gate_calls += 1
        number = state.gate_calls
        call = EnterCall(
            holder=self._id,
            run=run,
            entry=number,
            limit=limit,
            priority=start.priority if state.entries == 0 else min(start.priority, LATER_PRIORITY),
            source=start.source,
            supersedes=start.supersedes,
            is_first=state.entries == 0,
            is_message=start.is_message and state.entries == 0,
            gone=gone,
        )
        state.gates[limit.id] = number

        def is_answered() -> bool:
            answer = self._answers.get(limit.id)
            return answer is not None and answer.run == run and answer.entry == number

        while not is_answered():
            await self._signal_gate(limit, "enter", call)
            if workflow.cancellation_reason() is not None:  # it came with the signal, which no cancel ends
                raise asyncio.CancelledError
            try:
                await workflow.wait_condition(is_answered, timeout=ASK_AGAIN)
            except TimeoutError:
                pass
        return self._answers.pop(limit.id)

    async def _deliver(self, task: str) -> bool:
        """Send the message to this task. False: it has ended."""
        mail = Mail(event=MESSAGE, payload_json=self._start.payload_json, sent_by=None, start=self._start)
        return await self._signal_if_open(task, "deliver", mail)

    async def _emit_again(self, start: TaskStart) -> None:
        """Emit a message again. It comes before all others of its session."""
        id = str(workflow.uuid4())
        await self.announce(id, start, is_first=True)
        await start_task(id, start)

    async def _leave(self, *, stays: bool, takes_message: bool = False) -> None:
        gates = self._state.gates
        ids = [limit.id for limit in self._lane()] if not stays else []  # it may know of a task that is elsewhere
        for gate in dict.fromkeys([*ids, *gates]):
            await self._signal_if_open(
                gate, "leave", LeaveCall(holder=self._id, stays=stays, takes_message=takes_message)
            )
        gates.clear()

    async def _signal_gate(self, limit: GateLimit, signal: str, *args: Any) -> None:
        """Send a signal to a gate, which is started when it is not there."""
        while not await self._signal_if_open(limit.id, signal, *args):
            await _run_undisturbed(self._start_gate(limit))

    async def _start_gate(self, limit: GateLimit) -> None:
        start = GateStart(
            limit=limit,
            check_seconds=self._start.gate_check,
            idle_seconds=self._start.gate_idle,
            run_signals_max=self._start.gate_signals_max,
        )
        try:
            await workflow.start_child_workflow(
                GATE,
                args=[start, None],
                id=limit.id,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
            )
        except WorkflowAlreadyStartedError:
            pass

    async def _signal_if_open(self, workflow_id: str, signal: str, *args: Any) -> bool:
        return await _run_undisturbed(send_signal(workflow_id, signal, *args))


async def _run_undisturbed(work: Coroutine[Any, Any, T]) -> T:
    return await (run_shielded(work) if workflow.patched(UNDISTURBED) else work)
