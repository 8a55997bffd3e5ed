"""Answers that come too late: how the question was closed before."""

from __future__ import annotations

import json

from craftcore.tasks.model import Question, QuestionStatus


def describe_closed(question: Question) -> str:
    """Return how a question was closed: `was answered by ada with "send"`."""
    match question.status:
        case QuestionStatus.ANSWERED:
            return f"was answered by {question.answered_by} with {json.dumps(question.answer)}"
        case QuestionStatus.EXPIRED:
            return "has expired"
        case _:
            return "is withdrawn: its task does not need an answer any more"
