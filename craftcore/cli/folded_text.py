"""Prose on a terminal: a line that is too long is folded at the end of a word. Pure."""

from __future__ import annotations

import re
import shutil
from typing import TextIO

INDENT = 4

_COMMAND = r"(?<=[:,]) craftcore(?: (?:'[^']*'|[^\s,;()']+))+[,;)]*"
"""A command to paste, after a colon or a comma. It is never folded."""

_WORDS = re.compile(rf"{_COMMAND}|\s*\S+")


def count_columns(stream: TextIO) -> int | None:
    """Return the columns of the terminal; None for a file or a pipe, where nothing is folded."""
    return shutil.get_terminal_size((80, 24)).columns if stream.isatty() else None


def fold_text(text: str, width: int | None, indent: int = INDENT) -> list[str]:
    """Return the lines of a text, each after the first one indented. A word longer than a line is left whole."""
    if width is None or len(text) <= width:
        return [text]
    lines = [""]
    for word in _WORDS.findall(text):
        if lines[-1].strip() and len(lines[-1]) + len(word) > width:
            lines.append(" " * indent + word.lstrip())
        else:
            lines[-1] += word
    return lines
