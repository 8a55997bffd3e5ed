"""The moves of a task: what follows an entry of its turn, up to the next entry or the end. Rules over its state."""

from __future__ import annotations

from dataclasses import dataclass, replace

from craftcore.errors import ErrorCode
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.plurals import format_count
from craftcore.tasks.model import CANCEL, NewWait, QuestionKind, Resume, TaskStatus, Wait
from craftcore.temporal.workflow.messages import HANDED_BACK, LIMITED, ROLLOVER, EntryEnd, TaskEnd, TaskState


@dataclass(frozen=True, kw_only=True)
class NextMove:
    """The move of a task after an entry: its end, a pause or a wait. All None: the next entry, at once."""

    end: TaskEnd | None = None
    not_before: float | None = None
    wait: NewWait | None = None


def settle(state: TaskState, end: EntryEnd, now: float) -> NextMove:
    """Move a task by the settlement of its entry."""
    state.handed_back_since = end.handed_back_since
    if end.move not in (LIMITED, HANDED_BACK):  # something was run
        state.is_interrupted = end.status == "PENDING" and end.gives_back and end.not_before is None
        state.touched_at = end.ended_at or state.touched_at
    if end.move == LIMITED:
        state.attempts -= 1
        state.starts -= 1
        return NextMove()
    if end.status == "PENDING":
        _return_to_queue(state, end, now)
        return NextMove(not_before=end.not_before)
    if end.status != "DONE":
        return NextMove(end=make_failure(end.reason, end.error_code, end.error_message))
    match end.move:
        case "returned":
            return NextMove(end=TaskEnd(status=TaskStatus.DONE, reason=end.reason, result_json=end.result_json))
        case "continues":
            _begin_turn(state, end, now)
        case "suspends" if end.wait is not None and end.wait.name.startswith(ROLLOVER):
            state.attempts -= 1
            state.resume = Resume.RESUME
            return NextMove()
        case "suspends":
            pass
        case _:
            return NextMove(end=TaskEnd(status=TaskStatus.CANCELLED, reason=end.reason, error_code=end.error_code))
    state.attempts = state.starts = state.crashes = 0
    state.attempt_entry = state.entries + 1
    return NextMove(wait=end.wait)


def _return_to_queue(state: TaskState, end: EntryEnd, now: float) -> None:
    """Prepare the next entry of the same turn."""
    if end.not_before is not None:
        state.task = replace(state.task, reason=end.reason, updated_at=now)
        if end.move == HANDED_BACK:
            state.attempts -= 1
            state.starts -= 1
            return
    if end.gives_back:
        state.attempts -= 1
    elif not state.acts_made:  # the next attempt begins with the first agent
        state.task = replace(state.task, agent=None, updated_at=now)
    goes_on = end.gives_back and end.not_before is None
    state.resume = Resume.RESUME if goes_on else Resume.RETRY
    if not goes_on:
        state.attempt_entry = state.entries + 1


def _begin_turn(state: TaskState, end: EntryEnd, now: float) -> None:
    task = state.task
    state.task = replace(
        task,
        turn=task.turn + 1,
        state_json=end.state_json,
        turns_alone=task.turns_alone + 1,
        steps_alone=task.steps_alone + end.steps,
        updated_at=now,
    )
    if task.agents and task.agent:  # the next turn begins with the agent whose state it takes
        state.task = replace(state.task, agents=task.agents[task.agents.index(task.agent) :], agent=None)
    state.memo, state.kept_waits, state.resume = {}, [], Resume.NEXT
    numbered = f"activity:{task.id}:{task.turn}."
    state.acts = {key: one for key, one in state.acts.items() if one.is_open or not key.startswith(numbered)}
    state.ends_at = {key: at for key, at in state.ends_at.items() if key in state.acts}
    state.children_to_cancel = [child for child in state.children_to_cancel if child not in state.child_ends]
    state.child_ends, state.children_to_leave = {}, []  # only the turn that started a child can wait for it


def has_cancelled_task(wait: Wait) -> bool:
    """Return whether the answer to a question of craftcore about the task has cancelled the task."""
    is_about_task = wait.name.startswith((QuestionKind.BUDGET, QuestionKind.STALE))
    return is_about_task and wait.value_json == canonicalize(CANCEL)


def make_failure(reason: str, code: str | None, message: str | None) -> TaskEnd:
    return TaskEnd(status=TaskStatus.FAILED, reason=reason, error_code=code, error_message=message or reason)


def make_poison_end(crashes: int) -> TaskEnd:
    """Return the end of a task that kills its workers."""
    message = f"{format_count(crashes, 'worker')} died in it, and it recorded nothing"
    return make_failure("poison", ErrorCode.POISON, message)


def make_cancelled_end() -> TaskEnd:
    return TaskEnd(status=TaskStatus.CANCELLED, reason="cancelled", error_code=ErrorCode.WORKFLOW_ABORTED)
