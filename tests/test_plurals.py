"""The agreement of numbers and nouns in messages."""

from __future__ import annotations

import ast
import re

import pytest

from craftcore.serialization.plurals import agree_noun, format_count
from tests.support import prose


@pytest.mark.parametrize(
    ("count", "words", "text"),
    [
        (0, ("task",), "0 tasks"),
        (1, ("task",), "1 task"),
        (2, ("task",), "2 tasks"),
        (1_204, ("entry", "entries"), "1,204 entries"),
        (1, ("entry", "entries"), "1 entry"),
        (0, ("entry", "entries"), "0 entries"),
        (1_000, ("task",), "1,000 tasks"),
    ],
)
def test_noun_agrees_with_its_number(count, words, text):
    assert format_count(count, *words) == text
    assert agree_noun(count, *words) == text.split()[1]


NOUNS = (
    "tasks|triggers|records|events|rows|schedules|attempts|pages|files|letters|questions|activities|entries|messages"
    "|signals|kills|problems|executions|workers|lines|steps|turns|calls|workflows|crashes|times|days|hours|minutes"
)
COUNTS = re.compile(rf"\x00 (?:more )?({NOUNS})\b")


def test_messages_have_no_plain_plural_behind_a_number():
    """A count before a plain plural is a fault, because it may be 1. `format_count` makes the noun agree."""
    found = []
    for path, tree in prose.modules():
        for node in prose.nodes(tree):
            if not isinstance(node, ast.JoinedStr):
                continue
            text = "".join(_template(part) for part in node.values)
            found += [
                f"{path.relative_to(prose.PACKAGE)}:{node.lineno}: {match[0][2:]}" for match in COUNTS.finditer(text)
            ]
    assert sorted(found) == []


def _template(part: ast.expr) -> str:
    """Return a constant text unchanged, and a zero byte for an expression that may be any number.

    The value of a constant of craftcore is known, so it gives an `N`.
    """
    if isinstance(part, ast.Constant):
        return str(part.value)
    names = [node.id for node in ast.walk(part) if isinstance(node, ast.Name)]
    return "N" if names and all(name.isupper() for name in names) else "\x00"


def test_message_with_a_plain_plural_is_found():
    [message] = ast.parse("f'{count} tasks wait'").body
    assert isinstance(message, ast.Expr)
    assert isinstance(message.value, ast.JoinedStr)
    assert COUNTS.search("".join(map(_template, message.value.values)))
