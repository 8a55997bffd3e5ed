"""Numbers with their nouns: `1 task`, `2 tasks`, `1,204 entries`."""

from __future__ import annotations


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """The number and the noun that agrees with it; `plural` where an s at the end does not make it."""
    return f"{count:,} {noun_for(count, noun, plural)}"


def noun_for(count: int, noun: str, plural: str | None = None) -> str:
    """The noun alone."""
    return noun if count == 1 else plural or f"{noun}s"
