"""The redaction of secrets in text from outside, before it is read or stored.

A secret is found as it is, and as JSON, JavaScript, URLs, HTML, quoted-printable, hexadecimal and base64 spell it. Each
character may be spelt in another way. Case does not matter; line breaks and the zero bytes of UTF-16 may come between
the characters. A secret that was compressed, encrypted or reversed is not found.

The search is a Shift-And automaton (Baeza-Yates and Gonnet): one bit for each byte of each form of each secret, and one
step for each byte of the text. A backslash of a secret matches a run of them. The work grows with the text, whatever
the secret and the text say. A pass backwards from the ends that were found gives the beginnings.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator
from functools import lru_cache
from string import punctuation
from time import sleep

from craftcore.actions.escapes import HALF, WIDEST, gaps, read_characters

MASK = "***"

LEAST_PART = 4
"""Characters of a secret at the end of a truncated text that count as a part of the secret."""

LEAST_BASE64 = 6
"""Characters that base64 must have of a secret: fewer stand in many a word."""

PIECE = 16 << 10
"""Bytes that are searched at once: an expression holds the interpreter while it searches."""

STEPS = 256
"""Steps of the automaton before other threads may go on. Else they wait for the interpreter's switch interval, 5 ms."""

_LOOKED_AHEAD = 8
_BACKSLASH = 0x5C
_ESCAPED = frozenset(punctuation.encode()) - {_BACKSLASH}
_SHORT = {0x0A: b"n", 0x0D: b"r", 0x09: b"t", 0x08: b"b", 0x0C: b"f"}
_BEHIND = re.compile(rb"[A-Za-z0-9+/_-]?={0,2}")


