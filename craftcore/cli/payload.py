"""A payload as it is typed: JSON, @FILE, or - for standard input. Read strictly: nothing is guessed or dropped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NoReturn

from craftcore.errors import InvalidInput

READ_MAX_BYTES = 64 << 20


def read_payload(given: str) -> dict[str, Any]:
    """The object. Raises InvalidInput for what is not one JSON object, has a key twice, or a number JSON has not."""
    payload, where = _read(given)
    if not isinstance(payload, dict):
        raise InvalidInput(f"{where} must be a JSON object such as {{}}, not {type(payload).__name__}")
    return payload


def read_json(given: str) -> Any:
    """Any value. Raises InvalidInput for what is not JSON, has a key twice in an object, or a number JSON has not."""
    return _read(given)[0]


def _read(given: str) -> tuple[Any, str]:
    """The value, and where it stood."""
    text, where = _text(given)
    try:
        return json.loads(text, object_pairs_hook=_once, parse_constant=_no_number), where
    except InvalidInput:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"{where} is not JSON: {error.msg} at {place}") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"{where} is not JSON: {reason}") from None


def _text(given: str) -> tuple[str, str]:
    try:
        if given == "-":
            where, body = "the payload on standard input", sys.stdin.buffer.read(READ_MAX_BYTES + 1)
        elif given.startswith("@"):
            where = f"the payload in {given[1:]}"
            with Path(given[1:]).open("rb") as file:
                body = file.read(READ_MAX_BYTES + 1)
        else:
            return given, "the payload"
    except OSError as error:
        raise InvalidInput(f"the payload {given[:200]} cannot be read: {error.strerror}") from None
    if len(body) > READ_MAX_BYTES:
        raise InvalidInput(f"{where} has over {READ_MAX_BYTES:,} bytes")
    try:
        return body.decode(), where
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} is not UTF-8 text, at byte {error.start}") from None


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise InvalidInput(f"the payload has the key {twice!r:.80} twice in one object")
    return found


def _no_number(name: str) -> NoReturn:
    raise InvalidInput(f"the payload has {name}, which is no JSON number")
