"""The redaction of secrets in text from outside, before it is read or stored.

A secret is found as it is, and as libraries write it into JSON, JavaScript, URLs, HTML, quoted-printable, hexadecimal
and base64. Case does not matter. Line breaks, in an SMTP reply with its code, and the zero bytes of UTF-16 and UTF-32
may come between the characters.

A secret with an escape that it does not need, or with escapes of two kinds, is not found. Escapes that are escaped
again are found for JSON in JSON and URLs in URLs only. A compressed, encrypted or reversed secret is not found.
"""

from __future__ import annotations

import json
import quopri
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html import escape
from time import sleep
from typing import NamedTuple
from urllib.parse import quote

MASK = "***"

LEAST_PART = 4
"""Characters of a secret at the end of a truncated text that count as a part of the secret."""

LEAST_BASE64 = 6
"""Characters that base64 must have of a secret: fewer stand in many a word."""

PIECE = 16 << 10
"""Bytes that are searched at once, in C, which other threads wait for."""

_LINE_END = rb"(?:\r\n|\n|\r\Z|\\r\\n|\\n|\0\0?\0?)"
_GAPS = (re.compile(_LINE_END), re.compile(_LINE_END + rb"(?:\d{3}[ -])?[ \t]?"), re.compile(rb"=\r\n|=\n|=\r?\Z"))
_BEHIND = re.compile(rb"[a-z0-9+/_-]?={0,2}")
_URL_SAFE = ("", "/", "!*'()", "!#$&'()*+,/:;=?@")
_APOSTROPHES = ("'", "&#x27;", "&#39;", "&#039;", "&apos;")
_QUOTES = ('"', "&quot;", "&#34;")
_NUMBERED = ("", "<>&", "<>&='", "<>&'+`\"")
"""Sets of characters that libraries escape by number in JSON, although JSON does not require it."""


class _Form(NamedTuple):
    """A secret in lower case, as a text may have it. `least`: the bytes that count as a part of it; 0 for none.
    `is_shared`: the next base64 character has bits of the secret, too."""

    content: bytes
    least: int
    is_shared: bool = False

    def find_all(self, text: bytes, *, is_cut: bool) -> Iterator[tuple[int, int]]:
        """Yield its beginnings and ends: of overlapping ones the first and the last, of a cut text a part at its
        end."""
        size, start = len(self.content), text.find(self.content)
        while start >= 0:
            end = start + size
            behind = _BEHIND.match(text, end) if self.is_shared else None
            yield start, end if behind is None else behind.end()
            overlapping = text.rfind(self.content, start + 1, end + size - 1)
            start = text.find(self.content, end) if overlapping < 0 else overlapping
        if is_cut and self.least:
            begun, start = self.content[: self.least], max(0, len(text) - size + 1)
            while (start := text.find(begun, start)) >= 0:
                if self.content.startswith(text[start:]):
                    yield start, len(text)
                    break
                start += 1


