"""The one form of a command to paste: its words quoted for a shell, and the database that it is about."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from craftcore.log_format import escape_control

PROGRAM = "craftcore"


def paste(*words: str) -> str:
    """Return a command as it is pasted into a shell."""
    return " ".join(map(_shell_word, words))


def add_database(command: Sequence[str], option: Sequence[str]) -> tuple[str, ...]:
    """Return a command with the option that names its database. A command of another program has none."""
    program, *words = command
    return (program, *option, *words) if program == PROGRAM else tuple(command)


def _shell_word(word: str) -> str:
    """Quote a word where a shell would misread it. Characters that do not print are escaped in `$'…'`, which bash
    reads."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + escape_control(word).replace("'", "\\'") + "'"
