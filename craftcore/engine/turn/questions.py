"""The question of `ctx.ask`, checked before the task waits for its answer, and the answer as the type of its form."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import msgspec

from craftcore.errors import InvalidInput
from craftcore.serialization.arguments import list_of
from craftcore.serialization.decode import decode
from craftcore.serialization.encode import encode
from craftcore.serialization.readable_types import require_type
from craftcore.tasks.answer_form import FORM_MAX_BYTES, read_answer, restrict_schema
from craftcore.tasks.model import NewQuestion, QuestionKind
from craftcore.triggers.validation import NAME_RULE, is_name, show_value

QUESTION_MAX = 4_000
"""Characters of a question, and of each of its options."""

OPTIONS_MAX = 100
REFUSAL_MAX = 500
"""Characters of the refusal of an answer that a question quotes."""


class Asked(NamedTuple):
    """A question that can be asked. `reader`: the type of its form; None: its answer is text."""

    question: NewQuestion
    reader: Any = None

    def read(self, value_json: str) -> Any:
        """Return the answer. Raises InvalidInput for fields that the type of the form refuses."""
        if self.reader is None or value_json == "null":
            return json.loads(value_json)
        return decode(value_json, self.reader, "answer")

    def ask_again(self, refusal: InvalidInput) -> Asked:
        """Return the same question, with the reason why an answer was refused."""
        why = f"\n\nAn answer was refused: {refusal.message}"[:REFUSAL_MAX]
        text = self.question.question.partition("\n\nAn answer was refused: ")[0]
        return self._replace(question=replace(self.question, question=text[: QUESTION_MAX - len(why)] + why))


def key_of_round(key: str | None, number: int) -> str | None:
    """Return the key of a question that is asked once more, the n-th time: part of its identity on record. A question
    without a key has a place of its own each time."""
    return key if key is None or not number else f"{key}:again{number}"


def check_question(
    question: str,
    options: Sequence[str] | None,
    default: Any,
    by_message: bool,
    form: Any = None,
    to: str | None = None,
) -> Asked:
    """Return the question. Raises InvalidInput for one that cannot be asked."""
    listed: Any = None if options is None else list_of("ctx.ask: options", options, "answers", InvalidInput)
    chosen: tuple[str, ...] | None = listed
    if not isinstance(by_message, bool):
        raise InvalidInput(f"ctx.ask: by_message {show_value(by_message)} must be True or False")
    texts = (question, *(chosen or ()), *(() if default is None or form is not None else (default,)))
    for text in texts:
        if not isinstance(text, str) or not 0 < len(text) <= QUESTION_MAX:
            raise InvalidInput(f"a question, its options and default are text of 1 to {QUESTION_MAX:,} characters")
        encode(text, "question")
    if to is not None and not is_name(to):
        raise InvalidInput(f"ctx.ask: to {show_value(to)} must be the name of a person or group: {NAME_RULE}")
    if by_message and (form is not None or to is not None):
        raise InvalidInput("ctx.ask: by_message is for a question without form and to: a message has neither")
    if chosen is not None and (not chosen or len(chosen) > OPTIONS_MAX or len(set(chosen)) < len(chosen)):
        raise InvalidInput(f"a question has 1 to {OPTIONS_MAX} options, each another one; None lets any text answer it")
    if form is not None:
        if chosen is not None:
            raise InvalidInput("ctx.ask: a question has options or a form, not both: give the form a field of choices")
        return _check_form(question, form, default, to)
    if chosen is not None and default is not None and default not in chosen:
        raise InvalidInput(f"the default {show_value(default)} is not one of the options: {', '.join(chosen)}")
    return Asked(
        NewQuestion(
            kind=QuestionKind.ASK,
            question=question,
            options=chosen,
            default_json=json.dumps(default),
            by_message=by_message,
            addressee=to,
        )
    )


def _check_form(question: str, form: Any, default: Any, to: str | None) -> Asked:
    reader = require_type(form, "ctx.ask: form")
    try:
        made = getattr(reader, "model_json_schema", None)
        form_json = json.dumps(restrict_schema(msgspec.json.schema(reader) if made is None else made()))
    except Exception as error:  # a type of the user's describes itself, and may raise anything
        raise InvalidInput(f"ctx.ask: form {show_value(form)}: {error}") from error
    if len(form_json) > FORM_MAX_BYTES:
        raise InvalidInput(f"ctx.ask: the form has {len(form_json):,} bytes; the limit is {FORM_MAX_BYTES:,}")
    default_json = "null" if default is None else read_answer(form_json, encode(default, "ctx.ask: default"))
    asked = NewQuestion(
        kind=QuestionKind.ASK, question=question, default_json=default_json, form_json=form_json, addressee=to
    )
    return Asked(asked, reader)
