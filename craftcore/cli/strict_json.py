"""JSON as a person gave it, read strictly: nothing is guessed or dropped."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any, NoReturn

from craftcore.errors import InvalidInput


def strict_json(text: str, where: str) -> Any:
    """The value. Raises InvalidInput, which begins with `where`, for what is not JSON, has a key twice in an object, or
    a number that JSON has not."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
            raise InvalidInput(f"{where} has the key {twice!r:.80} twice in one object")
        return found

    def no_number(name: str) -> NoReturn:
        raise InvalidInput(f"{where} has {name}, which is no JSON number")

    try:
        return json.loads(text, object_pairs_hook=once, parse_constant=no_number)
    except InvalidInput:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"{where} is not JSON: {error.msg} at {place}") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"{where} is not JSON: {reason}") from None


def utf8_text(body: bytes, where: str, max_bytes: int) -> str:
    """The text of a file. Raises InvalidInput for what is no UTF-8, or larger than that."""
    if len(body) > max_bytes:
        raise InvalidInput(f"{where} has over {max_bytes:,} bytes")
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} is not UTF-8 text, at byte {error.start}") from None
