"""Texts that people and programs send, checked before they are stored."""

from __future__ import annotations

from typing import Any

from craftcore.errors import InvalidInput

NOTE_MAX = 4_000
"""Characters of an answer, of a note or a reason, and of who gave it."""


def check_texts(**texts: str | None) -> None:
    """Raise InvalidInput for text that is too long, or cannot be stored."""
    for name, text in texts.items():
        if text is not None and len(text) > NOTE_MAX:
            raise InvalidInput(f"the {name} has {len(text):,} characters; the limit is {NOTE_MAX:,}")
        text_of(text, name)


def text_of(value: Any, where: str) -> str:
    from craftcore.serialization.encode import encode  # when it is needed: a reading command must not pay for msgspec

    return encode(value, where)
