"""The page of one operator action: its form, its confirmation, and its operation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote

from craftcore.audit.caller import actor
from craftcore.errors import InvalidInput, PermissionRefused
from craftcore.operations.audit_scope import AuditScope
from craftcore.operations.form_request import run_once
from craftcore.operations.seen import require_unchanged
from craftcore.serialization.canonical import canonicalize, sha256_of
from craftcore.serialization.texts import NOTE_MAX
from craftcore.storage.transaction import Reader, Transaction
from craftcore.web.actions.model import Form, OperatorAction
from craftcore.web.actions.table import make_request
from craftcore.web.page import Answer, Page, Redirect
from craftcore.web.visit import Visit

REQUEST_MAX = 40
OWN_FIELDS = frozenset({"seen", "once", "confirmed"})
VIA = "web"
ALREADY = "this was done already; it was not done twice"


def show_form(action: OperatorAction) -> Callable[[Visit], Answer]:
    """Return the page function of an action's form."""

    def show(visit: Visit) -> Answer:
        require_may(action, visit)
        return _make_page(action, visit)

    return show


def send_form(action: OperatorAction) -> Callable[[Visit], Answer]:
    """Return the page function that runs an action."""

    def send(visit: Visit) -> Answer:
        require_may(action, visit)
        id, form = visit.path.get("id", ""), visit.form
        _require_fields(action, visit)
        if action.must_confirm(form) and form.get("confirmed") != "1":
            return _make_page(action, visit, is_asking=True)
        once = form.get("once", "")
        if not once or len(once) > REQUEST_MAX:
            raise InvalidInput("the form has no name of its own: load the page again")

        def run_operation(tx: Transaction, scope: AuditScope) -> str:
            _require_doubt(action, visit, tx)
            if action.find is not None:
                require_unchanged(id or "it", action.state(action.find(tx, id)), form.get("seen", ""))
            return action.run(tx, scope, visit.services, id, form)

        request = f"{once}:{_make_digest(action, id, form)}"
        person = replace(actor(), person=visit.person.name, via=VIA, request=request)
        message = run_once(visit.services, person, action.name, run_operation)
        return Redirect(_back(action, id), ALREADY if message is None else message)

    return send


def require_may(action: OperatorAction, visit: Visit) -> None:
    """Raise PermissionRefused for a person who may not do this, or for whom the question is not."""
    if visit.may_act:
        return
    if action.asks_of is None or visit.person.may == "look":
        raise PermissionRefused(f"{visit.person.name} may look here, and not act: nothing was done")
    with visit.reading() as reader:
        addressee = action.asks_of(reader, visit.path.get("id", ""))
    if not visit.person.may_answer(addressee):
        raise PermissionRefused(f"the question is for {addressee}, and not for {visit.person.name}: nothing was done")


def _make_page(action: OperatorAction, visit: Visit, *, is_asking: bool = False) -> Page:
    """Return the form with what is known of its subject; `is_asking`: it asks once more, and keeps what was sent."""
    id = visit.path.get("id", "")
    seen = visit.form.get("seen")
    with visit.reading() as reader:
        _require_doubt(action, visit, reader)
        if seen is None:
            seen = "" if action.find is None else action.state(action.find(reader, id))
    sent = {} if not is_asking else {key: value for key, value in visit.form.items() if key not in OWN_FIELDS}
    facts: dict[str, Any] = {
        "action": action,
        "id": id,
        "seen": seen,
        "once": visit.form.get("once") or make_request(),
        "sent": sent,
        "is_asking": is_asking,
        "is_final": is_asking or (action.is_final and not action.fields),
        "back": _back(action, id),
    }
    return Page(template="form.html", title=f"{action.button} {id}".strip(), facts=facts)


def _require_fields(action: OperatorAction, visit: Visit) -> None:
    """Raise InvalidInput for a field that is missing or too long."""
    for field in action.fields:
        value = visit.form.get(field.name, "")
        if field.required and not value.strip():
            raise InvalidInput(f"{field.label} is empty: go back, and fill it in")
        if field.choices and value not in dict(field.choices):
            raise InvalidInput(f"{field.label} is not one of its choices")
        if len(value) > max(field.max_chars, NOTE_MAX if field.choices else 0):
            raise InvalidInput(f"{field.label} is longer than {field.max_chars:,} characters: nothing was done")


def _require_doubt(action: OperatorAction, visit: Visit, reader: Reader) -> None:
    is_about_doubt = action.decides_doubt
    if not visit.person.in_doubt and is_about_doubt is not None and is_about_doubt(reader, visit.path.get("id", "")):
        raise PermissionRefused(f"{visit.person.name} may not decide about actions in doubt: nothing was done")


def _make_digest(action: OperatorAction, id: str, form: Form) -> str:
    """Return a hash of what a form asks for: a browser may send a form again with other content."""
    asked = {name: value for name, value in form.items() if name not in OWN_FIELDS}
    return sha256_of(canonicalize([action.name, id, asked])).removeprefix("sha256:")[:16]


def _back(action: OperatorAction, id: str) -> str:
    return action.back.replace("{id}", quote(id, safe=""))
