"""Where a record is given by its id or as a file that was exported: what has a `/`, or ends in `.json`, is a file."""

from __future__ import annotations

from typing import Any

from craftcore.cli.lookup import find_record
from craftcore.cli.payload import parse_strict_json, read_text_file
from craftcore.cli.session import Session
from craftcore.errors import InvalidInput
from craftcore.executions.record import ExecutionRecord

READ_MAX_BYTES = 256 << 20


def is_file(given: str) -> bool:
    """Return whether a file is meant: no id has a `/`, and every whole one ends in its number."""
    return "/" in given or given.endswith(".json")


def load_record(session: Session, given: str) -> ExecutionRecord:
    """Return the record of an id, which may be shortened, or in a file. Raises NotFound; InvalidInput for a bad
    file."""
    return record_in(given) if is_file(given) else read_record(session, given)


def read_record(session: Session, given: str) -> ExecutionRecord:
    """Return the record of an id, which may be shortened. Raises NotFound."""
    if session.cluster is not None:
        from craftcore.cli.temporal.cluster_records import read_entry

        return read_entry(session, given)
    with session.core().reading() as reader:
        return find_record(reader, given)


def record_in(path: str) -> ExecutionRecord:
    """Return the record that was exported to a file. Raises InvalidInput with the path to what is wrong in it."""
    # It brings msgspec, which other reading commands do without.
    from craftcore.executions.document.load import record_of

    value = parse_strict_json(read_text_file(path, path, READ_MAX_BYTES), path)
    try:
        return record_of(value)
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error.message}") from None


def envelope_in(path: str) -> dict[str, Any]:
    """Return the envelope in a file, by itself or in an exported record. Raises InvalidInput for anything but a JSON
    object."""
    where = f"the envelope in {path}"
    envelope = parse_strict_json(read_text_file(path, where, READ_MAX_BYTES), where)
    if isinstance(envelope, dict) and {"header", "envelope"} <= envelope.keys():  # an envelope has neither
        envelope = envelope["envelope"]
    if not isinstance(envelope, dict):
        raise InvalidInput(f"{where} must be a JSON object, not {type(envelope).__name__}")
    return envelope
