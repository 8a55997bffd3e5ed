"""Cutting secrets out of what others wrote, before anybody reads it or stores it.

A secret is found as it is, and as JSON, JavaScript, URLs, HTML, quoted-printable, hexadecimal and base64 spell it. Each
character may be spelt in another way. Capital and small letters are the same; line breaks and the zero bytes of UTF-16
may stand between the characters. A secret that was compressed, encrypted or reversed is not found.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from html.entities import codepoint2name

MASK = "***"

LEAST_PART = 4
"""So many characters of a secret at the end of a text that was cut off are a part of it, and no chance."""

LEAST_BASE64 = 6
"""Characters that base64 must have of a secret: fewer stand in many a word."""

HEAD = 12
"""Characters by which a secret is searched for. The others are compared one by one: all in one pattern take seconds to
compile."""

WIDEST = 32
"""Bytes that the longest spelling of one character has, what may stand between two characters included."""

_GAP = rb"(?:=?(?:\r|\\r)?(?:\n|\\n)(?:\d{3}[ -])?[ \t]?|\0{1,3})?"
"""What may stand between two characters of a secret: a new line, in a reply of SMTP with its code, or zero bytes;
before a new line quoted-printable has a sign."""

_HALF_A_SPELLING = rb"|".join(
    (
        rb"\\{1,4}(?:u\{?[0-9a-f]{0,5}|x[0-9a-f]?)?",
        rb"%(?:2(?:5[0-9a-f]?)?|[0-9a-f])?",
        rb"&#?[0-9a-z]{0,8}",
        rb"=[0-9a-f]?",
        rb"[0-9a-f]|\r|\0{1,3}",
    )
)

BACKSLASHES = rb"\\{1,8}"
"""What one of them may become where it is escaped, and escaped again."""

BEGIN_ESCAPES = b"\\%&=+"

_SHORT_ESCAPES = {"\n": b"n", "\r": b"r", "\t": b"t", "\b": b"b", "\f": b"f"}
_ANY_BASE64 = rb"[A-Za-z0-9+/_-]?"


class Scrubber:
    """Replaces these secrets, however they are spelt."""

    def __init__(self, secrets: Iterable[str]) -> None:
        texts = {text for secret in secrets for text in (secret, secret.strip()) if text.strip()}
        self._rules = _rules(frozenset(texts))

    @property
    def has_secrets(self) -> bool:
        return bool(self._rules.spellings)

    @property
    def longest(self) -> int:
        """How many bytes must be seen at once for none to be seen in part only."""
        return max((len(spelling.tokens) * WIDEST for spelling in self._rules.spellings), default=0)

    def text(self, text: str) -> str:
        return self.bytes(text.encode(errors="surrogatepass")).decode(errors="surrogatepass")

    def bytes(self, content: bytes, *, is_cut: bool = False) -> bytes:
        """Without the secrets. `is_cut`: more was to come, so a part of a secret at the end is replaced, too."""
        end = self._rules.begun_at(content) if is_cut else len(content)
        return self._rules.replaced(content[:end]) + (MASK.encode() if end < len(content) else b"")


class _Spelling:
    """One way to spell a secret: the byte it begins with unless that is escaped, its characters, and what may stand
    behind it; as patterns."""

    def __init__(self, first: bytes, tokens: Sequence[bytes], after: bytes) -> None:
        self.first = first
        self.tokens = tokens
        self._after = after
        part = min(LEAST_PART, len(tokens) - 1)
        self._part = _compiled(self._beginning(part)) if part else None

    @property
    def head(self) -> bytes:
        return self._beginning(HEAD)

    def end(self, content: bytes, start: int) -> int | None:
        """Where it ends when it begins here; None when it does not."""
        places = {start}
        for token in self.tokens:
            if not (places := self._after_token(content, places, token)):
                return None
        ends = [found.end() for place in places if (found := _compiled(self._after).match(content, place))]
        return max(ends, default=None)

    def begun_at(self, content: bytes) -> int:
        """Where a part of it begins that the end of the content cuts off; the length of the content where none does."""
        position = max(0, len(content) - len(self.tokens) * WIDEST)
        while self._part is not None and (found := self._part.search(content, position)) is not None:
            if self._is_cut_off(content, found.start()):
                return found.start()
            position = found.start() + 1
        return len(content)

    def _beginning(self, count: int) -> bytes:
        """A pattern of so many characters, and of two backslashes at most: each may be a run of them, and a pattern of
        many runs takes for ever to fail."""
        tokens = self.tokens[:count]
        runs = [at for at, token in enumerate(tokens) if BACKSLASHES in token]
        return _GAP.join(tokens if len(runs) < 3 else tokens[: runs[2]])

    def _is_cut_off(self, content: bytes, start: int) -> bool:
        places = {start}
        for count, token in enumerate(self.tokens):
            if count >= min(LEAST_PART, len(self.tokens) - 1) and any(_is_end(content, place) for place in places):
                return True
            if not (places := self._after_token(content, places, token)):
                break
        return False

    def _after_token(self, content: bytes, places: set[int], token: bytes) -> set[int]:
        """Where a character ends that begins at one of these places, with what may stand before the next one."""
        pattern, ends = _compiled(token), set()
        for place in places:
            if (found := pattern.match(content, place)) is None:
                continue
            ends.add(found.end())
            if (gap := _compiled(_GAP).match(content, found.end())) is not None:
                ends.add(gap.end())
            # What reads as an escape may be a sign of the secret, and the rest the next ones.
            if content[place] in b"%&=":
                ends.add(place + 1)
            elif (run := _compiled(BACKSLASHES).match(content, place)) is not None:
                ends |= set(range(place + 1, run.end() + 1))
        return ends


class _Rules:
    """How a set of secrets is found."""

    def __init__(self, secrets: frozenset[str]) -> None:
        self.spellings = [_Spelling(*parts) for secret in secrets for parts in _spellings(secret)]
        heads = b"|".join(spelling.head for spelling in self.spellings)
        first = re.escape(b"".join(sorted({spelling.first for spelling in self.spellings})) + BEGIN_ESCAPES)
        self._heads = _compiled(b"(?=[%s])(?:%s)" % (first, heads)) if heads else None

    def replaced(self, content: bytes) -> bytes:
        if self._heads is None:
            return content
        kept, position = bytearray(), 0
        while (found := self._heads.search(content, position)) is not None:
            start = found.start()
            kept += content[position:start]
            ends = [end for spelling in self.spellings if (end := spelling.end(content, start)) is not None]
            kept += MASK.encode() if ends else content[start : start + 1]
            position = max(ends, default=start + 1)
        return bytes(kept + content[position:])

    def begun_at(self, content: bytes) -> int:
        return min((spelling.begun_at(content) for spelling in self.spellings), default=len(content))


@lru_cache(maxsize=32)
def _rules(secrets: frozenset[str]) -> _Rules:
    return _Rules(secrets)


@lru_cache(maxsize=2048)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.IGNORECASE)


def _is_end(content: bytes, place: int) -> bool:
    """Whether nothing is left there but, perhaps, the beginning of one more character."""
    return place == len(content) or (
        len(content) - place < WIDEST and _compiled(_HALF_A_SPELLING).fullmatch(content, place) is not None
    )


def _spellings(secret: str) -> Iterator[tuple[bytes, Sequence[bytes], bytes]]:
    content = secret.encode(errors="surrogatepass")
    yield content[:1], [_character(one) for one in secret], b""
    if len(content) >= LEAST_PART:
        yield content.hex()[:1].encode(), [b"%02x" % byte for byte in content], b""
    for before in range(3):
        bits = 8 * (before + len(content))
        text = b64encode(bytes(before) + content).decode()[-(-8 * before // 6) : bits // 6]
        if len(text) >= LEAST_BASE64:
            behind = (_ANY_BASE64 if bits % 6 else b"") + b"={0,2}"
            first = {"+": b"+-", "/": b"/_"}.get(text[0], text[0].encode())
            yield first, [_base64_sign(one) for one in text], behind


def _character(one: str) -> bytes:
    """Every spelling of one character."""
    number, content = ord(one), one.encode(errors="surrogatepass")
    wide = one.encode("utf-16-be", "surrogatepass")
    units = [wide[at : at + 2].hex() for at in range(0, len(wide), 2)]
    spellings = [
        rb"".join(rb"\\{1,4}u%s" % unit.encode() for unit in units),
        rb"\\{1,4}u\{0{0,4}%x\}" % number,
        rb"".join(rb"%%(?:25)?%02x" % byte for byte in content),
        rb"(?:&#0{0,5}%d;?|&#x0{0,5}%x;?)" % (number, number),
        rb"(?:=\r?\n)?".join(rb"=%02x" % byte for byte in content),
    ]
    if number < 256:
        spellings.append(rb"\\{1,4}x%02x" % number)
    if one == "\\":
        spellings.append(BACKSLASHES)
    elif one in "\"'/`":
        spellings.append(rb"\\{1,4}" + re.escape(content))
    elif one in _SHORT_ESCAPES:
        spellings.append(rb"\\{1,4}" + _SHORT_ESCAPES[one])
    elif one == " ":
        spellings.append(rb"\+")
    if name := {39: "apos"}.get(number, codepoint2name.get(number)):
        spellings.append(rb"&%s;?" % name.encode())
    return rb"(?:" + b"|".join([*spellings, re.escape(content)]) + rb")"


def _base64_sign(one: str) -> bytes:
    """One sign of base64, also of the alphabet for URLs, and as JSON, HTML and URLs spell it."""
    match one:
        case "+":
            return rb"(?:-|%s)" % _character("+")
        case "/":
            return rb"(?:_|%s)" % _character("/")
        case _:
            return one.encode()
