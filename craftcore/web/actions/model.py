"""The operator action: its address, its fields, and the operation that it calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from craftcore.operations.audit_scope import AuditScope
from craftcore.operations.seen import Subject, state_text
from craftcore.services import Services
from craftcore.storage.transaction import Reader, Transaction


@dataclass(frozen=True, slots=True, kw_only=True)
class FormField:
    """One field of a form. `choices`: pairs of value and label; empty: text of up to `max_chars` characters. A hidden
    one comes from the page."""

    name: str
    label: str
    required: bool = False
    max_chars: int = 500
    choices: Sequence[tuple[str, str]] = ()
    is_hidden: bool = False


REASON = FormField(name="reason", label="Reason")
REQUIRED_REASON = FormField(name="reason", label="Reason", required=True)

Form = Mapping[str, str]
Operation = Callable[[Transaction, AuditScope, Services, str, Form], str]
"""The operation of a form on one id. It returns the sentence that the person reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorAction:
    """One thing that a person can do.

    name          as the command line and the audit log have it: `task cancel`
    path          the address of its form; `{id}` names what it is done to
    back          the address of what the person sees next
    button        its word; `says`: what it does, in one sentence
    is_final      it cannot be taken back, so it has a page that asks once more
    has_page      its form has an address of its own; without one it is only on the page of its subject
    final_choices the choices of a field that cannot be taken back
    find          reads what it is done to; None: no single thing. Raises NotFound
    state         the text by which a form tells later whether that has changed
    decides_doubt whether it decides about an activity in doubt, which not every person may; None: never
    asks_of       who is asked, a person or a group or None: also a person who may only answer may do it then
    """

    name: str
    path: str
    back: str
    button: str
    says: str
    run: Operation
    fields: Sequence[FormField] = ()
    is_final: bool = False
    has_page: bool = True
    final_choices: frozenset[str] = frozenset()
    find: Callable[[Reader, str], Subject] | None = None
    state: Callable[[Subject], str] = state_text
    decides_doubt: Callable[[Reader, str], bool] | None = None
    asks_of: Callable[[Reader, str], str | None] | None = None

    def must_confirm(self, form: Form) -> bool:
        """Return whether a form asks for something that cannot be taken back."""
        chosen = {form.get(field.name) for field in self.fields if field.choices}
        return self.is_final or bool(chosen & self.final_choices)

    def address(self, id: str) -> str:
        """Return the address of the form for one id, which must be one part of an address already."""
        return self.path.replace("{id}", id)


def text_of(form: Form, name: str) -> str | None:
    """Return the text of a field without spaces around it; None when it is empty."""
    return form.get(name, "").strip() or None
