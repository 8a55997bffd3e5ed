"""The workflow of one task. It holds the journal and the waits of its turns, and contains none of the user's code."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

from temporalio import workflow
from temporalio.common import RetryPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import ActivityError, ApplicationError, WorkflowAlreadyStartedError, is_cancelled_exception
from temporalio.exceptions import TimeoutError as ActivityTimeout

with workflow.unsafe.imports_passed_through():
    from craftcore.activities.model import Activity, ActivityStatus
    from craftcore.errors import InvalidInput, PayloadTooLarge
    from craftcore.serialization.canonical import canonicalize
    from craftcore.tasks.answer_form import read_answer
    from craftcore.tasks.model import NewTask, ResolvedBy, Resume, TaskStatus, Wait, make_task
    from craftcore.tasks.wait_rules import has_renewed_budget, write_task_end
    from craftcore.temporal.ids import task_id_of, workflow_id_of_schedule
    from craftcore.temporal.workflow import counts, entry_input, mailbox, task_ledger, task_moves
    from craftcore.temporal.workflow.commands import (
        ignore_end,
        run_shielded,
        seconds_until,
        send_signal,
        sleep_until,
        start_task,
    )
    from craftcore.temporal.workflow.gate_messages import Passed
    from craftcore.temporal.workflow.journal_messages import (
        LEASE_LOST,
        NOT_FOUND,
        STATE_REFUSED,
        JournalAnswer,
        JournalCall,
        Written,
        complete_draft,
        drop_large,
        read_batch,
        write_answers,
    )
    from craftcore.temporal.workflow.messages import (
        ACTIVITY,
        BEGUN,
        LIMITED,
        TASK_LOOK,
        WORKFLOW,
        EntryEnd,
        Mail,
        MemoPage,
        TaskEnd,
        TaskStart,
        TaskState,
        TaskView,
    )
    from craftcore.temporal.workflow.rollover import RunLimits, make_refusal, pack, unpack
    from craftcore.temporal.workflow.search_attributes import QUESTIONS_MEMO, publish
    from craftcore.temporal.workflow.task_gates import UNDISTURBED, TaskGates
    from craftcore.temporal.workflow.task_moves import make_cancelled_end, make_failure

ENTRY_MAX = timedelta(days=366)

LOOK_TIMEOUT = timedelta(seconds=60)

IDLE_CRASHES_MAX = 10
"""Crashes in a row in which a turn recorded nothing: then it is poison."""

PUTS_IN_DOUBT = "puts every intent in doubt"
"""The patch of tasks that end, and go on in another run, with no act at INTENT. Histories without it replay as before.
"""

COUNTS_BEGUN = "counts crashes of begun code"
"""The patch of tasks that count no crash of an entry whose code had not begun."""

TAKES_BACK = "takes back an answered question"
"""The patch of tasks whose questions are in no list any more while they wait for a gate."""

REFUSES_LARGE = "refuses a large entry"
"""The patch of tasks that fail when an entry cannot be sent. A converter of the user's own may have sent one before."""