class Scrubber:
    """Replaces these secrets, however they are spelt."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = {text for secret in secrets for text in (secret, secret.strip()) if text.strip()}
        self._automaton = _automaton(frozenset(texts)) if texts else None

    @property
    def has_secrets(self) -> bool:
        return self._automaton is not None

    @property
    def longest(self) -> int:
        """How many bytes must be seen at once for none to be seen in part only."""
        return 0 if self._automaton is None else self._automaton.longest * WIDEST

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
        if self._automaton is None:
            return content
        kept, position = bytearray(), 0
        for start, end in self._automaton.find_all(content, is_cut=is_cut):
            if position == 0 or start >= position:
                kept += content[position:start]
                kept += MASK.encode()
            position = max(position, end)
        return bytes(kept + content[position:]) if position else content


class _Automaton:
    """Finds a set of secrets. Bit i of a state: the text up to here ends with the bytes up to the i-th of its form."""

    def __init__(self, secrets: frozenset[str]) -> None:
        self._masks = [0] * 256
        self._first = self._last = self._part = self._shared = 0
        self.longest = 0
        heads, bit = set(), 0
        for accepted, least, is_shared in (form for secret in secrets for form in _forms(secret)):
            for place, some in enumerate(accepted):
                for byte in some:
                    self._masks[byte] |= 1 << (bit + place)
            size = len(accepted)
            self._first |= 1 << bit
            self._last |= 1 << (bit + size - 1)
            self._shared |= int(is_shared) << (bit + size - 1)
            self._part |= ((1 << size - 1) - (1 << least - 1)) << bit if least else 0
            heads.add(_head(accepted))
            self.longest = max(self.longest, size)
            bit += size
        begin = {byte for byte, mask in enumerate(self._masks) if mask & self._first}
        heads |= {_after_gap(escape, rest) for escape, rest in _escaped_heads(begin)}
        # A class comes first, and no flag for the case: so the search skips what begins nothing at the speed of C.
        self._begins = re.compile(_join_alternatives(bytes(begin) + b"\\%&=+") + b"(?:%s)" % b"|".join(sorted(heads)))

    def find_all(self, content: bytes, *, is_cut: bool) -> list[tuple[int, int]]:
        """Return where the secrets stand, in order. Two overlap where a sign of base64 has bits of both."""
        spans, ends = [], self._secret_ends(content, is_cut)
        while ends:
            high, states = ends[-1]
            low, joined = self._start(content, ends)
            if joined & self._part:
                high = len(content)
            elif states & self._shared and (behind := _BEHIND.match(content, high)):
                high = behind.end()
            spans.append((low, high))
        return spans[::-1]

    def _secret_ends(self, content: bytes, is_cut: bool) -> list[tuple[int, int]]:
        """Return each place where a secret ends, or a part of one that is cut off, with the states there."""
        masks, first, last, size = self._masks, self._first, self._last, len(content)
        ends: list[tuple[int, int]] = []
        ahead: dict[int, int] = {}
        at = 0
        while True:
            if not ahead:
                at = self._next_secret(content, at)
            state = ahead.pop(at, 0)
            over = state & last
            if is_cut and size - at < WIDEST and state & self._part and (at == size or HALF.fullmatch(content, at)):
                over |= state & self._part
            if over:
                ends.append((at, over))
            if at == size:
                return ends
            begun = state << 1 | first
            same = state if content[at] == _BACKSLASH else 0
            for character, end in read_characters(content, at):
                reached = (begun | same) & masks[character[0]]
                same = 0
                for byte in character[1:]:
                    reached = reached << 1 & ~first & masks[byte]
                if not reached:
                    continue
                ahead[end] = ahead.get(end, 0) | reached
                if between := reached & ~last:
                    for place in gaps(content, end):
                        ahead[place] = ahead.get(place, 0) | between
            at += 1
            if not at % STEPS:
                sleep(0)

    def _next_secret(self, content: bytes, at: int) -> int:
        """Return the next place where a secret may begin; the end of the content when there is none."""
        for begin in range(at, len(content), PIECE):
            if begin > at:
                sleep(0)
            found = self._begins.search(content, begin, begin + PIECE + _LOOKED_AHEAD)
            if found is not None:
                return found.start()
        return len(content)

    def _start(self, content: bytes, ends: list[tuple[int, int]]) -> tuple[int, int]:
        """Return the beginning of the secrets that end last, with the states of their ends, which leave the list."""
        at, states = ends.pop()
        joined = states
        behind, alive, low = {at: states}, at, at
        while at and alive - at < WIDEST:
            at -= 1
            if not at % STEPS:
                sleep(0)
            state, starts = self._states_before(content, at, behind)
            if starts:
                low = at
                if not state and not self._is_jumped(content, at, behind):
                    return low, joined
            if ends and ends[-1][0] == at:
                joined |= ends[-1][1]
                state |= ends.pop()[1]
            behind.pop(at + WIDEST, None)
            if state:
                behind[at], alive = state, at
        return low, joined

    def _states_before(self, content: bytes, at: int, behind: dict[int, int]) -> tuple[int, bool]:
        """Return the states from which the text goes on from `at` to an end, and whether a secret begins there."""
        masks, first, state, starts = self._masks, self._first, 0, False
        is_run = content[at] == _BACKSLASH
        for character, end in read_characters(content, at):
            reached = behind.get(end, 0)
            for place in gaps(content, end):
                reached |= behind.get(place, 0) & ~self._last
            for byte in character[:0:-1]:
                reached = (reached & masks[byte] & ~first) >> 1
            reached &= masks[character[0]]
            if is_run:
                state, is_run = state | reached, False
            starts = starts or bool(reached & first)
            state |= (reached & ~first) >> 1
        return state, starts

    def _is_jumped(self, content: bytes, at: int, behind: dict[int, int]) -> bool:
        """Return whether a character that is spelt across this place leads to one of the ends."""
        return any(any(self._states_before(content, place, behind)) for place in range(max(0, at - WIDEST), at))


@lru_cache(maxsize=32)
def _automaton(secrets: frozenset[str]) -> _Automaton:
    return _Automaton(secrets)


def _forms(secret: str) -> Iterator[tuple[list[bytes], int, bool]]:
    """Yield the bytes that each place of a form accepts, and the number of places that count as a part of it. The last
    item is whether the next base64 character has bits of the secret."""
    content = secret.encode(errors="surrogatepass")
    part = secret[: min(LEAST_PART, len(secret) - 1)]
    yield [_match_any_case(bytes([byte])) for byte in content], len(part.encode(errors="surrogatepass")), False
    if len(content) >= LEAST_PART:
        yield [_match_any_case(sign.encode()) for sign in content.hex()], LEAST_PART, False
    for before in range(3):
        bits = 8 * (before + len(content))
        text = b64encode(bytes(before) + content).decode()[-(-8 * before // 6) : bits // 6]
        if len(text) >= LEAST_BASE64:
            accepted = [{"+": b"+-", "/": b"/_"}.get(sign, _match_any_case(sign.encode())) for sign in text]
            yield accepted, LEAST_PART, bool(bits % 6)


def _match_any_case(byte: bytes) -> bytes:
    return bytes({*byte.lower(), *byte.upper()})


def _head(accepted: list[bytes]) -> bytes:
    """Return a pattern of the first three places. At a place an escape or a gap may stand, and then anything."""
    if len(accepted) <= LEAST_PART:
        return _after_gap(accepted[0], b"")
    specials = b"\\%&=+\r\n\0"
    second, third = _join_alternatives(accepted[1]), _join_alternatives(accepted[2] + specials)
    return _after_gap(accepted[0], b"(?:%s%s|%s)" % (second, third, _join_alternatives(specials)))


def _escaped_heads(begin: set[int]) -> Iterator[tuple[bytes, bytes]]:
    """Yield the bytes that begin an escape, and a pattern of what follows where it may spell one of these bytes."""
    spelt = b"|".join(
        _join_alternatives(_match_any_case(b"%x" % (byte >> 4)))
        + _join_alternatives(_match_any_case(b"%x" % (byte & 15)))
        for byte in sorted(begin)
    )
    yield b"%=", b"(?:25|%s)" % spelt
    yield b"&", b"[#A-Za-z]"
    escaped = bytes(sorted(begin & _ESCAPED)) + b"".join(
        _match_any_case(_SHORT[byte]) for byte in sorted(begin & _SHORT.keys())
    )
    is_ascii = all(byte < 128 for byte in begin)
    number = rb"[uU](?:\{|00(?:%s))|[xX](?:%s)" % (spelt, spelt) if is_ascii else b"[uUxX]"
    yield b"\\", b"(?:%s|%s)" % (_join_alternatives(b"\\" + escaped), number)
    if 0x20 in begin:
        yield b"+", b""


def _after_gap(first: bytes, rest: bytes) -> bytes:
    return b"(?<=%s)%s" % (_join_alternatives(first), rest)


def _join_alternatives(some: bytes) -> bytes:
    return b"[%s]" % b"".join(re.escape(bytes([byte])) for byte in sorted(set(some)))
