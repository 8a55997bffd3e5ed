"""Answers of a batch: a value or an exception for each item."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def one_answer(answers: Sequence[T | Exception]) -> T:
    """The answer to a batch of one; raised, when it is an exception."""
    [answer] = answers
    if isinstance(answer, Exception):
        raise answer
    return answer
