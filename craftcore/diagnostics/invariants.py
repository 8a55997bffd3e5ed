"""The invariants of a database: the named queries of `invariants.sql`, each with its promise in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from craftcore.diagnostics.finding import Finding, Level, fail, guard_check, make_passed
from craftcore.serialization.plurals import format_count
from craftcore.storage.transaction import Reader

FILE = Path(__file__).with_suffix(".sql")
NAMED = re.compile(r"^-- (?P<name>[a-z][a-z-]+): (?P<promise>[^\n]+\.)\n(?P<query>(?!--)[^;]+);", re.MULTILINE)

LISTED = 10
"""Violations of one invariant that are listed. The others are counted."""


class Invariant(NamedTuple):
    """A promise about the rows of a database. `query` returns (id, text) for each violation."""

    name: str
    promise: str
    query: str


@cache
def list_invariants() -> tuple[Invariant, ...]:
    """Return the invariants in the order of the file."""
    return tuple(Invariant(**match.groupdict()) for match in NAMED.finditer(FILE.read_text(encoding="utf-8")))


def violations(reader: Reader, *, listed: int = LISTED) -> list[Finding]:
    """Return a finding for each violation, with the name of its invariant as code. An empty list: the database keeps
    every promise.

    At most `listed` of one invariant are returned, and one more finding with the number of the others.
    """
    return [
        finding
        for one in list_invariants()
        for finding in guard_check(one.name, lambda one=one: _check(reader, one, listed))  # type: ignore[misc]
    ]


def invariant_findings(reader: Reader) -> Iterator[Finding]:
    """Check every invariant."""
    found = violations(reader)
    yield from found
    if not found:
        yield make_passed("invariants", f"all {len(list_invariants())} hold")


def _check(reader: Reader, invariant: Invariant, listed: int) -> Iterator[Finding]:
    rows = reader.iterate(invariant.query)
    query = " ".join(invariant.query.split())
    for row in islice(rows, listed):
        text = f"{row['id']}: {row['text']}. {invariant.promise}"
        yield Finding(code=invariant.name, level=Level.FAIL, text=text, query=query)
    if others := sum(1 for _ in rows):
        yield fail(invariant.name, f"and {format_count(others, 'other')} like that")
