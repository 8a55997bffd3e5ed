"""The readings of one place in a text: the characters that may be meant there, by JSON, JavaScript, URLs, HTML and
quoted-printable.

The work at a place is bounded, whatever the text is: no pattern here has an unlimited repetition.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.entities import name2codepoint

WIDEST = 48
"""Bytes that the longest reading of one character takes, with the gap behind it."""

HALF = re.compile(
    rb"\\{1,4}(?:u\{?[0-9a-f]{0,5}|x[0-9a-f]?)?|%(?:2(?:5[0-9a-f]?)?|[0-9a-f])?|&#?[0-9a-z]{0,8}|=[0-9a-f]?"
    rb"|[0-9a-f]|\r|\0{1,3}",
    re.IGNORECASE,
)
"""The beginning of a spelling that the end of a text cuts off."""

_BEGIN = frozenset(b"\\%&=+")
_BEGIN_GAP = frozenset(b"=\r\n\\\0")
_GAP = re.compile(rb"(\0{1,3})|(?P<line>=?(?:\r|\\r)?(?:\n|\\n))(?P<code>\d{3}[ -])?[ \t]?")
_BACKSLASHES = re.compile(rb"\\{1,5}")
_UNIT = re.compile(rb"u([0-9a-f]{4})(?:\\{1,4}u(d[c-f][0-9a-f]{2}))?", re.IGNORECASE)
_BRACED = re.compile(rb"u\{(0{0,4}[0-9a-f]{1,6})\}", re.IGNORECASE)
_HEX = re.compile(rb"[0-9a-f]{2}", re.IGNORECASE)
_NUMBER = re.compile(rb"&#(?:(0{0,5}[0-9]{1,7})|x(0{0,5}[0-9a-f]{1,6}))", re.IGNORECASE)
_NAME = re.compile(rb"&([a-z][a-z0-9]{1,7})", re.IGNORECASE)
_SHORT = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f"}


def _entity_names() -> dict[bytes, list[bytes]]:
    """Return the characters of each name of HTML, in lower case, as UTF-8."""
    found: dict[bytes, list[bytes]] = {b"apos": [b"'"]}
    for name, number in name2codepoint.items():
        found.setdefault(name.lower().encode(), []).append(chr(number).encode())
    return found


_NAMED = _entity_names()


def read_characters(content: bytes, at: int) -> Sequence[tuple[bytes, int]]:
    """Return each character that may begin at `at`, as UTF-8, with the place where it ends. The first is the byte."""
    byte = content[at]
    raw = (content[at : at + 1], at + 1)
    return (raw, *_escape_readings(content, at, byte)) if byte in _BEGIN else (raw,)


def gaps(content: bytes, at: int) -> Sequence[int]:
    """Return where a gap that begins at `at` may end.

    A gap is a new line between two characters, in an SMTP reply with its code, or zero bytes. Quoted-printable has a
    sign before the new line.
    """
    if at >= len(content) or content[at] not in _BEGIN_GAP or (found := _GAP.match(content, at)) is None:
        return ()
    if found[1] is not None:
        return (found.end(),)
    line, code, blank = found.end("line"), found.end("code"), found.end()
    return sorted({line, blank} if code < 0 else {line, code, blank})


def _escape_readings(content: bytes, at: int, byte: int) -> Iterator[tuple[bytes, int]]:
    match byte:
        case 0x5C:
            yield from _backslash_readings(content, at)
        case 0x25:
            yield from _percent(content, at)
        case 0x26:
            yield from _entities(content, at)
        case 0x3D:
            if found := _HEX.match(content, at + 1):
                yield bytes.fromhex(found[0].decode()), at + 3
        case _:
            yield b" ", at + 1


def _backslash_readings(content: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """Yield the readings of an escape after one to four backslashes: an escaped text may be escaped again."""
    run = _BACKSLASHES.match(content, at)
    if run is None or len(run[0]) > 4:
        return
    place = run.end()
    one = content[place : place + 1]
    lower = one.lower()
    if lower == b"u":
        if found := _BRACED.match(content, place):
            yield from _character(int(found[1], 16), found.end())
        elif found := _UNIT.match(content, place):
            unit = int(found[1], 16)
            yield from _character(unit, found.end(1))
            if found[2] and 0xD800 <= unit < 0xDC00:
                yield from _character(0x10000 + ((unit - 0xD800) << 10) + int(found[2], 16) - 0xDC00, found.end())
    elif lower == b"x":
        if found := _HEX.match(content, place + 1):
            number = int(found[0], 16)
            yield from _character(number, found.end())
            if number > 127:
                yield bytes([number]), found.end()
    elif lower in _SHORT:
        yield _SHORT[lower], place + 1
    elif b"!" <= one <= b"~" and not one.isalnum():
        yield one, place + 1


def _percent(content: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    if not (found := _HEX.match(content, at + 1)):
        return
    yield bytes.fromhex(found[0].decode()), at + 3
    if found[0] == b"25" and (found := _HEX.match(content, at + 3)):
        yield bytes.fromhex(found[0].decode()), at + 5


def _entities(content: bytes, at: int) -> Iterator[tuple[bytes, int]]:
    """Yield the readings of an entity. Without a semicolon its end is unknown, so each length is a reading."""
    if found := _NUMBER.match(content, at):
        group, base = (1, 10) if found[1] else (2, 16)
        for end in range(found.start(group) + 1, found.end(group) + 1):
            yield from _ended_readings(content, _character(int(content[found.start(group) : end], base), end))
    elif found := _NAME.match(content, at):
        for end in range(found.start(1) + 2, found.end(1) + 1):
            for character in _NAMED.get(content[found.start(1) : end].lower(), ()):
                yield from _ended_readings(content, [(character, end)])


def _ended_readings(
    content: bytes, found: Iterator[tuple[bytes, int]] | list[tuple[bytes, int]]
) -> Iterator[tuple[bytes, int]]:
    for character, end in found:
        yield character, end
        if content[end : end + 1] == b";":
            yield character, end + 1


def _character(number: int, end: int) -> Iterator[tuple[bytes, int]]:
    if number <= 0x10FFFF:
        yield chr(number).encode(errors="surrogatepass"), end
