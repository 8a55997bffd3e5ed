"""The handlers of a task's workflow: the journal of its open entry, and the calls of clients."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import ApplicationError, WorkflowAlreadyStartedError

with workflow.unsafe.imports_passed_through():
    from craftcore.activities.model import Activity
    from craftcore.serialization.canonical import canonicalize
    from craftcore.tasks.model import ResolvedBy, Wait
    from craftcore.temporal.ids import task_id_of
    from craftcore.temporal.workflow import counts, mailbox, task_ledger
    from craftcore.temporal.workflow.gate_messages import Passed
    from craftcore.temporal.workflow.journal_messages import (
        LEASE_LOST,
        NOT_FOUND,
        STATE_REFUSED,
        JournalAnswer,
        JournalCall,
        Written,
        drop_large,
        read_batch,
        write_answers,
    )
    from craftcore.temporal.workflow.messages import TASK_LOOK, WORKFLOW, Mail, TaskStart, TaskState, first_arguments
    from craftcore.temporal.workflow.priorities import make_priority
    from craftcore.temporal.workflow.run_limits import RunLimits
    from craftcore.temporal.workflow.search_attributes import make_first_attributes, publish
    from craftcore.temporal.workflow.task_gates import TaskGates

LOOK_TIMEOUT = timedelta(seconds=60)


class TaskHandlers:
    """Holds the state of a task. `_token` is the entry whose journal is open; 0: none is.

    `_is_inside`: its last entry has not been left. `_calls_until`: the calls of that may be on their way until then.
    """

    def __init__(self, start: TaskStart, state: TaskState) -> None:
        self._start = start
        self._state = state
        self._limits = RunLimits(start)
        self._gates = TaskGates(start, state)
        self._token = 0
        self._is_inside = False
        self._calls_until = 0.0
        self._has_recorded = False
        self._survived: set[int] = set()

    def _set_task(self, **changes: object) -> None:
        self._state.task = replace(self._state.task, **changes, updated_at=workflow.time())  # type: ignore[arg-type]
        if "status" in changes:
            publish(self._state)

    # The journal

    @workflow.update(name="journal")
    async def record_batch(self, sent: Written) -> list[Written]:
        """Record the calls of an entry, in one commit of the cluster with all that they bring about."""
        self._limits.updates += 1
        batch = read_batch(sent)
        answers = [await self._record(batch.token, call) for call in batch.calls]
        if batch.token == self._token and self._limits.is_due(self._state):
            answers = [replace(answer, rolls_over=True) for answer in answers]
        return write_answers(drop_large(answers))

    @record_batch.validator
    def _refuse_lost(self, sent: Written) -> None:
        """Refuse what no open entry of this task has sent. Another task may have had the workflow id before, and its
        entries had the same numbers."""
        batch = read_batch(sent)
        if batch.task not in ("", self._state.task.id):
            raise ApplicationError(f"task {batch.task} has ended; nothing was written", type=NOT_FOUND)
        if batch.token != self._token and any(call.kind != "settle" for call in batch.calls):
            raise ApplicationError("the turn is over; nothing was written", type=LEASE_LOST)

    async def _record(self, token: int, call: JournalCall) -> JournalAnswer:
        state, now = self._state, workflow.time()
        if token == self._token:
            self._has_recorded, state.touched_at = True, now
        match call.kind:
            case "record":
                counts.count_event(state.task.workflow, call.event_type)
                if call.memo is not None:
                    state.memo[call.memo] = call.text
            case "begin":
                assert call.intent is not None, call
                before = state.acts.get(call.intent.key)
                answer = task_ledger.begin_call(state, token, call.intent, now)
                counts.count_settled(before, state.acts.get(call.intent.key))
                return answer
            case "settle":
                assert call.outcome is not None, call
                before = state.acts.get(call.key)
                answer = task_ledger.settle_call(state, call.key, call.calls, call.outcome, now)
                counts.count_settled(before, state.acts.get(call.key))
                self._go_on_without_doubt()
                if answer.is_late:
                    publish(state)
                answer = replace(answer, activity=None)  # the entry knows it
                return answer if token == self._token else replace(answer, error=LEASE_LOST)
            case "decide":
                return task_ledger.decide_doubt(
                    state, call.key, call.decision, by=call.by, reference=call.reference, calls=call.calls, now=now
                )
            case "route":
                self._set_task(workflow=call.text, agents=tuple(call.agents or ()) or None)
            case "fall_back":
                if state.acts_made:  # another agent does not know the action, and might repeat it
                    return JournalAnswer(error=STATE_REFUSED, message="an irreversible action of the task has begun")
                self._set_task(agents=tuple(call.agents or ()), agent=call.text)
            case "progress":
                count = state.task.progress_count + 1
                self._set_task(progress_json=call.text, progress_count=count)
            case "emit":
                return await self._emit(call)
            case "signal":
                return await self._send_signal(call)
        return JournalAnswer()

    async def _emit(self, call: JournalCall) -> JournalAnswer:
        assert call.start is not None, call
        reuse = (
            WorkflowIDReusePolicy.REJECT_DUPLICATE if call.is_keyed_forever else WorkflowIDReusePolicy.ALLOW_DUPLICATE
        )
        announced = await self._gates.announce(call.workflow_id, call.start)
        try:
            child = await workflow.start_child_workflow(
                WORKFLOW,
                args=first_arguments(call.start),
                id=call.workflow_id,
                id_reuse_policy=reuse,
                parent_close_policy=workflow.ParentClosePolicy.ABANDON,
                search_attributes=make_first_attributes(call.start.workflow, call.start.session_id),
                priority=make_priority(call.start),
            )
            self._limits.children += 1
            child.add_done_callback(self._on_child_closed)
            answer = JournalAnswer(
                task_id=task_id_of(call.workflow_id, child.first_execution_run_id or ""), created=True
            )
        except WorkflowAlreadyStartedError:
            await self._gates.withdraw(call.start, announced)
            answer = JournalAnswer(task_id=await self._look_up(call.workflow_id), created=False)
            if call.refuses_duplicate:
                return answer
        if call.memo is not None:
            text = call.text if answer.created else call.held_text or call.text
            self._state.memo[call.memo] = text.replace("@ID@", answer.task_id).replace(
                '"@CREATED@"', "true" if answer.created else "false"
            )
        if answer.created and call.start.ends_with_parent:
            self._state.children_to_cancel.append(call.workflow_id)
        elif answer.created and call.start.parent is not None:
            self._state.children_to_leave.append(call.workflow_id)
        return answer

    async def _look_up(self, workflow_id: str) -> str:
        """Return the id of the task that has a key. The answer of the cluster is on record, as a replay needs it."""
        if not workflow_id.startswith("k:"):
            return workflow_id
        task_id: str = await workflow.execute_local_activity(
            TASK_LOOK, workflow_id, result_type=str, start_to_close_timeout=LOOK_TIMEOUT
        )
        return task_id

    def _on_child_closed(self, child: asyncio.Task[Any]) -> None:
        self._limits.children -= 1
        if not child.cancelled():
            child.exception()  # it is told by the signal of the child

    async def _send_signal(self, call: JournalCall) -> JournalAnswer:
        mail = Mail(event=call.event, payload_json=call.payload_json, sent_by=call.by)
        try:
            receiver = workflow.get_external_workflow_handle(call.workflow_id, run_id=call.run_id or None)
            await receiver.signal("deliver", mail)
        except ApplicationError as error:
            return JournalAnswer(error=NOT_FOUND, message=f"no live task {call.workflow_id}: {error.message}")
        if call.memo is not None:
            self._state.memo[call.memo] = call.text
        return JournalAnswer()

    @workflow.query
    def act(self, key: str) -> Activity | None:
        """Return the activity of this key, without its request; None when nothing was begun under it."""
        found = self._state.acts.get(key)
        return None if found is None else replace(found, request_json=None)

    @workflow.query
    def act_keys(self) -> list[str]:
        """Return the keys of all activities that the task keeps."""
        return list(self._state.acts)

    @workflow.query
    def waits_for(self, event: str) -> bool:
        """Return whether the task waits for this event now."""
        return any(wait.kind == "event" and wait.event == event for wait in self._state.open_waits)

    # From outside

    @workflow.signal
    def deliver(self, mail: Mail) -> None:
        """Accept a signal or a message."""
        mailbox.deliver(self._state, mail, workflow.time())

    @workflow.signal
    def ended(self, child: str, end_text: str) -> None:
        """Accept the end of a child. It ends no wait of a task that has ended: a retry may let the child go on."""
        self._state.child_ends[child] = end_text
        if self._state.task.status.is_live:
            mailbox.end_wait_for_child(self._state, child, end_text, workflow.time())

    @workflow.signal(name="passed")
    def accept_pass(self, answer: Passed) -> None:
        """Accept the answer of a gate that the task wants to pass."""
        self._gates.accept(answer)

    @workflow.signal(name="survived")
    def accept_survivor(self, token: int) -> None:
        """Accept that the worker of an entry which the cluster gave up is alive: the entry was no crash of its turn."""
        if token in self._state.idle_entries:
            self._state.idle_entries.remove(token)
        elif token == self._state.entries:
            self._survived = {token}

    @workflow.signal
    def note_operation(self, action: str, by: str, note: str | None) -> None:
        """Keep in the history who did something that has no words of its own, like a cancellation."""

    @workflow.update
    def answer(self, question_id: str, answer: str, by: str, note: str | None = None, ref: str | None = None) -> None:
        """Answer a question of this task. The first answer counts. The history keeps the note."""
        self._limits.updates += 1
        wait = self._find_asked(question_id, answer)
        if (key := mailbox.activity_of(self._state, wait)) is not None:
            self._decide(key, answer, ref, by)
        else:
            mailbox.end_wait(self._state, wait, ResolvedBy.ANSWER, canonicalize(answer), workflow.time())

    @answer.validator
    def _refuse_answer(
        self, question_id: str, answer: str, by: str, note: str | None = None, ref: str | None = None
    ) -> None:
        """Refuse before anything is in the history: a query may replay a refusal that is there in another order."""
        wait = self._find_asked(question_id, answer)
        if (key := mailbox.activity_of(self._state, wait)) is not None:
            self._refuse_decision(key, answer, ref, by)

    def _find_asked(self, question_id: str, answer: str) -> Wait:
        for wait in self._state.open_waits:
            if wait.id == question_id and (asked := mailbox.question_of(self._state, wait)) is not None:
                if asked.options is not None and answer not in asked.options:
                    _refuse(f"{answer!r} is not one of the options: {', '.join(asked.options)}")
                return wait
        _refuse(f"question {question_id} is not open")

    @workflow.update
    def decide(self, key: str, decision: str, reference: str | None, by: str, note: str | None = None) -> None:
        """Decide whether an irreversible action happened. The turn that waits for it goes on."""
        self._limits.updates += 1
        self._decide(key, decision, reference, by)

    @decide.validator
    def _refuse_decision(
        self, key: str, decision: str, reference: str | None, by: str, note: str | None = None
    ) -> None:
        _decide_doubt(replace(self._state, acts=dict(self._state.acts)), key, decision, reference, by)

    def _decide(self, key: str, decision: str, reference: str | None, by: str) -> None:
        _decide_doubt(self._state, key, decision, reference, by)
        self._go_on_without_doubt()

    def _go_on_without_doubt(self) -> None:
        """End the wait for a decision that is not needed any more."""
        for wait in list(self._state.open_waits):
            key = mailbox.activity_of(self._state, wait)
            if key is not None and not self._state.acts[key].is_open:
                mailbox.end_wait(self._state, wait, ResolvedBy.ANSWER, "null", workflow.time())
                return


def _decide_doubt(state: TaskState, key: str, decision: str, reference: str | None, by: str) -> None:
    now = workflow.time()
    answer = task_ledger.decide_doubt(state, key, decision, by=by, reference=reference, calls=None, now=now)
    if answer.error is not None:
        _refuse(answer.message)


def _refuse(message: str) -> NoReturn:
    raise ApplicationError(message, type=STATE_REFUSED)
