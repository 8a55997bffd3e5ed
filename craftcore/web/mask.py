"""Payloads without the values of secret keys: at any depth, in lists, and in JSON inside text. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

MASKED = "***"
TEXT_MAX = 20_000
"""Characters of a payload that the page shows."""
DEPTH_MAX = 60


def mask(value: Any, words: Sequence[str], depth: int = 0) -> Any:
    """Return the value with `***` for each value whose key contains one of the words, in any case."""
    if depth > DEPTH_MAX:
        return "(too deep to be shown)"
    if isinstance(value, dict):
        return {
            key: MASKED if _is_secret(str(key), words) else mask(one, words, depth + 1) for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask(one, words, depth + 1) for one in value]
    if isinstance(value, str) and value.lstrip()[:1] in ("{", "["):
        return _mask_text(value, words, depth)
    return value


def masked_text(value: Any, words: Sequence[str], indent: int | None = None) -> str:
    """Return a payload as text, masked: text as it is, anything else as JSON."""
    masked = mask(value, words)
    return masked if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False, indent=indent, default=str)


def _mask_text(text: str, words: Sequence[str], depth: int) -> str:
    """Return JSON inside text, masked; other text as it is. Unmasked JSON keeps its spelling."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    masked = mask(value, words, depth + 1)
    return text if masked == value else json.dumps(masked, ensure_ascii=False)


def _is_secret(key: str, words: Sequence[str]) -> bool:
    return _find_words(tuple(words)).search(_fold(key)) is not None


@lru_cache(maxsize=8)
def _find_words(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern that finds one of the words; of no words, one that finds nothing."""
    return re.compile("|".join(re.escape(_fold(word)) for word in words) or r"(?!)")


def _fold(text: str) -> str:
    return text.casefold().replace("-", "_")
