"""Payloads without the values of secret keys: at any depth, in lists, and in JSON inside text. Pure.

Text that is JSON is masked as the value it holds. Other text is shown up to its first secret key in quotes before a
colon. Where the value of that key ends is not known, for example in JSON that was cut.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

MASKED = "***"
TOO_DEEP = "(too deep to be shown)"
REST_HIDDEN = f"{MASKED} (not valid JSON: the rest is not shown)"
TEXT_MAX = 20_000
"""Characters of a payload that the page shows."""
DEPTH_MAX = 60

_OPENINGS = ("{", "[", '"')
_MAY_HOLD_KEYS = re.compile(r"""[{\["'\\]""")
_SEPARATORS = re.compile(r"[-_\s]+")
_QUOTE = re.compile(r"""(?<!\\)(\\*+)(["'])((?:\s|\\++[ntr])*+:)?""")
"""A quote with the backslashes before it, and the colon that tells that it ends a key."""
_SPELT_QUOTE = re.compile(r"(?<!\\)(\\++)u(0022|0027)")
_CUT = re.compile(r"\[\.\.\. \d+ characters cut \.\.\.\]")
"""The mark of `shorten`. The key of the next value may have been cut away, and the text may still be valid JSON."""


def mask(value: Any, words: Sequence[str], depth: int = 0) -> Any:
    """Return the value with `***` for each value whose key contains one of the words.

    Keys and words are compared without `-`, `_`, spaces and case.
    """
    if depth > DEPTH_MAX:
        return TOO_DEEP
    if isinstance(value, dict):
        return {
            mask(key, words, depth + 1): MASKED if is_secret(str(key), words) else mask(one, words, depth + 1)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [mask(one, words, depth + 1) for one in value]
    return _mask_text(value, words, depth) if isinstance(value, str) and _MAY_HOLD_KEYS.search(value) else value


def masked_text(value: Any, words: Sequence[str], indent: int | None = None) -> str:
    """Return a payload as text, masked: text as it is, anything else as JSON."""
    masked = mask(value, words)
    return masked if isinstance(masked, str) else json.dumps(masked, ensure_ascii=False, indent=indent, default=str)


def _mask_text(text: str, words: Sequence[str], depth: int) -> str:
    """Return text without the values of secret keys. Text that has none keeps its spelling."""
    try:
        value = _parse(text)
    except RecursionError:
        return TOO_DEEP
    except ValueError:
        lines = text.split("\n")
        if _are_json_lines(lines):
            return "\n".join(_mask_text(line, words, depth) for line in lines)
        return _hide_rest(text, words)
    masked = mask(value, words, depth + 1)
    return text if masked == value else json.dumps(masked, ensure_ascii=False)


def _parse(text: str) -> Any:
    """Return the value of JSON. Raises ValueError for other text, and RecursionError."""
    bare = _strip(text)
    if not bare.startswith(_OPENINGS) or _CUT.search(bare):
        raise ValueError("not a JSON object, list or string, or cut")
    return json.loads(bare, object_pairs_hook=_make_object)


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises ValueError for a duplicate key: a reader of the value would see one of the two."""
    made = dict(pairs)
    if len(made) != len(pairs):
        raise ValueError("a duplicate key")
    return made


def _are_json_lines(lines: Sequence[str]) -> bool:
    """Return whether each line is an object, a list or blank; the last line may be cut."""
    return len(lines) > 1 and all(not line.strip() or _is_container(line) for line in lines[:-1])


def _is_container(line: str) -> bool:
    try:
        return isinstance(_parse(line), dict | list)
    except (ValueError, RecursionError):
        return False


def _hide_rest(text: str, words: Sequence[str]) -> str:
    """Return text that is not JSON up to the value of its first secret key, in JSON inside JSON too."""
    plain = _SPELT_QUOTE.sub(_write_quote, text)
    cut = _CUT.search(plain) if words and _strip(plain).startswith(_OPENINGS) else None
    shown = plain if cut is None else plain[: cut.end()]
    begins: dict[tuple[int, str], int] = {}
    for found in _QUOTE.finditer(shown):
        backslashes, quote, colon = found.groups()
        level = _count_levels(len(backslashes))
        begin = begins.get((level, quote))
        if colon and begin is not None and is_secret(_decode(shown[begin : found.start()], level), words):
            return f"{shown[: found.end()]} {REST_HIDDEN}"
        begins[level, quote] = found.end(2)
    return text if cut is None else f"{shown} {REST_HIDDEN}"


def _write_quote(found: re.Match[str]) -> str:
    r"""Return a quote spelt `\u0022` as `\"`. JSON inside JSON has `\\u0022` for it, or `\\\"`."""
    backslashes = len(found[1])
    own = backslashes & -backslashes  # those before it are of the text: `\\\u0022` is `\\\"`
    return "\\" * (backslashes + own - 1) + chr(int(found[2], 16))


def _count_levels(backslashes: int) -> int:
    """Return how many times a quote was encoded in JSON: 0, 1, 3 and 7 backslashes make 0, 1, 2 and 3.

    Backslashes that end the key itself are before those; of them each time doubles the number.
    """
    return (backslashes ^ (backslashes + 1)).bit_length() - 1


def _decode(key: str, level: int) -> str:
    """Return a key as it was before it was encoded; in a spelling that JSON does not have, without backslashes."""
    if "\\" not in key:
        return key
    try:
        for _ in range(level + 1):
            key = json.loads(f'"{key}"', strict=False)
    except ValueError:
        return key.replace("\\", "")
    return key


def _strip(text: str) -> str:
    """Return text without white space around it and without a byte order mark."""
    return text.strip().lstrip("\ufeff").strip()


def is_secret(key: str, words: Sequence[str]) -> bool:
    """Return whether a key contains one of the words, so that its value is not shown."""
    return _find_words(tuple(words)).search(_fold(key)) is not None


@lru_cache(maxsize=8)
def _find_words(words: tuple[str, ...]) -> re.Pattern[str]:
    """Return the pattern that finds one of the words; of no words, one that finds nothing."""
    return re.compile("|".join(re.escape(_fold(word)) for word in words) or r"(?!)")


def _fold(text: str) -> str:
    return _SEPARATORS.sub("", text.casefold())
