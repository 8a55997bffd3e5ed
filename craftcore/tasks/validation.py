"""Texts that people send to tasks, checked, and the refusal of a late answer."""

from __future__ import annotations

import json
from typing import Any

from craftcore.errors import InvalidInput
from craftcore.tasks.model import Question, QuestionStatus

NOTE_MAX = 4_000
"""Characters of an answer, of its note, and of who gave it."""


def check_texts(**texts: str | None) -> None:
    """Raise InvalidInput for text that is too long, or cannot be stored."""
    for name, text in texts.items():
        if text is not None and len(text) > NOTE_MAX:
            raise InvalidInput(f"the {name} has {len(text):,} characters; the limit is {NOTE_MAX:,}")
        text_of(text, name)


def text_of(value: Any, where: str) -> str:
    from craftcore.serialization.encode import encode  # when it is needed: a reading command must not pay for msgspec

    return encode(value, where)


def describe_closed(question: Question) -> str:
    """Return how a question was closed: `was answered by ada with "send"`."""
    match question.status:
        case QuestionStatus.ANSWERED:
            return f"was answered by {question.answered_by} with {json.dumps(question.answer)}"
        case QuestionStatus.EXPIRED:
            return "has expired"
        case _:
            return "is withdrawn: its task does not need an answer any more"
