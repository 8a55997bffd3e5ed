"""Operator actions on all dead letters of one error."""

from __future__ import annotations

from craftcore.errors import InvalidInput
from craftcore.operations import triggers
from craftcore.operations.audit_scope import AuditScope
from craftcore.serialization.plurals import format_count
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.web.actions.model import Form, FormField, OperatorAction, text_of

ERROR = FormField(name="error", label="Error", required=True)
UNTIL = FormField(name="until", label="The time of the newest letter", required=True, max_chars=40, is_hidden=True)
"""Letters that died after the page was drawn were not seen, and stay."""


def requeue_error(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    return _describe("queued again", triggers.requeue_error(tx, scope, services, read_error(form), read_until(form)))


def discard_error(tx: Transaction, scope: AuditScope, services: Services, id: str, form: Form) -> str:
    return _describe("discarded", triggers.discard_error(tx, scope, services, read_error(form), read_until(form)))


def read_error(form: Form) -> str:
    """Return the error of a form. Raises InvalidInput when it is empty."""
    if (error := text_of(form, "error")) is None:
        raise InvalidInput("name the error whose dead letters are meant")
    return error


def read_until(form: Form) -> float:
    """Return when the newest letter of a form died. Raises InvalidInput."""
    try:
        return float(form.get(UNTIL.name, ""))
    except ValueError:
        raise InvalidInput("the form does not say which letters were seen: load the page again") from None


def _describe(what: str, result: triggers.DeadDone) -> str:
    done = f"{format_count(len(result.done), 'dead letter')} {what}"
    if not result.refused:
        return done
    return f"{done}; {len(result.refused):,} stay dead, the first because {result.refused[0]}"


ACTIONS = (
    OperatorAction(
        name="dead requeue --all", path="/dead/requeue", back="/dead", button="requeue all",
        says="Give the dead letters of one error all their attempts again, now: up to 500.",
        run=requeue_error, fields=(ERROR, UNTIL), is_final=True, has_page=False,
    ),
    OperatorAction(
        name="dead discard --all", path="/dead/discard", back="/dead", button="discard all",
        says="Take the dead letters of one error off the list: up to 500. They stay readable as FAILED.",
        run=discard_error, fields=(ERROR, UNTIL), is_final=True, has_page=False,
    ),
)  # fmt: skip