@workflow.defn(name=WORKFLOW)
class TaskWorkflow:
    """Enters the turns of a task one after the other.

    `_token` is the entry whose journal is open; 0: none is. `_is_inside`: its last entry has not been left.
    `_calls_until`: the calls of that may be on their way until then.
    """

    @workflow.init
    def __init__(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> None:
        state = unpack(carried, packed)
        if state is None:
            info = workflow.info()
            row = NewTask(
                id=task_id_of(info.workflow_id, info.first_execution_run_id),
                workflow=start.workflow,
                session_id=start.session_id,
                schedule_id=start.schedule_id,
                parent_id=start.parent,
                trigger_id=None,
                max_attempts=start.max_attempts,
            )
            state = TaskState(task=make_task(row, 1, workflow.time()), resume=Resume.FIRST, limits=start.limits)
        self._start = start
        self._state = state
        self._limits = RunLimits(start)
        self._gates = TaskGates(start, state)
        self._token = 0
        self._is_inside = False
        self._calls_until = 0.0
        self._has_recorded = False
        self._survived: set[int] = set()

    @workflow.run
    async def run(self, start: TaskStart, carried: TaskState | None, packed: bytes | None) -> TaskEnd:
        """Enter turns until the task has ended. A task that failed fails its workflow."""
        try:
            if start.due_at > workflow.info().start_time.timestamp():
                await sleep_until(start.due_at)
            end = await self._enter_turns()
        except asyncio.CancelledError:
            end = make_cancelled_end()
        except PayloadTooLarge as error:
            end = make_failure("too large", error.code, error.message)
        if self._is_inside and workflow.patched(PUTS_IN_DOUBT):  # a cancel came with the end of its entry
            await run_shielded(self._leave_entry())
        self._set_task(
            status=TaskStatus(end.status),
            reason=end.reason,
            result_json=end.result_json,
            error_code=end.error_code,
            error_message=end.error_message,
        )
        await run_shielded(self._finish(end))
        self._refuse_intents()
        if end.status == TaskStatus.FAILED:
            raise ApplicationError(end.error_message or end.reason, end, type=end.error_code, non_retryable=True)
        return end

    def _set_task(self, **changes: object) -> None:
        self._state.task = replace(self._state.task, **changes, updated_at=workflow.time())  # type: ignore[arg-type]
        if "status" in changes:
            publish(self._state)

    # Its turns

    async def _enter_turns(self) -> TaskEnd:
        state = self._state
        if state.open_waits and (over := await self._end_wait()) is not None:
            return over
        while True:
            self._check_mailbox()
            if self._limits.is_due(state):
                await self._roll_over()
            if (over := await self._gates.enter()) is not None:
                return over
            end = await self._enter()
            if end is not None:
                await self._gates.leave(end)
            if workflow.cancellation_reason() is not None and (end is None or end.goes_on):
                return make_cancelled_end()  # the cancel did not reach its entry, or its worker died
            if end is None:
                if (over := await self._settle_crash()) is not None:
                    return over
                continue
            if end.deadline_at is not None:
                self._set_task(deadline_at=end.deadline_at)
            if (over := await self._settle(end)) is not None:
                return over

    async def _enter(self) -> EntryEnd | None:
        """Run one entry of the turn. None: its worker died."""
        state = self._state
        state.entries += 1
        state.attempts += 1
        state.starts += 1
        self._token, self._has_recorded = state.entries, False
        state.first_at = workflow.time() if state.first_at is None else state.first_at
        self._set_task(status=TaskStatus.RUNNING, reason="running")
        if not state.is_interrupted:
            state.touched_at = workflow.time()
        given = entry_input.make_entry(self._start, state, workflow.time())
        if (excess := entry_input.find_excess(given)) is not None and workflow.patched(REFUSES_LARGE):
            raise excess
        end: EntryEnd | None = None
        self._is_inside = True
        is_cancelled = False
        try:
            end = await workflow.execute_activity(
                ACTIVITY,
                given,
                result_type=EntryEnd,
                start_to_close_timeout=ENTRY_MAX,
                heartbeat_timeout=timedelta(seconds=self._start.heartbeat_timeout),
                retry_policy=RetryPolicy(maximum_attempts=1),
                cancellation_type=workflow.ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
            )
            state.idle_entries.clear()
            counts.count_entry(state.task.workflow, end)
        except asyncio.CancelledError:  # it came with the end of the entry
            counts.count_attempt(state.task.workflow, counts.CANCELLED)
            raise
        except ActivityError as error:
            is_cancelled = is_cancelled_exception(error)
            counts.count_attempt(state.task.workflow, counts.CANCELLED if is_cancelled else counts.CRASHED)
            if not is_cancelled:
                self._count_crash(has_begun=_has_begun(error))
        await self._leave_entry(died=end is None)
        if is_cancelled:
            raise asyncio.CancelledError
        return end

    async def _leave_entry(self, *, died: bool = False) -> None:
        """Refuse the journal of the entry from now on, let what it has begun come to its end, and put its calls without
        an end in doubt. Nothing can be decided of them as long as they may be on their way.

        A cancel may break it off anywhere. Then it is repeated.
        """
        state, self._token = self._state, 0
        await workflow.wait_condition(workflow.all_handlers_finished)
        if died:
            self._put_in_doubt(state.entries)
        if task_ledger.list_intents(state) and workflow.patched(PUTS_IN_DOUBT):
            self._put_in_doubt(None)
        if self._calls_until:
            await sleep_until(self._calls_until)
        self._calls_until, self._is_inside = 0.0, False

    def _put_in_doubt(self, token: int | None) -> None:
        for left in task_ledger.list_intents(self._state, token):
            counts.count_call(self._state.acts[left].action, ActivityStatus.UNKNOWN)
        until = task_ledger.leave_behind(self._state, token, workflow.time())
        self._calls_until = max(self._calls_until, until)

    def _count_crash(self, *, has_begun: bool = True) -> None:
        """Count that the worker of the last entry died. Only an entry that follows a crash reports whether its code
        `has_begun`; before that it cannot be to blame."""
        state = self._state
        state.crashes += 1
        state.is_interrupted = True
        state.resume = Resume.CRASH
        if self._has_recorded:
            state.idle_entries.clear()
        elif state.entries in self._survived:  # its worker reported it before the cluster noted the end of its entry
            self._survived.clear()
        elif not has_begun and state.crashes > 1 and workflow.patched(COUNTS_BEGUN):
            return
        else:
            state.idle_entries.append(state.entries)

    async def _settle_crash(self) -> TaskEnd | None:
        """Return the end of a task that kills its workers; None: it is entered again.

        The cluster sees a worker that it cannot reach as a dead one. So an outage of the server could bury tasks that
        did nothing. A worker that outlives its entry reports it as soon as it can, and that entry does not count. The
        task waits before its last entry and before its end, so that the workers have time to report, and an outage to
        pass.
        One file allows three crashes, because a suspect runs alone there. Here others run beside it, so it has ten:
        with five, one of 81 innocent tasks failed under a hundred kills.
        """
        state = self._state
        if (crashes := len(state.idle_entries)) < IDLE_CRASHES_MAX - 1:
            return None
        await asyncio.sleep((crashes - 1) * self._start.heartbeat_timeout)
        if (crashes := len(state.idle_entries)) < IDLE_CRASHES_MAX:
            return None
        return task_moves.make_poison_end(crashes)

    async def _settle(self, end: EntryEnd) -> TaskEnd | None:
        """Move the task by its settlement. Return its end; None: it goes on."""
        move = task_moves.settle(self._state, end, workflow.time())
        if end.move == LIMITED:
            await self._gates.take_limits(end.limits or [])
            if workflow.cancellation_reason() is not None and workflow.patched(UNDISTURBED):
                return make_cancelled_end()  # it came while its gates were signalled
        if move.not_before is not None:
            await sleep_until(move.not_before)
        if move.wait is not None:
            mailbox.begin_wait(self._state, move.wait, workflow.time())
            self._set_task(status=TaskStatus.WAITING, reason=f"waits: {move.wait.identity}")
            return await self._end_wait()
        return move.end

    async def _end_wait(self) -> TaskEnd | None:
        """Wait until one of the open waits is over, in the next run when this one is at its limit."""
        state = self._state
        while state.open_waits:
            self._check_mailbox()
            if self._limits.is_due(state):
                await self._roll_over()
            due_at = mailbox.next_due(state)
            left = None if due_at is None else seconds_until(due_at)
            try:
                await workflow.wait_condition(self._is_awake, timeout=left)
            except TimeoutError:
                mailbox.end_due_wait(state, max(workflow.time(), due_at or 0.0))
        if self._gates.are_ahead and workflow.memo_value(QUESTIONS_MEMO, None) and workflow.patched(TAKES_BACK):
            publish(state)
        over = state.kept_waits[-1]
        if task_moves.has_cancelled_task(over):
            return make_cancelled_end()
        if has_renewed_budget(over):
            self._set_task(turns_alone=0, steps_alone=0)
        return None

    def _is_awake(self) -> bool:
        state = self._state
        return not state.open_waits or mailbox.is_full(state) or self._limits.is_due(state)

    def _check_mailbox(self) -> None:
        """Raise PayloadTooLarge when more was sent to the task than it keeps."""
        if mailbox.is_full(self._state):
            raise mailbox.make_refusal(self._state)

    async def _roll_over(self) -> NoReturn:
        """Go on in the next run of the workflow, with all that the task has. Raises PayloadTooLarge."""
        await workflow.wait_condition(workflow.all_handlers_finished)
        if (arguments := pack(self._start, self._state)) is None:
            raise make_refusal(self._state)
        self._refuse_intents()
        workflow.continue_as_new(args=arguments)

    def _refuse_intents(self) -> None:
        """Raise AssertionError while an act is at INTENT: then its task must not close, nor go on in another run. It
        repeats its workflow task until its code is mended."""
        if (left := task_ledger.list_intents(self._state)) and workflow.patched(PUTS_IN_DOUBT):
            raise AssertionError(f"the end of these calls is not known: {', '.join(left)}")

    # Its end

    async def _finish(self, end: TaskEnd) -> None:
        await self._gates.close()
        await self._report_end(end)
        while self._has_open_acts() or self._gates.has_unread:  # a person decides, also when no turn goes on
            await workflow.wait_condition(lambda: not self._has_open_acts() or self._gates.has_unread)
            await self._gates.emit_unread()
            publish(self._state)
        await workflow.wait_condition(workflow.all_handlers_finished)
        await self._gates.emit_unread()

    def _has_open_acts(self) -> bool:
        return any(one.is_open for one in self._state.acts.values())

    async def _report_end(self, end: TaskEnd) -> None:
        """Signal the end to the parent or the schedule, and cancel the children that end with this task."""
        end_text = write_task_end(end.status, end.result_json, end.error_code, end.error_message)
        schedule_id = self._start.schedule_id
        for waiting in (self._start.parent, None if schedule_id is None else workflow_id_of_schedule(schedule_id)):
            if waiting is not None:
                await send_signal(waiting, "ended", workflow.info().workflow_id, end_text)
        for child in self._state.children_to_cancel:
            if child not in self._state.child_ends:
                try:
                    await workflow.get_external_workflow_handle(child).cancel()
                except ApplicationError:
                    pass

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
        policy = WorkflowIDReusePolicy
        reuse = policy.REJECT_DUPLICATE if call.is_keyed_forever else policy.ALLOW_DUPLICATE
        announced = await self._gates.announce(call.workflow_id, call.start)
        try:
            child = await start_task(call.workflow_id, call.start, reuse)
            self._limits.children += 1
            child.add_done_callback(self._on_child_closed)
            task_id = task_id_of(call.workflow_id, child.first_execution_run_id or "")
            answer = JournalAnswer(task_id=task_id, created=True)
        except WorkflowAlreadyStartedError:
            await self._gates.withdraw(call.start, announced)
            answer = JournalAnswer(task_id=await self._look_up(call.workflow_id), created=False)
            if call.refuses_duplicate:
                return answer
        if call.memo is not None:
            self._state.memo[call.memo] = complete_draft(call, answer.task_id, created=answer.created)
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
        ignore_end(child)

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

    # The calls of clients

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
        wait, value_json = self._find_asked(question_id, answer)
        if (key := mailbox.activity_of(self._state, wait)) is not None:
            self._decide(key, answer, ref, by)
        else:
            mailbox.end_wait(self._state, wait, ResolvedBy.ANSWER, value_json, workflow.time())

    @answer.validator
    def _refuse_answer(
        self, question_id: str, answer: str, by: str, note: str | None = None, ref: str | None = None
    ) -> None:
        """Refuse before anything is in the history: a query may replay a refusal that is there in another order."""
        wait, _ = self._find_asked(question_id, answer)
        if (key := mailbox.activity_of(self._state, wait)) is not None:
            self._refuse_decision(key, answer, ref, by)

    def _find_asked(self, question_id: str, answer: str) -> tuple[Wait, str]:
        """Return the wait that an answer ends, and the value that it brings."""
        for wait in self._state.open_waits:
            if wait.id == question_id and (asked := mailbox.question_of(self._state, wait)) is not None:
                if asked.options is not None and answer not in asked.options:
                    _refuse(f"{answer!r} is not one of the options: {', '.join(asked.options)}")
                return wait, _read_answer(asked.form_json, answer)
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

    # Queries

    @workflow.query
    def read_memo(self, first: int) -> MemoPage:
        """Return a page of what the turn has on record."""
        return entry_input.make_page(self._state, first)

    @workflow.query
    def view(self) -> TaskView:
        state, task = self._state, self._state.task
        return TaskView(
            id=task.id,
            workflow=task.workflow,
            status=task.status,
            reason=task.reason or "",
            turn=task.turn,
            entries=state.entries,
            crashes=state.crashes,
            progress_json=task.progress_json,
            questions=mailbox.list_questions(state),
            activities=list(state.acts.values()),
            late=state.late,
        )

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


def _has_begun(error: ActivityError) -> bool:
    """Return whether the code of an entry whose worker died may have begun."""
    return not isinstance(error.cause, ActivityTimeout) or BEGUN in error.cause.last_heartbeat_details


def _decide_doubt(state: TaskState, key: str, decision: str, reference: str | None, by: str) -> None:
    now = workflow.time()
    answer = task_ledger.decide_doubt(state, key, decision, by=by, reference=reference, calls=None, now=now)
    if answer.error is not None:
        _refuse(answer.message)


def _read_answer(form_json: str | None, answer: str) -> str:
    """Return the value of an answer as JSON: the fields of a form, else the text."""
    if form_json is None:
        return canonicalize(answer)
    try:
        return read_answer(form_json, answer)
    except InvalidInput as error:
        _refuse(error.message)


def _refuse(message: str) -> NoReturn:
    raise ApplicationError(message, type=STATE_REFUSED)
