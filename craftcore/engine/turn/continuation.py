"""The next turn of a task: `return Continue(…)`, and the question to a person once its budget is used up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from craftcore.clock import YEAR_10000
from craftcore.config import TaskSettings
from craftcore.errors import InvalidInput, PayloadTooLarge
from craftcore.log import get_logger
from craftcore.serialization.arguments import Duration, seconds
from craftcore.serialization.plurals import format_count
from craftcore.serialization.roundtrip import encode_as
from craftcore.tasks.model import CANCEL, CONTINUED, GO_ON, NewQuestion, NewWait, QuestionKind, Task, WaitKind
from craftcore.tasks.outcomes import NEAR_LIMIT, Continue, Continues
from craftcore.triggers.validation import NAME_RULE, is_name, show_value

log = get_logger(__name__)

OVER_LIMIT = 2
"""How many times the limit a turn may leave as its state: all that it has paid for is kept, and no turn follows."""


def resolve_delay(now: float, what: str, length: Duration) -> float:
    """Return the moment that lies `length` after `now`. Raises InvalidInput, which names `what` it is."""
    return now + seconds(what, length, InvalidInput, most=math.nextafter(YEAR_10000 - now, 0))


def budget_wait(task: Task, used: str, name: str) -> NewWait:
    """Return what a task waits for that worked on and on while nothing came from outside."""
    question = NewQuestion(
        kind=QuestionKind.BUDGET,
        question=f"Task {task.id} ({task.workflow}) took {used} without rest, at turn {task.turn}. Go on with it?",
        options=(GO_ON, CANCEL),
    )
    return NewWait(name=f"{QuestionKind.BUDGET}:{name}", kind=WaitKind.QUESTION, question=question)


def refuse_large_state(task: Task, settings: TaskSettings) -> None:
    """Raise PayloadTooLarge for a turn that finds a state over the limit, before its code has paid for anything."""
    size, limit = len(task.state_json), settings.state_max_bytes
    if size > limit:
        raise PayloadTooLarge(
            f"the state has {size:,} bytes; the limit is {limit:,} (tasks.state_max_bytes), so turn {task.turn} was "
            "not begun. Raise the limit and retry the task, with code that stores what is large elsewhere"
        )


def move_of_continue(
    task: Task, settings: TaskSettings, now: float, result: Continue[Any], state_type: Any
) -> Continues:
    """Return the move of a turn that returned Continue. Raises InvalidInput, also for a state that would come back as
    one of another class, or PayloadTooLarge."""
    text = encode_as(result.state, state_type, "state")
    limit = settings.state_max_bytes
    if len(text) > OVER_LIMIT * limit:
        raise PayloadTooLarge(
            f"the state has {len(text):,} bytes; the limit is {limit:,} (tasks.state_max_bytes), and no turn may leave "
            "more than twice as much. Store what is large elsewhere and keep a reference"
        )
    before, facts = len(task.state_json), {"task": task.id, "turn": task.turn, "bytes": len(text), "limit": limit}
    if before <= limit < len(text):
        log.warning("state.over_limit", **facts)
    elif before <= NEAR_LIMIT * limit < len(text):
        log.warning("state.near_limit", **facts)
    due_at = None if result.after is None else resolve_delay(now, "Continue: after", result.after)
    if result.on is not None:
        if not is_name(result.on):
            raise InvalidInput(f"Continue(on={show_value(result.on)}): an event is {NAME_RULE}")
        if due_at is None:  # it rests until something comes from outside
            return Continues(state_json=text, wait=NewWait(name=CONTINUED, kind=WaitKind.EVENT, event=result.on))
    if task.turns_alone + 1 >= settings.max_turns:
        return Continues(
            state_json=text, wait=budget_wait(task, format_count(settings.max_turns, "turn"), f"{task.turn}")
        )
    if due_at is None:
        return Continues(state_json=text, wait=None)
    kind = WaitKind.TIMER if result.on is None else WaitKind.EVENT
    return Continues(state_json=text, wait=NewWait(name=CONTINUED, kind=kind, event=result.on, due_at=due_at))


def document(wait: NewWait) -> dict[str, Any]:
    """Return what a record says of a wait that begins, and of those beside it."""
    if wait.beside:
        several = [document(one) for one in (replace(wait, beside=()), *wait.beside)]
        due_at = min((one["due_at"] for one in several if one["due_at"] is not None), default=None)
        return {"wait": wait.identity, "kind": "several", "event": None, "due_at": due_at, "waits": several}
    if wait.any_of is not None:
        waits = (replace(wait, any_of=None), *(replace(other, any_of=None) for other in wait.others))
        ends = [other.due_at for other in waits if other.due_at is not None]
        due_at, first_of = min(ends, default=None), [document(other) for other in waits]
        return {"wait": wait.any_of, "kind": "first", "event": None, "due_at": due_at, "first_of": first_of}
    question = {} if wait.question is None else {"question": wait.question.question}
    return {"wait": wait.name, "kind": wait.kind, "event": wait.event, "due_at": wait.due_at, **question}