class Scrubber:
    """Replaces these secrets, as they are and as libraries write them."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = {text for secret in secrets for text in (secret, secret.strip()) if text.strip()}
        self._forms = _forms(frozenset(texts))

    @property
    def has_secrets(self) -> bool:
        return bool(self._forms)

    @property
    def longest(self) -> int:
        """How many bytes must be seen at once for none to be seen in part only."""
        return _measure_longest(self._forms)

    def text(self, text: str) -> str:
        return self.bytes(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def head(self, text: str, characters: int) -> str:
        """Return the text without the secrets, and of a long text no more than its first `characters` need."""
        seen = text[: characters + 1 + self.longest]
        content = seen.encode(errors="surrogatepass")
        return self.bytes(content, is_cut=len(seen) < len(text)).decode(errors="surrogatepass")

    def bytes(self, content: bytes, *, is_cut: bool = False) -> bytes:
        """Return the bytes without the secrets. `is_cut`: the text is truncated, so a part of a secret at its end is
        replaced, too."""
        kept, position = bytearray(), 0
        for start, end in sorted(_find_all(self._forms, content, is_cut)):
            if position == 0 or start >= position:
                kept += content[position:start]
                kept += MASK.encode()
            position = max(position, end)
        return bytes(kept + content[position:]) if position else content


def _find_all(forms: tuple[_Form, ...], content: bytes, is_cut: bool) -> set[tuple[int, int]]:
    """Return the beginnings and ends of the secrets. The pieces that are searched overlap by the longest of them."""
    spans: set[tuple[int, int]] = set()
    longest = _measure_longest(forms)
    step = max(PIECE, longest)
    for begin in range(0, len(content) if forms else 0, step):
        if begin:
            sleep(0)
        first, end = max(0, begin - longest), begin + step
        found = _find_in_piece(forms, content[first:end].lower(), is_cut=is_cut and end >= len(content))
        spans |= {(first + low, first + high) for low, high in found}
    return spans


def _find_in_piece(forms: tuple[_Form, ...], piece: bytes, *, is_cut: bool) -> Iterator[tuple[int, int]]:
    """Yield what is found in the piece as it is, and in the piece without its line breaks."""
    for gap in (None, *_GAPS):
        text = piece if gap is None else gap.sub(b"", piece)
        if gap is not None and len(text) == len(piece):
            continue
        if found := [span for form in forms for span in form.find_all(text, is_cut=is_cut)]:
            places = range(len(piece)) if gap is None else _find_kept_places(piece, gap)
            for start, end in found:
                yield places[start], len(piece) if is_cut and end == len(text) else places[end - 1] + 1


def _find_kept_places(piece: bytes, gap: re.Pattern[bytes]) -> Sequence[int]:
    """Return the places of the bytes that a piece has without its gaps."""
    spans = [found.span() for found in gap.finditer(piece)]
    kept = zip([0, *(end for _, end in spans)], [*(start for start, _ in spans), len(piece)], strict=True)
    return [place for start, end in kept for place in range(start, end)]


def _measure_longest(forms: tuple[_Form, ...]) -> int:
    """Return the bytes of the longest form in UTF-32, and of some line breaks."""
    return max((4 * len(form.content) + 64 for form in forms), default=0)


@lru_cache(maxsize=32)
def _forms(secrets: frozenset[str]) -> tuple[_Form, ...]:
    return tuple({form for secret in secrets for form in _spell(secret)})


def _spell(secret: str) -> Iterator[_Form]:
    part = secret[: min(LEAST_PART, len(secret) - 1)]
    for text, begun in zip(_escape(secret), _escape(part), strict=True):
        yield _Form(text.lower(), len(begun))
    content = secret.encode(errors="surrogatepass")
    if len(content) >= LEAST_PART:
        yield _Form(content.hex().encode(), LEAST_PART)
    for before in range(3):
        bits = 8 * (before + len(content))
        text = b64encode(bytes(before) + content)[-(-8 * before // 6) : bits // 6].lower()
        if len(text) >= LEAST_BASE64:
            yield _Form(text, LEAST_PART, bool(bits % 6))
            yield _Form(text.translate(bytes.maketrans(b"+/", b"-_")), LEAST_PART, bool(bits % 6))


def _escape(text: str) -> Iterator[bytes]:
    """Yield the text as libraries write it, the same number of forms for each text."""
    content = text.encode(errors="surrogatepass")
    yield content
    for plain in (json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1]):
        for signs in _NUMBERED:
            escaped = plain.replace('\\"', '"') if '"' in signs else plain
            escaped = escaped.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in signs})
            for form in (escaped, escaped.replace("/", "\\/")):
                yield form.encode(errors="surrogatepass")
                yield json.dumps(form, ensure_ascii=False)[1:-1].encode(errors="surrogatepass")
    yield text.encode("unicode_escape")
    for safe in _URL_SAFE:
        quoted = quote(content, safe=safe)
        for form in (quoted, quoted.replace("%20", "+"), quote(quoted, safe=safe)):
            yield form.encode()
    yield quote(content, safe="*").replace("%20", "+").replace("~", "%7e").encode()
    for quote_mark in _QUOTES:
        for apostrophe in _APOSTROPHES:
            escaped = escape(text, quote=False).replace('"', quote_mark).replace("'", apostrophe)
            for form in (escaped, escaped.replace("+", "&#43;")):
                yield form.encode(errors="surrogatepass")
                yield form.encode("ascii", "xmlcharrefreplace")
    yield quopri.encodestring(content).replace(b"=\n", b"")
