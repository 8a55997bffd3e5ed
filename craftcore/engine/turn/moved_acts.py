"""Acts whose key was given, taken away or changed since an earlier entry of the turn: they are not done again.

An act is known by its key, and code that changes may know it by another. The acts on record decide which one a call is:

    its own key is on record, of any turn          this call is that act
    one act that no call of this entry has reached
      has the same action and arguments            this call is that act, under the key it had
    several have, or calls run beside each other   a person is asked, and the task waits
    none has                                       this call is another act
"""

from __future__ import annotations

import json
from hashlib import sha256

from craftcore.activities.model import Activity, ActivityStatus
from craftcore.engine.turn.act_places import next_free
from craftcore.engine.turn.turn import Turn
from craftcore.errors import IdempotencyConflict
from craftcore.log import get_logger
from craftcore.registry.action import Action
from craftcore.serialization.plurals import format_count
from craftcore.tasks.model import ANOTHER_ACT, SAME_ACT, NewQuestion, NewWait, QuestionKind, WaitKind
from craftcore.triggers.sources import is_delivery_key

log = get_logger(__name__)


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
    if alike and (shifted or _is_same(turn, action, place, alike)):
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


def _is_same(turn: Turn, action: Action, place: str, alike: list[Activity]) -> bool:
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
    turn.suspend_with(NewWait(name=name, kind=WaitKind.QUESTION, question=question))
