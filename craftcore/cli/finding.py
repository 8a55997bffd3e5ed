"""Findings of `craftcore doctor`: a line, a level and a remedy each."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum

from craftcore.cli.session import hint
from craftcore.errors import CraftcoreError

RUN = ("craftcore", "run", "MODULE:APP")
"""A daemon that does not know the app would end its work as CAPABILITY_NOT_FOUND: pasted as it is, this starts none."""


class Level(StrEnum):
    """How bad it is. FAIL: it does not work, or will not hold. warn: a person should look."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """`do`: a command that helps, word by word; one of ours without its --db. Empty: the text says what to do."""

    check: str
    level: Level
    text: str
    do: tuple[str, ...] = ()


def make_passed(check: str, text: str) -> Finding:
    """Return a finding of the level OK."""
    return Finding(check=check, level=Level.OK, text=text)


def warn(check: str, text: str, *do: str) -> Finding:
    """Return a finding of the level WARN."""
    return Finding(check=check, level=Level.WARN, text=text, do=do)


def fail(check: str, text: str, *do: str) -> Finding:
    """It does not work, or will not hold."""
    return Finding(check=check, level=Level.FAIL, text=text, do=do)


def guard_check(check: str, look: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return what a look finds; that it cannot even be looked at is a finding, too."""
    try:
        return list(look())
    except CraftcoreError as error:
        return [fail(check, error.message)]
    except OSError as error:
        return [fail(check, f"cannot be looked at: {error.filename or ''} {error.strerror}".replace("  ", " "))]
    except (ValueError, TypeError, OverflowError) as error:  # text that is not UTF-8 is a ValueError, too
        return [
            fail(check, f"a damaged row cannot be read ({error!s:.200}). See: {hint('db', 'check')}, {hint('verify')}")
        ]
