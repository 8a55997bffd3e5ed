"""The form of a question on its page: a field of the page for each of its fields.

A field is named by its number, and so is a choice: no text from the database is a name or a value of a form.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from craftcore.errors import InvalidInput
from craftcore.tasks.answer_form import describe_field, read_fields
from craftcore.web.actions.model import Form

KINDS = {"integer": "number", "number": "number"}
YES_OR_NO = ("yes", "no")


class QuestionField(NamedTuple):
    """A field as the page draws it. `takes`: the values that it takes, for people."""

    label: str
    kind: str
    takes: str
    choices: Sequence[str]
    is_required: bool


def list_fields(form_json: str | None) -> list[QuestionField]:
    """Return the fields of a form, in order; none without a form."""
    if form_json is None:
        return []
    form = json.loads(form_json)
    return [
        QuestionField(
            label=str(field.get("title", name)),
            kind="date" if field.get("format") == "date" else KINDS.get(field["type"], "text"),
            takes=describe_field(field),
            choices=_list_choices(field),
            is_required=name in form["required"],
        )
        for name, field in form["properties"].items()
    ]


def read_form(form_json: str, form: Form) -> str:
    """Return the JSON text of the answer; an empty field is left out. Raises InvalidInput for no choice of a field."""
    given = []
    for number, (name, field) in enumerate(json.loads(form_json)["properties"].items()):
        if (text := form.get(f"field{number}", "")) == "":
            continue
        if choices := _list_choices(field):
            if not (text.isascii() and text.isdigit() and len(text) < 6 and int(text) < len(choices)):
                raise InvalidInput(f"{name:.80} is not one of its choices")
            text = choices[int(text)]
        given.append(f"{name}={text}")
    return read_fields(form_json, given)


def _list_choices(field: dict[str, Any]) -> Sequence[str]:
    return YES_OR_NO if field["type"] == "boolean" else tuple(field.get("enum", ()))
