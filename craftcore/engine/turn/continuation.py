"""The next turn of a task: `return Continue(…)`, and the question to a person once its budget is used up."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from craftcore.clock import YEAR_10000
from craftcore.config import TaskSettings
from craftcore.errors import InvalidInput, PayloadTooLarge
from craftcore.serialization.arguments import Duration, seconds
from craftcore.serialization.encode import encode
from craftcore.serialization.plurals import format_count
from craftcore.tasks.model import CANCEL, CONTINUED, GO_ON, NewQuestion, NewWait, QuestionKind, Task, WaitKind
from craftcore.tasks.outcomes import Continue, Continues
from craftcore.triggers.validation import is_name, show_value


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


def move_of_continue(task: Task, settings: TaskSettings, now: float, result: Continue[Any]) -> Continues:
    """Return the move of a turn that returned Continue. Raises InvalidInput or PayloadTooLarge."""
    text = encode(result.state, "state")
    if len(text) > settings.state_max_bytes:
        raise PayloadTooLarge(
            f"the state has {len(text):,} bytes; the limit is {settings.state_max_bytes:,} (tasks.state_max_bytes). "
            "Store what is large elsewhere and keep a reference"
        )
    due_at = None if result.after is None else resolve_delay(now, "Continue: after", result.after)
    if result.on is not None:
        if not is_name(result.on):
            raise InvalidInput(
                f"Continue(on={show_value(result.on)}): an event is 1 to 200 characters out of A-Z a-z 0-9 . _ : @ + -"
            )
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
    """Return what a record says of a wait that begins."""
    if wait.any_of is not None:
        waits = (replace(wait, any_of=None), *(replace(other, any_of=None) for other in wait.others))
        ends = [other.due_at for other in waits if other.due_at is not None]
        due_at, first_of = min(ends, default=None), [document(other) for other in waits]
        return {"wait": wait.any_of, "kind": "first", "event": None, "due_at": due_at, "first_of": first_of}
    question = {} if wait.question is None else {"question": wait.question.question}
    return {"wait": wait.name, "kind": wait.kind, "event": wait.event, "due_at": wait.due_at, **question}
