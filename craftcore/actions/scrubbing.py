"""Cutting secrets out of what others wrote, before anybody reads it or stores it."""

from __future__ import annotations

import html
import json
from collections.abc import Iterable
from urllib.parse import quote, quote_plus

MASK = "***"


class Scrubber:
    """Replaces these secrets, as they are and as JSON, HTML and URLs spell them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        spellings = {spelling for secret in secrets for spelling in _spellings(secret)} - {""}
        self._spellings = sorted(spellings, key=len, reverse=True)  # a longer one may contain a shorter one

    @property
    def longest(self) -> int:
        """How many bytes must be seen at once for none to be seen in part only."""
        return max((len(spelling.encode()) for spelling in self._spellings), default=0)

    def text(self, text: str) -> str:
        for spelling in self._spellings:
            text = text.replace(spelling, MASK)
        return text

    def bytes(self, content: bytes) -> bytes:
        for spelling in self._spellings:
            content = content.replace(spelling.encode(), MASK.encode())
        return content


def _spellings(secret: str) -> Iterable[str]:
    as_json = json.dumps(secret)[1:-1]
    yield from (secret, secret.strip(), as_json, as_json.replace("/", "\\/"))
    yield from (json.dumps(secret, ensure_ascii=False)[1:-1], html.escape(secret))
    yield from (quote(secret), quote(secret, safe=""), quote_plus(secret))
