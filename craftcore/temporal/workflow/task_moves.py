"""The moves of a task in its workflow: what follows an entry of a turn, up to the next entry or the end."""

from __future__ import annotations

import asyncio
from typing import NoReturn

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from craftcore.errors import ErrorCode
    from craftcore.serialization.canonical import canonicalize
    from craftcore.serialization.plurals import format_count
    from craftcore.tasks.model import CANCEL, QuestionKind, Resume, TaskStatus
    from craftcore.tasks.wait_rules import has_renewed_budget
    from craftcore.temporal.workflow import mailbox, task_ledger
    from craftcore.temporal.workflow.carried import make_refusal, pack
    from craftcore.temporal.workflow.messages import HANDED_BACK, LIMITED, ROLLOVER, EntryEnd, TaskEnd
    from craftcore.temporal.workflow.search_attributes import QUESTIONS_MEMO, publish
    from craftcore.temporal.workflow.task_gates import UNDISTURBED
    from craftcore.temporal.workflow.task_handlers import TaskHandlers

IDLE_CRASHES_MAX = 10
"""Crashes in a row in which a turn recorded nothing: then it is poison."""

PUTS_IN_DOUBT = "puts every intent in doubt"
"""The patch of tasks that end, and go on in another run, with no act at INTENT. Histories without it replay as before.
"""

COUNTS_BEGUN = "counts crashes of begun code"
"""The patch of tasks that count no crash of an entry whose code had not begun."""

TAKES_BACK = "takes back an answered question"
"""The patch of tasks whose questions are in no list any more while they wait for a gate."""

TIMER_MIN_SECONDS = 0.001
"""Less than this would be no timer."""


