"""The first difference between the arguments on record and those of now, for the error of a conflict.

The record has a digest of the arguments. Their text would be on disk for every step, and secrets with it. So each
process keeps the texts that it has seen itself, the newest ones, by their digests.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

from craftcore.serialization.plurals import format_count

TEXTS_MAX = 1_000
TEXT_MAX_CHARS = 4_096
"""The longest text that is kept. A difference in a longer one is not shown."""

SHOWN_CHARS = 60
LEAST_BEFORE_CHARS = 20

SECRET = re.compile(r"pass(word|wd|phrase)?$|secret|token|api_?key|authorization|credential|cookie", re.IGNORECASE)
"""The names of fields whose values are not shown."""

_texts: OrderedDict[str, str] = OrderedDict()


def remember(digest: str, text: str) -> None:
    """Keep the text of arguments under its digest, in place of the oldest one."""
    if len(text) > TEXT_MAX_CHARS:
        return
    _texts[digest] = text
    if len(_texts) > TEXTS_MAX:
        _texts.popitem(last=False)


def describe_difference(recorded: str, now: str, names: Sequence[str] = ()) -> str:
    """Return the first difference between the arguments of two digests: `: argument 1 was 5 and is 6`.

    `names`: of the first items, which are not arguments. Fields with a name such as `token` show no value.

    Empty when this process did not see the arguments on record, for example after a restart.
    """
    if recorded == "" or now == "":
        return ": it had no arguments" if recorded == "" else ": it has no arguments now"
    before, after = _texts.get(recorded), _texts.get(now)
    if before is None or after is None:
        return ""
    try:
        found = next(_compare_calls(json.loads(before), json.loads(after), names), None)
    except (ValueError, RecursionError):
        return ""
    return "" if found is None else f": {found}"


def _compare_calls(before: list[Any], after: list[Any], names: Sequence[str]) -> Iterator[str]:
    """Yield each difference of two calls, argument by argument."""
    for number, (old, new) in enumerate(zip(before, after, strict=False)):
        place = names[number] if number < len(names) else f"argument {number + 1 - len(names)}"
        yield from _list_differences(old, new, place)
    if len(before) != len(after):
        counts = len(before) - len(names), len(after) - len(names)
        yield f"it had {format_count(counts[0], 'argument')} and has {counts[1]}"


def _list_differences(before: Any, after: Any, place: str) -> Iterator[str]:
    """Yield each difference of two values, in their order."""
    if isinstance(before, list) and isinstance(after, list):
        for number, (old, new) in enumerate(zip(before, after, strict=False)):
            yield from _list_differences(old, new, f"{place}[{number}]")
        if len(before) != len(after):
            yield f"{place} had {format_count(len(before), 'item')} and has {len(after)}"
    elif isinstance(before, dict) and isinstance(after, dict):
        for name in sorted(before.keys() | after.keys()):
            inner = f"{place}.{name:.80}"
            if name not in after or name not in before:
                yield f"{inner} {'is new' if name in after else 'is gone'}"
            elif SECRET.search(name) and before[name] != after[name]:
                yield f"{inner} has changed"
            else:
                yield from _list_differences(before[name], after[name], inner)
    elif before != after or type(before) is not type(after):
        old, new = _show(before, after)
        yield f"{place} was {old} and is {new}"


def _show(before: Any, after: Any) -> tuple[str, str]:
    """Return both values as JSON, from a little before their first difference on."""
    old, new = json.dumps(before, ensure_ascii=False), json.dumps(after, ensure_ascii=False)
    same = next((at for at, (left, right) in enumerate(zip(old, new, strict=False)) if left != right), 0)
    begin = max(0, same - LEAST_BEFORE_CHARS) if max(len(old), len(new)) > SHOWN_CHARS else 0
    return _cut(old, begin), _cut(new, begin)


def _cut(text: str, begin: int) -> str:
    end = begin + SHOWN_CHARS
    return f"{'…' if begin else ''}{text[begin:end]}{'…' if len(text) > end else ''}"
