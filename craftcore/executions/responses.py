"""Responses: the outcome of an attempt, as its record keeps it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any, NamedTuple

from craftcore.errors import ErrorCode
from craftcore.executions.model import Status
from craftcore.serialization.canonical import canonicalize
from craftcore.triggers.settlement import Cancelled, Continued, Corrupt, Delivered, Failed, Obsolete, Succeeded

Final = Succeeded | Failed | Cancelled | Corrupt | Continued | Delivered | Obsolete
"""Outcomes that are a response. After the others the attempt was left without one."""

NOTHING = '{"metadata":{},"payload":null,"status":"success"}'


class Response(NamedTuple):
    """The canonical text of a response. `is_whole`: nothing of it had to be left out."""

    status: Status
    error_code: str | None
    text: str
    is_whole: bool = True


def response_of(outcome: Final, max_bytes: int) -> Response:
    """Return the response of an outcome; what is too large for it is a stub."""
    match outcome:
        case Succeeded(result_json=result, is_stored=is_stored):
            kept = truncate_result(result, max_bytes)
            text = f'{{"metadata":{{}},"payload":{kept},"status":"success"}}'
            return Response(Status.SUCCESS, None, text, is_stored and kept is result)
        case Continued() | Delivered():
            return Response(Status.SUCCESS, None, NOTHING)
        case Obsolete(reason=reason):
            return _error_response(ErrorCode.WORKFLOW_ABORTED, reason)
        case Cancelled(effect_possible=possible):
            return _error_response(ErrorCode.WORKFLOW_ABORTED, "cancelled while it ran", effect_possible=possible)
        case Corrupt(message=message):
            return _error_response(ErrorCode.VALIDATION_ERROR, message)
        case Failed():
            whole = error_text(outcome, outcome.details)
            if len(whole) <= max_bytes:
                return Response(Status.ERROR, outcome.code, whole)
            stub = error_text(outcome, {"details_unstored": "too large", "bytes": len(whole)})
            return Response(Status.ERROR, outcome.code, stub, is_whole=False)


def error_text(failed: Failed, details: Mapping[str, Any]) -> str:
    """Return the response of a failure: the error with its code, message and details. It also says whether it may be
    tried again, after how many seconds at least, and `effect_possible` (see Failed)."""
    error = {
        "code": str(failed.code),
        "message": failed.message,
        "retryable": failed.retryable,
        "details": details,
        "effect_possible": failed.effect_possible,
        "retry_after": failed.retry_after,
    }
    return canonicalize({"error": error, "metadata": {}, "status": "error"})


def truncate_result(result_json: str, max_bytes: int) -> str:
    """Return the result, or a stub with its size and hash when it is over the limit."""
    if len(result_json) <= max_bytes:
        return result_json
    digest = sha256(result_json.encode()).hexdigest()
    return canonicalize({"result_unstored": "too large", "bytes": len(result_json), "sha256": digest})


def _error_response(code: ErrorCode, message: str, *, effect_possible: bool = False) -> Response:
    failed = Failed(code=code, message=message, retryable=False, effect_possible=effect_possible)
    return Response(Status.ERROR, code, error_text(failed, {}))
