"""Where a record is given by its id or as a file that was exported: what has a `/`, or ends in `.json`, is a file."""

from __future__ import annotations

from typing import Any

from craftcore.cli.lookup import find_record
from craftcore.cli.payload import parse_strict_json, utf8_text
from craftcore.cli.session import Session
from craftcore.errors import InvalidInput
from craftcore.executions.record import ExecutionRecord
from craftcore.files import open_regular

READ_MAX_BYTES = 256 << 20


def is_file(given: str) -> bool:
    """Return whether a file is meant: no id has a `/`, and every whole one ends in its number."""
    return "/" in given or given.endswith(".json")


def load_record(session: Session, given: str) -> ExecutionRecord:
    """Return the record of an id, which may be shortened, or in a file. Raises NotFound; InvalidInput for a bad
    file."""
    if is_file(given):
        return record_in(given)
    with session.core().reading() as reader:
        return find_record(reader, given)


def record_in(path: str) -> ExecutionRecord:
    """Return the record that was exported to a file. Raises InvalidInput with the path to what is wrong in it."""
    # It brings msgspec, which other reading commands do without.
    from craftcore.executions.document.load import record_of

    value = _read(path, path)
    try:
        return record_of(value)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.message}") from None


def envelope_in(path: str) -> dict[str, Any]:
    """Return the envelope in a file, by itself or in an exported record. Raises InvalidInput for anything but a JSON
    object."""
    envelope = _read(path, f"the envelope in {path}")
    if isinstance(envelope, dict) and {"header", "envelope"} <= envelope.keys():  # an envelope has neither
        envelope = envelope["envelope"]
    if not isinstance(envelope, dict):
        raise InvalidInput(f"the envelope in {path} must be a JSON object, not {type(envelope).__name__}")
    return envelope


def _read(path: str, where: str) -> Any:
    try:
        with open_regular(path) as file:
            body = file.read(READ_MAX_BYTES + 1)
    except OSError as error:
        raise InvalidInput(f"{where} cannot be read: {error.strerror}") from None
    return parse_strict_json(utf8_text(body, where, READ_MAX_BYTES), where)
