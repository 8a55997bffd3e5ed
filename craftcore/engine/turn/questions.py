"""The question of `ctx.ask`, checked before the task waits for its answer."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from craftcore.errors import InvalidInput
from craftcore.serialization.arguments import list_of
from craftcore.serialization.encode import encode
from craftcore.tasks.model import NewQuestion, QuestionKind
from craftcore.triggers.validation import show_value

QUESTION_MAX = 4_000
"""Characters of a question, and of each of its options."""

OPTIONS_MAX = 100


def check_question(question: str, options: Sequence[str] | None, default: str | None, by_message: bool) -> NewQuestion:
    """Return the question. Raises InvalidInput for one that cannot be asked."""
    listed: Any = None if options is None else list_of("ctx.ask: options", options, "answers", InvalidInput)
    chosen: tuple[str, ...] | None = listed
    if not isinstance(by_message, bool):
        raise InvalidInput(f"ctx.ask: by_message {show_value(by_message)} must be True or False")
    for text in (question, *(chosen or ()), *(() if default is None else (default,))):
        if not isinstance(text, str) or not 0 < len(text) <= QUESTION_MAX:
            raise InvalidInput(f"a question, its options and default are text of 1 to {QUESTION_MAX:,} characters")
        encode(text, "question")
    if chosen is not None and (not chosen or len(chosen) > OPTIONS_MAX or len(set(chosen)) < len(chosen)):
        raise InvalidInput(f"a question has 1 to {OPTIONS_MAX} options, each another one; None lets any text answer it")
    if chosen is not None and default is not None and default not in chosen:
        raise InvalidInput(f"the default {show_value(default)} is not one of the options: {', '.join(chosen)}")
    return NewQuestion(
        kind=QuestionKind.ASK,
        question=question,
        options=chosen,
        default_json=json.dumps(default),
        by_message=by_message,
    )
