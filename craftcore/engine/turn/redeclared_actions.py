"""Actions that were declared differently, or were steps, at an earlier entry of the turn: they are not done again.

The record decides, whatever the code declares at this entry:

    was irreversible, is not           its row of the ledger decides, as if it still were
    was not, is irreversible           the step of the same place is its result
    was a step, is an irreversible act the step of the same name and key is its result, when the arguments are the same
    was an irreversible act, is a step refused, unless it is certain that nothing happened
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from craftcore.activities.ledger_rules import conflict, describe_status
from craftcore.activities.model import Activity, ActivityStatus
from craftcore.engine.turn.completed_step import decode_completed, find_completed_event
from craftcore.engine.turn.steps import digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.errors import StepConflict
from craftcore.registry.action import Action
from craftcore.serialization.decode import decode


async def is_ledgered(turn: Turn, action: Action, key: str | None, place: str, activity_key: str) -> bool:
    """Return whether an action that can be repeated was irreversible when it was called before: the ledger knows its
    key."""
    if place in turn.acts:
        return True
    if turn.identity("step", action.name, key or place.partition("@")[0]) in turn.memo:
        return False
    if not turn.is_entered_again and (key is None or turn.task.turn == 1):
        return False  # nothing can be there, and a look costs a round trip
    return await turn.services.journal.look(activity_key) is not None


async def find_step_result(
    turn: Turn, action: Action, key: str | None, place: str, activity_key: str, arguments: Mapping[str, Any]
) -> tuple[bool, Any]:
    """Return whether a step has done what an irreversible act is about to do, and its result then.

    Raises IdempotencyConflict when that step was called with other arguments.
    """
    found = _step_of(turn, action.name, key, place)
    if found is None or place in turn.acts:
        return False, None
    identity, text = found
    if await turn.services.journal.look(activity_key) is not None:
        return False, None
    if identity == turn.identity("step", action.name, None):
        turn.claim_identity("step", action.name, None)  # the next act of this name is another one
    done = decode_completed(text)
    in_order = [arguments[name] for name in action.parameters if name in arguments]
    if done.args not in (digest_of([dict(arguments)]), digest_of(in_order)):
        turn.attempt.acted.add(activity_key)
        raise conflict(activity_key, f"the step {identity.removeprefix('step:')} of this turn", action.name)
    return True, decode(bytes(done.result).decode(), action.result_type, f"the result of step {action.name}")


def _step_of(turn: Turn, name: str, key: str | None, place: str) -> tuple[str, str] | None:
    """Return the identity and the event of the completed step that may be this act. A key counts for all agents of a
    turn."""
    if not turn.memo:
        return None
    own = turn.identity("step", name, key or place.partition("@")[0])
    identities = [own]
    if key is None:
        identities.append(turn.identity("step", name, None))
    else:
        agents = turn.attempt.routed.agents if turn.attempt.routed is not None else ()
        identities += [f"step:{name}/{key}", *(f"step:{name}/{key}|{agent}" for agent in agents)]
    for identity in identities:
        if turn.is_taken(identity):
            continue  # this entry has come to the step itself: they are two
        if (text := find_completed_event(turn.memo, identity)) is not None:
            return identity, text
    return None


async def refuse_done_act(turn: Turn, name: str, key: str | None) -> None:
    """Raise StepConflict for a step that was an irreversible act of the same name and key when this turn was entered
    before, unless nothing happened then."""
    if not turn.is_entered_again:
        return
    journal, task = turn.services.journal, turn.task
    prefix = f"activity:{task.id}:"
    found: Sequence[Activity]
    if key is None:
        counted = f"{prefix}{task.turn}."
        found = [one for one in await journal.list_of_turn(task, ()) if one.key.startswith(counted)]
    else:
        one = await journal.look(prefix + key)
        found = [one] if one is not None and one.task_seq == task.seq else []
    for activity in found:
        is_other = activity.action != name or activity.key.removeprefix(prefix) in turn.acts
        if not is_other and activity.status is not ActivityStatus.FAILED:
            raise StepConflict(
                f"step {name} was not run: in this turn {name} was called as an irreversible action, and "
                f"{activity.key} {describe_status(activity)}. Call it with ctx.act again, or give the step another name"
            )
