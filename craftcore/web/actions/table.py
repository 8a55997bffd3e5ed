"""Every operator action of the page, and the facts of its form."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from craftcore.operations.seen import Subject
from craftcore.web.actions import dead_actions, engine_actions, work_actions
from craftcore.web.actions.model import OperatorAction
from craftcore.web.visit import Visit

ACTIONS: Mapping[str, OperatorAction] = {
    action.name: action for action in (*work_actions.ACTIONS, *engine_actions.ACTIONS, *dead_actions.ACTIONS)
}


def make_form(visit: Visit, name: str, id: str, subject: Subject | None) -> Mapping[str, Any] | None:
    """Return the facts of an action's form on a page; None where the person may not use it.

    A form without fields that can be taken back is a button. Any other is a link to a page of its own, which reads what
    it is about: then `subject` may be None.
    """
    action = ACTIONS[name]
    if not visit.may_act:
        return None
    return {
        "action": action,
        "id": id,
        "seen": "" if subject is None else action.state(subject),
        "once": make_request(),
        "is_button": not action.fields and not action.is_final,
    }


def make_request() -> str:
    """Return a random name for one form."""
    return secrets.token_urlsafe(12)
