"""The path of `ctx.act`: an irreversible action is called once, whatever becomes of its turn.

Here it is decided which act a call is, and with what it is called. `ledgered_call.py` does it.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import anyio

from craftcore.activities.model import NUMBERED, ActionTerms
from craftcore.engine.turn.changed_acts import find_place, find_step_result, is_ledgered
from craftcore.engine.turn.ledgered_call import LedgeredCall
from craftcore.engine.turn.provider_call import deadline_of
from craftcore.engine.turn.steps import run_step
from craftcore.engine.turn.turn import Turn
from craftcore.errors import InvalidInput
from craftcore.registry.action import Action
from craftcore.registry.call import Call
from craftcore.serialization.encode import encode
from craftcore.serialization.untrusted import is_awaitable, safe_repr
from craftcore.triggers.validation import require_name


async def act(turn: Turn, action: Action | str, key: str | None, arguments: Mapping[str, Any]) -> Any:
    """Do something to the world, once: what the action returned, also when it was at an earlier entry."""
    action = _find_action(turn, action)
    action.check(arguments)
    terms = action.terms_for(arguments)
    place = _place(turn, key)
    activity_key = f"activity:{turn.task.id}:{place}"
    with turn.running_call():
        if not terms.irreversible and not await is_ledgered(turn, action, key, place, activity_key):
            return await _act_plainly(turn, action, activity_key, place, terms, arguments)
        text = encode(dict(arguments), f"the arguments of {action.name}")
        is_done, result = await find_step_result(turn, action, key, place, activity_key, arguments)
        if is_done:
            return result
        place = await find_place(turn, action, place, text, is_counted=key is None)
        if place not in turn.acts:
            turn.charge_budget()
            turn.acts.add(place)
        return await LedgeredCall(turn, action, terms, place, arguments, text).run()


def _find_action(turn: Turn, action: Action | str) -> Action:
    if isinstance(action, Action):
        if turn.services.actions.get(action.name) is not action:  # a restart looks for it by its name, on this App
            raise InvalidInput(
                f"action {action.name} is not declared on the App that runs: declare it there with @app.action"
            )
        return action
    if not isinstance(action, str):
        raise InvalidInput(
            f"ctx.act takes an action that was declared with @app.action, or its name; {safe_repr(action)} is neither"
        )
    declared = turn.services.actions.get(action)
    if declared is None:
        raise InvalidInput(
            f"no action is named {safe_repr(action)}; declared are {', '.join(turn.services.actions) or 'none'}"
        )
    return declared


def _place(turn: Turn, key: str | None) -> str:
    """Return the identity of an act within its task: its key, for the whole task; else turn and number, and the agent
    when it is not the first."""
    if key is None:
        number = f"{turn.task.turn}.{turn.next_ordinal('act', None).removeprefix('act#')}"
        return number if turn.later_agent is None else f"{number}@{turn.later_agent}"
    turn.refuse_when_over()
    require_name("act key", key)
    if NUMBERED.fullmatch(key):
        raise InvalidInput(f"act key {safe_repr(key)} could be taken for the number of a call: begin it with a letter")
    return key


async def _act_plainly(
    turn: Turn, action: Action, activity_key: str, place: str, terms: ActionTerms, arguments: Mapping[str, Any]
) -> Any:
    """Run an action that can be done twice, as a step: it is not in the ledger."""
    fn = action.fn
    call = Call(key=activity_key, attempt=1, deadline=deadline_of(turn, terms.timeout))

    async def run_async(values: Mapping[str, Any]) -> Any:
        with anyio.fail_after(terms.timeout):
            return await fn(call, **values)

    async def await_within(result: Awaitable[Any]) -> Any:
        with anyio.fail_after(terms.timeout):
            return await result

    def run_plain(values: Mapping[str, Any]) -> Any:
        result = fn(call, **values)
        return await_within(result) if is_awaitable(result) else result

    run = run_async if action.is_async else run_plain
    run.__annotations__["return"] = action.result_type
    key = place.partition("@")[0] if NUMBERED.fullmatch(place) else place  # a step has its agent in its identity
    return await run_step(
        turn, action.name, run, (dict(arguments),), key=key, retry=None, timeout=None, on_change="error"
    )
