"""The exceptions by which user code ends an attempt.

Retry(after=…, code=…)   try again, this attempt counts
Snooze(until=…)          try again, this attempt does not count
Fail(code, …)            trying again cannot help
NoEffect(…, code=…)      of an action: it is certain that nothing happened; try again
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any

from craftcore.clock import YEAR_10000
from craftcore.error_codes import ErrorCode, find_code
from craftcore.errors import InvalidInput
from craftcore.serialization.arguments import Duration, seconds, show_value

LONGEST_WAIT = 10 * 366 * 86_400.0
"""Ten years, in seconds: the longest wait that an author can mean."""


class Retry(Exception):
    """Raised by user code: try again, not sooner than `after` (seconds or timedelta); the attempt counts.

    None leaves the wait to the workflow's backoff. The record has the `code`. With RATE_LIMIT, the wait is exactly
    `after`: the seconds that the provider asks for (its Retry-After). Raises InvalidInput for a code that does not
    exist or is never tried again, and ValueError for a wait that is not valid.
    """

    code: ErrorCode = ErrorCode.AGENT_ERROR
    after: float | None = None

    def __init__(
        self,
        message: str = "retry asked for",
        *,
        after: Duration | None = None,
        code: ErrorCode | str = ErrorCode.AGENT_ERROR,
    ) -> None:
        super().__init__(message)
        self.code = _require_retryable("Retry", code)
        self.after = None if after is None else seconds("Retry: after", after, ValueError, most=LONGEST_WAIT)


class Snooze(Exception):
    """Raised by user code: try again at `until` (aware datetime or epoch seconds); the attempt does not count."""

    def __init__(self, message: str = "snoozed", *, until: float | datetime) -> None:
        super().__init__(message)
        if isinstance(until, datetime) and until.tzinfo is None:
            raise ValueError(f"Snooze: until {until.isoformat()} must have a time zone")
        at: object = until.timestamp() if isinstance(until, datetime) else until
        if isinstance(at, bool) or not isinstance(at, int | float):
            hint = "; for a delay raise Retry(after=…)" if isinstance(at, str | timedelta) else ""
            raise ValueError(f"Snooze: until {show_value(until)} must be an aware datetime or epoch seconds{hint}")
        if not 0 <= at < YEAR_10000:
            raise ValueError(f"Snooze: until {show_value(until)} must be a moment between the years 1970 and 9999")
        self.until = float(at)


class Fail(Exception):
    """Raised by user code: it failed, and trying again cannot help. The record has the `code`.

    `expected`: the failure is a result of the business, as "sold out" is. The work is FAILED too, but the status of
    the daemon stays healthy, and no notification is sent. Raises ValueError for a code that is not text.
    """

    code: str = ErrorCode.AGENT_ERROR
    expected: bool = False
    details: Mapping[str, Any] = MappingProxyType({})

    def __init__(self, code: ErrorCode | str, message: str = "", *, expected: bool = False, **details: Any) -> None:
        text: object = code
        if not isinstance(text, str) or not text:
            raise ValueError(f"Fail: code {show_value(code)} must be the text of an error code, e.g. VALIDATION_ERROR")
        super().__init__(message or str(code))
        self.code = str(code)
        self.expected = expected
        self.details = details


class NoEffect(Exception):
    """Raised by an action that knows for certain that nothing happened: it may be called again with the same key.

    The attempt fails and is tried again, not sooner than `retry_after` (seconds or timedelta). `code` says why, as in
    Retry: the connection was refused, or the provider is busy or limits the calls. A `reconcile` function returns it
    for the calls before. Raises as Retry does.
    """

    code: ErrorCode = ErrorCode.AGENT_UNAVAILABLE
    retry_after: float | None = None

    def __init__(
        self,
        message: str = "nothing happened",
        *,
        retry_after: Duration | None = None,
        code: ErrorCode | str = ErrorCode.AGENT_UNAVAILABLE,
    ) -> None:
        super().__init__(message)
        self.code = _require_retryable("NoEffect", code)
        self.retry_after = None
        if retry_after is not None:
            self.retry_after = seconds("NoEffect: retry_after", retry_after, ValueError, most=LONGEST_WAIT)


def _require_retryable(whose: str, code: object) -> ErrorCode:
    """Return a code with which work is tried again. Raises InvalidInput for any other; `whose` exception has it."""
    found = find_code(code) if isinstance(code, str) else None
    if found is not None and found.may_be_retried:
        return found
    retryable = ", ".join(each for each in ErrorCode if each.may_be_retried)
    why = "is not an error code" if found is None else "is never tried again: raise Fail with it"
    raise InvalidInput(f"{whose}(code={show_value(code)}) {why}. Those that are tried again: {retryable}")
