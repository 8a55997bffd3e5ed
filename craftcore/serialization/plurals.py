"""Numbers with their nouns: `1 task`, `2 tasks`, `1,204 entries`."""

from __future__ import annotations


def format_count(count: int, noun: str, plural: str | None = None) -> str:
    """Return the number and the noun that agrees with it; `plural` where an s at the end does not make it."""
    return f"{count:,} {agree_noun(count, noun, plural)}"


def agree_noun(count: int, noun: str, plural: str | None = None) -> str:
    """Return the noun alone."""
    return noun if count == 1 else plural or f"{noun}s"
