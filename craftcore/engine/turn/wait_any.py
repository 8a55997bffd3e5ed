"""The wait for the first of several: `ctx.wait_any`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from craftcore.engine.turn.emit import Child, child_result
from craftcore.engine.turn.questions import Asked, check_question, key_of_round
from craftcore.engine.turn.turn import Turn
from craftcore.errors import InvalidInput, StepConflict
from craftcore.serialization.arguments import show_value
from craftcore.serialization.readable_types import decode_as, require_type
from craftcore.tasks.alternatives import Ask, Event, First, Timer
from craftcore.tasks.model import NewWait, Wait, WaitKind
from craftcore.triggers.validation import require_name

ALTERNATIVES_MAX = 100

Alternative = Child | Event | Ask | Timer


async def wait_any(turn: Turn, alternatives: Mapping[str, Alternative], key: str | None) -> First:
    """Suspend the turn until the first of them comes, once per key, or place among the keyless, in a turn. All are
    waited for once more when the form of a question refuses the answer.

    Raises InvalidInput for alternatives that cannot be waited for, StepConflict when the one that came is not among
    them, ChildFailed when a child that came first has failed.
    """
    refused: dict[str, InvalidInput] = {}
    again = 0
    while True:
        name = turn.next_ordinal("wait_any", key_of_round(key, again))
        first, *others = _check_alternatives(turn, name, alternatives, refused)
        wait = turn.find_alternative(name)
        if wait is None:
            await turn.suspend_for(replace(first, others=tuple(others)))
        chosen = wait.name.removeprefix(f"{name}/")
        if chosen not in alternatives:
            raise StepConflict(
                f"{name} waited for {chosen} in this turn before, which is not among its alternatives now"
            )
        alternative = alternatives[chosen]
        if not isinstance(alternative, Ask):
            return First(chosen, _value_of(alternative, wait))
        asked = _check_ask(alternative, refused.get(chosen))
        try:
            return First(chosen, asked.read(wait.value_json or "null"))
        except InvalidInput as refusal:
            refused[chosen], again = refusal, again + 1


def _check_ask(ask: Ask, refusal: InvalidInput | None) -> Asked:
    asked = check_question(ask.question, ask.options, None, ask.by_message, ask.form, ask.to)
    return asked if refusal is None else asked.ask_again(refusal)


def _check_alternatives(
    turn: Turn, name: str, alternatives: object, refused: Mapping[str, InvalidInput]
) -> list[NewWait]:
    """Return the wait of each. Raises InvalidInput."""
    if not isinstance(alternatives, Mapping) or not 0 < len(alternatives) <= ALTERNATIVES_MAX:
        raise InvalidInput(
            f"ctx.wait_any takes 1 to {ALTERNATIVES_MAX} alternatives by name, for example "
            f'{{"paid": Event("paid"), "late": Timer("1h")}}; not {show_value(alternatives)}'
        )
    return [_new_wait(turn, name, chosen, alternative, refused) for chosen, alternative in alternatives.items()]


def _new_wait(
    turn: Turn, name: str, chosen: object, alternative: object, refused: Mapping[str, InvalidInput]
) -> NewWait:
    require_name("ctx.wait_any: alternative", chosen)
    own = f"{name}/{chosen}"
    match alternative:
        case Event(name=event, type=type_):
            require_name("event", event)
            require_type(type_, _place_of(event))
            return NewWait(name=own, kind=WaitKind.EVENT, event=event, any_of=name)
        case Ask():
            asked = _check_ask(alternative, refused.get(str(chosen)))
            return NewWait(name=own, kind=WaitKind.QUESTION, question=asked.question, any_of=name)
        case Timer(after=after):
            due_at = turn.moment_after("Timer: after", after)
            return NewWait(name=own, kind=WaitKind.TIMER, due_at=due_at, any_of=name)
        case Child(id=child):
            return NewWait(name=own, kind=WaitKind.CHILD, event=child, any_of=name)
    raise InvalidInput(
        f"ctx.wait_any: alternative {chosen} is {show_value(alternative)}; it must be an Event, an Ask, a Timer, or "
        "the Child that ctx.start_child returned"
    )


def _value_of(alternative: Alternative, wait: Wait) -> Any:
    if isinstance(alternative, Child):
        return child_result(alternative, wait, Any)
    if isinstance(alternative, Event):
        return decode_as(wait.value_json or "null", alternative.type, _place_of(alternative.name))
    return None


def _place_of(event: str) -> str:
    return f"the value of event {event}"
