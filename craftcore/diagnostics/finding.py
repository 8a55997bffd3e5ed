"""The finding: one fact about a database, with what helps and the query that proves it.

A query runs as it is printed: anyone can paste it into an SQLite shell and check the finding.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from craftcore.errors import CraftcoreError


class Level(StrEnum):
    """The severity of a finding. FAIL: something does not work, or will not hold. WARN: a person should look."""

    OK = "ok"
    WARN = "warn"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fact about a database: the result of a check, or a reason why something does not run.

    `code` is for programs, `text` for people. `remedies` are commands that help, each as an argument list; a command of
    craftcore itself comes without --db, which the caller adds. `query` proves the finding; None: no row does.
    """

    code: str
    text: str
    level: Level = Level.OK
    remedies: tuple[tuple[str, ...], ...] = ()
    query: str | None = None


def make_passed(code: str, text: str) -> Finding:
    """Return a finding of the level OK."""
    return Finding(code=code, text=text)


def warn(code: str, text: str, *remedy: str) -> Finding:
    """Return a finding of the level WARN, with a command that helps or without one."""
    return Finding(code=code, level=Level.WARN, text=text, remedies=(remedy,) if remedy else ())


def fail(code: str, text: str, *remedy: str) -> Finding:
    """Return a finding of the level FAIL, with a command that helps or without one."""
    return Finding(code=code, level=Level.FAIL, text=text, remedies=(remedy,) if remedy else ())


def guard_check(code: str, check: Callable[[], Iterable[Finding]]) -> list[Finding]:
    """Return the findings of a check. A check that raises is itself a finding."""
    try:
        return list(check())
    except CraftcoreError as error:
        return [fail(code, error.message)]
    except OSError as error:
        return [fail(code, f"cannot be looked at: {error.filename or ''} {error.strerror}".replace("  ", " "))]
    except (ValueError, TypeError, OverflowError) as error:  # text that is not UTF-8 is a ValueError, too
        text = f"a damaged row cannot be read ({error!s:.200}). See"
        remedies = (("craftcore", "db", "check"), ("craftcore", "verify"))
        return [Finding(code=code, level=Level.FAIL, text=text, remedies=remedies)]


def show_query(sql: str, **given: Any) -> str:
    """Return the query with its values in it, for a person to paste. craftcore itself passes them as parameters."""
    return " ".join(re.sub(r":([a-z]+)", lambda match: _literal(given[match[1]]), sql).split())


def _literal(value: object) -> str:
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else "NULL" if value is None else repr(value)
