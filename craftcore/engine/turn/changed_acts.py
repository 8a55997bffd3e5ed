"""Calls whose code has changed since an earlier entry of the turn: what is done is not done again.

The record decides, whatever the code declares at this entry:

    was irreversible, is not           its row of the ledger decides, as if it still were
    was not, is irreversible           the step of the same place is its result
    was a step, is an irreversible act the step of the same name and key is its result, when the arguments are the same
    was an irreversible act, is a step refused, unless it is certain that nothing happened

An act is known by its key, and code that changes may know it by another. The acts on record decide which one a call is:

    its own key is on record, of any turn          this call is that act
    one act that no call of this entry has reached
      has the same action and arguments            this call is that act, under the key it had
    several have, or calls run beside each other   a person is asked, and the task waits
    none has                                       this call is another act
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from craftcore.activities.ledger_rules import conflict, describe_status
from craftcore.activities.model import Activity, ActivityStatus
from craftcore.engine.turn.act_places import next_free
from craftcore.engine.turn.completed_step import decode_completed, find_completed_event
from craftcore.engine.turn.steps import digest_of
from craftcore.engine.turn.turn import Turn
from craftcore.errors import IdempotencyConflict, StepConflict
from craftcore.log import get_logger
from craftcore.registry.action import Action
from craftcore.serialization.decode import decode
from craftcore.serialization.plurals import format_count
from craftcore.tasks.model import ANOTHER_ACT, SAME_ACT, NewQuestion, NewWait, QuestionKind, WaitKind
from craftcore.triggers.sources import is_delivery_key

log = get_logger(__name__)


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
    step = _step_of(turn, action.name, key, place)
    if step is None or place in turn.acts:
        return False, None
    identity, text = step
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
    activities: Sequence[Activity]
    if key is None:
        counted = f"{prefix}{task.turn}."
        activities = [one for one in await journal.list_of_turn(task, ()) if one.key.startswith(counted)]
    else:
        one = await journal.look(prefix + key)
        activities = [one] if one is not None and one.task_seq == task.seq else []
    for activity in activities:
        is_other = activity.action != name or activity.key.removeprefix(prefix) in turn.acts
        if not is_other and activity.status is not ActivityStatus.FAILED:
            raise StepConflict(
                f"step {name} was not run: in this turn {name} was called as an irreversible action, and "
                f"{activity.key} {describe_status(activity)}. Call it with ctx.act again, or give the step another name"
            )


async def find_place(turn: Turn, action: Action, place: str, text: str, *, is_counted: bool) -> str:
    """Return the place of the act that a call is: its own, or that of the same act of an earlier entry.

    `text`: its arguments. `is_counted`: it has no key. Raises IdempotencyConflict for a key whose act another call was
    taken for; Suspend while a person has to say which act it is.
    """
    places = turn.places
    if not is_counted and place in places.moved:
        return places.moved[place]
    places.reach(place)
    if not turn.is_entered_again:
        return place
    prefix = f"activity:{turn.task.id}:"
    if not places.has_asked:
        places.begin(key.removeprefix(prefix) for key in await turn.services.journal.list_act_keys(turn.task))
    if place not in places.taken and (place in places.recorded or not places.left):
        return place
    if places.earlier is None:
        beside = {prefix + one for one in places.reached | places.taken}
        places.earlier = await turn.services.journal.list_of_turn(turn.task, beside)
    digest = sha256(text.encode()).hexdigest()
    alike = [one for one in places.earlier if _is_like(one, action, digest) and places.is_left(one.key[len(prefix) :])]
    may_be_of_earlier_turn = bool(alike) and not is_counted and place not in places.taken
    own = await turn.services.journal.look(prefix + place) if may_be_of_earlier_turn else None
    if not is_counted and place in places.moved:  # the same key, in a task beside this one
        return places.moved[place]
    shifted = place in places.taken
    if shifted and not is_counted:
        turn.attempt.acted.add(prefix + place)
        raise IdempotencyConflict(
            f"{action.name} was not called: the act with its key {prefix}{place} was taken for another call of this "
            "turn. The arguments are the same, and the key of the other call is not on record. Give both calls their "
            "earlier keys",
            key=prefix + place,
        )
    if own is not None:
        return place  # a key counts for the whole task
    alike = [
        one
        for one in alike
        if places.is_left(one.key.removeprefix(prefix)) and (shifted or not _was_begun_by_this_code(turn, one))
    ]
    if alike and (shifted or await _is_same(turn, action, place, alike)):
        log.warning("activity.key_changed", key=alike[0].key, action=action.name, called_as=prefix + place)
        return places.move(place, alike[0].key.removeprefix(prefix))
    if shifted:  # its number belongs to an act that has a key now
        return places.move(place, next_free(place, places.recorded | places.reached | places.taken))
    return place


def _is_like(activity: Activity, action: Action, digest: str) -> bool:
    """Return whether it has this action and these arguments, and something may have happened."""
    is_failed = activity.status is ActivityStatus.FAILED
    return not is_failed and (activity.action, activity.args_hash) == (action.name, digest)


def _was_begun_by_this_code(turn: Turn, activity: Activity) -> bool:
    """Return whether its only call was made by this engine, whose code does not change. A cluster does not tell."""
    return turn.services.epoch > 0 and activity.epoch == turn.services.epoch and activity.calls == 1


async def _is_same(turn: Turn, action: Action, place: str, alike: list[Activity]) -> bool:
    """Return whether a call is the first of these acts; a person says so where that is not certain. Raises Suspend."""
    name = f"same:{place}"
    if (wait := turn.resolved_wait(name)) is not None:
        return bool(json.loads(wait.value_json or "null") == SAME_ACT)
    if (len(alike) == 1 and turn.is_in_order) or is_delivery_key(turn.task.dedup_key):
        return True
    first = alike[0]
    more = f", and {format_count(len(alike) - 1, 'other act')} like it" if len(alike) > 1 else ""
    question = NewQuestion(
        kind=QuestionKind.CONFLICT,
        question=(
            f"Is this call of {action.name} an act that this turn has made? Its key activity:{turn.task.id}:{place} is "
            f"not on record. {first.key} is: it has the same arguments, is {first.status}, and no call has asked for "
            f"it{more}. {SAME_ACT}: the call takes what became of that act. {ANOTHER_ACT}: it is made, as an act of "
            "its own."
        ),
        options=(SAME_ACT, ANOTHER_ACT),
    )
    await turn.suspend_for_act(NewWait(name=name, kind=WaitKind.QUESTION, question=question))
