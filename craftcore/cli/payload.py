"""A payload as it is typed: JSON, @FILE, or - for standard input. Read strictly: nothing is guessed or dropped."""

from __future__ import annotations

import sys
from typing import Any

from craftcore.cli.strict_json import strict_json, utf8_text
from craftcore.errors import InvalidInput
from craftcore.files import open_regular

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
    return strict_json(text, where), where


def _text(given: str) -> tuple[str, str]:
    try:
        if given == "-":
            where, body = "the payload on standard input", sys.stdin.buffer.read(READ_MAX_BYTES + 1)
        elif given.startswith("@"):
            where = f"the payload in {given[1:]}"
            with open_regular(given[1:]) as file:
                body = file.read(READ_MAX_BYTES + 1)
        else:
            return given, "the payload"
    except OSError as error:
        raise InvalidInput(f"the payload {given[:200]} cannot be read: {error.strerror}") from None
    return utf8_text(body, where, READ_MAX_BYTES), where
