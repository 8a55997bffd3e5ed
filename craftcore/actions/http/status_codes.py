"""Failed answers: the error code of a status, and how long its sender asks to wait."""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime

from craftcore.errors import ErrorCode

RETRY_AFTER_MAX_SECONDS = 86_400.0

_CODES = {
    ErrorCode.UNAUTHORIZED: (401, 403, 407),
    ErrorCode.VALIDATION_ERROR: (400, 405, 406, 411, 414, 415, 417, 422, 428, 431),
    ErrorCode.PAYLOAD_TOO_LARGE: (413,),
    ErrorCode.AGENT_TIMEOUT: (408, 504),
    ErrorCode.RATE_LIMIT: (429,),
    ErrorCode.AGENT_UNAVAILABLE: (425,),
}
_BY_STATUS = {status: code for code, statuses in _CODES.items() for status in statuses}


def code_of(status: int) -> ErrorCode:
    """Return the error code of a status other than success."""
    otherwise = ErrorCode.AGENT_UNAVAILABLE if status >= 500 else ErrorCode.AGENT_ERROR
    return _BY_STATUS.get(status, otherwise)


def retry_after(value: str | None, date: str | None, now: float) -> float | None:
    """Return the seconds of a Retry-After, at most a day; None for a text that is not one. Both forms are read. A
    moment is compared with the sender's clock where the answer has a Date, otherwise with the local clock."""
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return min(float(text), RETRY_AFTER_MAX_SECONDS)
    moment = _moment(text)
    if moment is None:
        return None
    theirs = _moment(date or "")
    return min(max(0.0, moment - (now if theirs is None else theirs)), RETRY_AFTER_MAX_SECONDS)


def _moment(text: str) -> float | None:
    """Return an HTTP date in epoch seconds."""
    try:
        return parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