class TaskMoves(TaskHandlers):
    """Moves a task as the ends of its entries say."""

    def _count_crash(self, *, has_begun: bool = True) -> None:
        """Count that the worker of the last entry died. Only an entry that follows a crash says whether its code
        `has_begun`; before that it cannot be to blame."""
        state = self._state
        state.crashes += 1
        state.is_interrupted = True
        state.resume = Resume.CRASH
        if self._has_recorded:
            state.idle_entries.clear()
        elif state.entries in self._survived:  # its worker said so before the cluster noted the end of its entry
            self._survived.clear()
        elif not has_begun and state.crashes > 1 and workflow.patched(COUNTS_BEGUN):
            return
        else:
            state.idle_entries.append(state.entries)

    async def _settle_crash(self) -> TaskEnd | None:
        """Return the end of a task that kills its workers; None: it is entered again.

        The cluster sees a worker that it cannot reach as a dead one. So an outage of the server could bury tasks that
        did nothing. A worker that outlives its entry says so as soon as it can, and that entry does not count. The task
        waits before its last entry and before its end, so that the workers have time to say it, and an outage to pass.
        One file allows three crashes, because a suspect runs alone there. Here others run beside it, so it has ten:
        with five, one of 81 innocent tasks failed under a hundred kills.
        """
        state = self._state
        if (crashes := len(state.idle_entries)) < IDLE_CRASHES_MAX - 1:
            return None
        await asyncio.sleep((crashes - 1) * self._start.heartbeat_timeout)
        if (crashes := len(state.idle_entries)) < IDLE_CRASHES_MAX:
            return None
        message = f"{format_count(crashes, 'worker')} died in it, and it recorded nothing"
        return make_failure("poison", ErrorCode.POISON, message)

    async def _settle(self, end: EntryEnd) -> TaskEnd | None:
        """Move the task as its settlement says. Return its end; None: it goes on."""
        state = self._state
        state.handed_back_since = end.handed_back_since
        if end.move not in (LIMITED, HANDED_BACK):  # something was run
            state.is_interrupted = end.status == "PENDING" and end.gives_back and end.not_before is None
            state.touched_at = end.ended_at or state.touched_at
        if end.move == LIMITED:
            state.attempts -= 1
            state.starts -= 1
            await self._gates.take_limits(end.limits or [])
            if workflow.cancellation_reason() is not None and workflow.patched(UNDISTURBED):
                return make_cancelled_end()  # it came while its gates were told
            return None
        if end.status == "PENDING" and end.move == HANDED_BACK and end.not_before is not None:
            state.attempts -= 1
            state.starts -= 1
            self._set_task(reason=end.reason)
            await sleep_until(end.not_before)
            return None
        if end.status == "PENDING":
            if end.gives_back:
                state.attempts -= 1
            elif not state.acts_made:  # the next attempt begins with the first agent
                self._set_task(agent=None)
            goes_on = end.gives_back and end.not_before is None
            state.resume = Resume.RESUME if goes_on else Resume.RETRY
            if not goes_on:
                state.attempt_entry = state.entries + 1
            if end.not_before is not None:
                self._set_task(reason=end.reason)
                await sleep_until(end.not_before)
            return None
        if end.status != "DONE":
            return make_failure(end.reason, end.error_code, end.error_message)
        match end.move:
            case "returned":
                return TaskEnd(status=TaskStatus.DONE, reason=end.reason, result_json=end.result_json)
            case "continues":
                self._begin_turn(end)
            case "suspends" if end.wait is not None and end.wait.name.startswith(ROLLOVER):
                state.attempts -= 1
                state.resume = Resume.RESUME
                return None
            case "suspends":
                pass
            case _:
                return TaskEnd(status=TaskStatus.CANCELLED, reason=end.reason, error_code=end.error_code)
        state.attempts = state.starts = state.crashes = 0
        state.attempt_entry = state.entries + 1
        if end.wait is None:
            return None
        return await self._wait(end)

    def _begin_turn(self, end: EntryEnd) -> None:
        state, task = self._state, self._state.task
        self._set_task(
            turn=task.turn + 1,
            state_json=end.state_json,
            turns_alone=task.turns_alone + 1,
            steps_alone=task.steps_alone + end.steps,
        )
        if task.agents and task.agent:  # the next turn begins with the agent whose state it takes
            self._set_task(agents=task.agents[task.agents.index(task.agent) :], agent=None)
        state.memo, state.kept_waits, state.resume = {}, [], Resume.NEXT
        numbered = f"activity:{task.id}:{task.turn}."
        state.acts = {key: one for key, one in state.acts.items() if one.is_open or not key.startswith(numbered)}
        state.ends_at = {key: at for key, at in state.ends_at.items() if key in state.acts}
        state.children_to_cancel = [child for child in state.children_to_cancel if child not in state.child_ends]
        state.child_ends, state.children_to_leave = {}, []  # only the turn that started a child can wait for it

    async def _wait(self, end: EntryEnd) -> TaskEnd | None:
        assert end.wait is not None, end
        mailbox.begin_wait(self._state, end.wait, workflow.time())
        self._set_task(status=TaskStatus.WAITING, reason=f"waits: {end.wait.identity}")
        return await self._end_wait()

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
        if over.name.startswith((QuestionKind.BUDGET, QuestionKind.STALE)) and over.value_json == canonicalize(CANCEL):
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


async def sleep_until(moment: float) -> None:
    """Sleep by a timer, also when the moment is past.

    The time of a workflow may differ at a replay. When a worker replays a task for a query, a timer that has fired
    meanwhile is seen at the time of the last workflow task. So no command may depend on a comparison with the time.
    """
    await asyncio.sleep(seconds_until(moment))


def seconds_until(moment: float) -> float:
    """Return the seconds until a moment, at least those of the shortest timer."""
    return max(TIMER_MIN_SECONDS, moment - workflow.time())


def make_failure(reason: str, code: str | None, message: str | None) -> TaskEnd:
    """Return the end of a task that failed."""
    return TaskEnd(status=TaskStatus.FAILED, reason=reason, error_code=code, error_message=message or reason)


def make_cancelled_end() -> TaskEnd:
    """Return the end of a task that was cancelled."""
    return TaskEnd(status=TaskStatus.CANCELLED, reason="cancelled", error_code=ErrorCode.WORKFLOW_ABORTED)
