"""JSON as a person gives it: in the arguments, as @FILE, or - for standard input. It is read strictly."""

from __future__ import annotations

import json
import shlex
import sys
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

from craftcore.diagnostics.text.schedule_text import COMMAND
from craftcore.errors import InvalidInput
from craftcore.files import open_regular
from craftcore.serialization.arguments import show_value

READ_MAX_BYTES = 64 << 20


def read_payload(given: str) -> dict[str, Any]:
    """Read one JSON object. Raises InvalidInput for anything else, a repeated key, or a number that JSON lacks."""
    payload, where = _read(given)
    if not isinstance(payload, dict):
        raise InvalidInput(f"{where} must be a JSON object such as {{}}, not {type(payload).__name__}")
    return payload


def require_argument_list(workflow: str | None, payload: Mapping[str, Any]) -> None:
    """Raise InvalidInput for a command that is given as one text: `command.run` runs no shell."""
    command = payload.get("argv")
    if workflow != COMMAND or not isinstance(command, str):
        return
    try:
        words = shlex.split(command)
    except ValueError:  # a quote that does not end
        words = command.split()
    raise InvalidInput(
        f"{COMMAND}: argv {show_value(command)} must be a list of words, as in {json.dumps(words):.200}; "
        f"for a shell: {json.dumps(['sh', '-c', command]):.200}"
    )


def read_json(given: str) -> Any:
    """Read any JSON value. Raises InvalidInput for other text, a repeated key, or a number that JSON lacks."""
    return _read(given)[0]


def _read(given: str) -> tuple[Any, str]:
    """Return the value, and the name of its place for messages."""
    where, text = "the payload", given
    if given == "-":
        where = "the payload on standard input"
        try:
            text = utf8_text(sys.stdin.buffer.read(READ_MAX_BYTES + 1), where, READ_MAX_BYTES)
        except OSError as error:
            raise InvalidInput(f"{where} cannot be read: {error.strerror}") from None
    elif given.startswith("@"):
        where = f"the payload in {given[1:]}"
        text = read_text_file(given[1:], where, READ_MAX_BYTES)
    return parse_strict_json(text, where), where


def read_text_file(path: str, where: str, max_bytes: int) -> str:
    """Return the text of a regular file. Raises InvalidInput, whose message begins with `where`."""
    try:
        with open_regular(path) as file:
            body = file.read(max_bytes + 1)
    except OSError as error:
        raise InvalidInput(f"{where} cannot be read: {error.strerror}") from None
    return utf8_text(body, where, max_bytes)


def parse_strict_json(text: str, where: str) -> Any:
    """Parse JSON, without dropping a repeated key or accepting NaN.

    Raises InvalidInput, whose message begins with `where`.
    """

    def refuse_repeated(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            twice = next(key for key, times in Counter(key for key, _ in pairs).items() if times > 1)
            raise InvalidInput(f"{where} has the key {twice!r:.80} twice in one object")
        return found

    def refuse_number(name: str) -> NoReturn:
        raise InvalidInput(f"{where} has {name}, which is not a JSON number")

    try:
        return json.loads(text, object_pairs_hook=refuse_repeated, parse_constant=refuse_number)
    except InvalidInput:
        raise
    except json.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise InvalidInput(f"{where} is not JSON: {error.msg} at {place}") from None
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise InvalidInput(f"{where} is not JSON: {reason}") from None


def utf8_text(body: bytes, where: str, max_bytes: int) -> str:
    """Return the text of a file. Raises InvalidInput for bytes that are not UTF-8, or more of them than allowed."""
    if len(body) > max_bytes:
        raise InvalidInput(f"{where} has over {max_bytes:,} bytes")
    try:
        return body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{where} is not UTF-8 text, at byte {error.start}") from None
