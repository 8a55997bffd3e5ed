"""The result of ended work as a value: of the type that the workflow or the caller names, or the error to raise."""

from __future__ import annotations

from typing import Any

from craftcore.error_codes import find_code
from craftcore.errors import InvalidInput, NotFound, PayloadTooLarge, WorkFailed
from craftcore.serialization.decode import decode
from craftcore.serialization.readable_types import decode_as
from craftcore.tasks.work_store import WorkResult


def require_result(end: WorkResult, type: Any) -> Any:
    """Return the result of ended work, as `type`; None: as plain JSON values. Raises as Handle.result does."""
    if end.failure is not None:
        raise _work_failed(end)
    if end.result_json is None:
        raise NotFound(f"the result of {end.id} is not kept any more; it ended {end.status}", id=end.id)
    value = decode(end.result_json)
    if isinstance(value, dict) and value.keys() == {"result_unstored", "bytes", "sha256"}:
        raise PayloadTooLarge(
            f"the result of {end.id} has {value['bytes']} bytes and was not stored: records.response_max_bytes is less",
            id=end.id,
        )
    if isinstance(value, dict) and value.keys() == {"result_unstored"}:
        raise InvalidInput(f"the result of {end.id} was not stored: {value['result_unstored']}", id=end.id)
    return value if type in (None, Any) else decode_as(end.result_json, type, f"the result of {end.id}")


def _work_failed(end: WorkResult) -> WorkFailed:
    assert end.failure is not None, end
    code, message = end.failure
    why = message or end.reason or code or "no error is on record"
    error = WorkFailed(
        f"{end.workflow or 'trigger'} {end.id} ended {end.status}: {why}",
        id=end.id,
        status=end.status,
        reason=end.reason,
        code=code,
    )
    if code:
        error.code = find_code(code) or code
    return error
