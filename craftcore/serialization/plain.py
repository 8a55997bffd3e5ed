"""The values that are JSON as they are: dicts, lists and scalars."""

from __future__ import annotations

from types import NoneType
from typing import Any

SCALARS = frozenset({str, int, float, bool, NoneType})


def is_plain(value: Any, levels: int, rows: bool = True) -> bool:
    """Return whether it is JSON as it is, and at most so deep: only a number, or half a character, can still spoil it.

    `rows` False: and no list lies in a list or tuple.
    """
    kind = type(value)
    if kind is dict:
        for key in value:
            if type(key) is not str:
                return False
        parts = value.values()
    elif kind is list or kind is tuple:
        parts = value
    else:
        return kind in SCALARS
    if levels == 0:
        return False
    for part in parts:
        if type(part) is str or type(part) in SCALARS:
            continue
        if (type(part) is list and kind is not dict and not rows) or not is_plain(part, levels - 1, rows):
            return False
    return True
