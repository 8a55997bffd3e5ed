"""What an exception of user code says of its attempt, as it can be recorded. Pure, and never an exception itself.

Every failure has a code, a message (bounded, and text whatever it was), whether it is tried again and not sooner than
when, and details that are JSON. The table of codes decides whether, unless the author did: Fail never, Retry and
NoEffect always. What nobody expected is an INTERNAL_AGENT_ERROR. What is no error of ours has its `exception_type` and
`where` it was raised.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any

from craftcore.clock import YEAR_10000
from craftcore.engine.groups import decisive, said
from craftcore.engine.where import where
from craftcore.error_codes import ErrorCode, known
from craftcore.errors import LONGEST_WAIT, CraftcoreError, Fail, NoEffect, Retry, Snooze
from craftcore.serialization.canonical import canonical
from craftcore.serialization.encode import MAX_DEPTH
from craftcore.serialization.untrusted import bounded, message_of, shown, type_of
from craftcore.triggers.settlement import Failed, Snoozed

CODE_LIMIT = 100
"""Characters of an error code that are kept."""


def outcome_of(error: BaseException, now: float) -> Failed | Snoozed:
    """What becomes of the attempt that raised it. Of a group the decisive one counts."""
    try:
        return _outcome(decisive(error), now)
    except BaseException:  # one of somebody's own is broken
        return _unexpected(error)


def failed(code: ErrorCode, message: str, **details: Any) -> Failed:
    """The failure with a code of the table, which says whether it is tried again."""
    return Failed(code=code, message=message, retryable=code.may_be_retried, details=details)


def met(error: BaseException) -> dict[str, Any]:
    """The details of an exception that is none of ours: its `exception_type`, and `where` it was raised."""
    return {"exception_type": type_of(error), "where": where(error)}


def wait_asked(error: BaseException, name: str = "retry_after") -> float | None:
    """The seconds that an error's `retry_after`, or another attribute, asks for; None where it has none."""
    try:
        return _seconds(getattr(error, name, None))
    except BaseException:  # a property of somebody's own
        return None


def _seconds(asked: object) -> float | None:
    """None for what is no wait."""
    seconds = asked.total_seconds() if isinstance(asked, timedelta) else asked
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_WAIT:
        return None
    return float(seconds)


def _outcome(error: BaseException, now: float) -> Failed | Snoozed:
    match error:
        case Snooze():
            if not 0 <= error.until < YEAR_10000:
                return _unexpected(error)
            return Snoozed(until=max(error.until, now))
        case Retry():
            return _again(error, error.code, error.after)
        case NoEffect():
            return _again(error, error.code, error.retry_after)
        case Fail():
            return Failed(
                code=_text(error.code), message=message_of(error), retryable=False, details=_plain(error.details)
            )
        case CraftcoreError():
            code = known(error.code)
            return Failed(
                code=_text(error.code),
                message=message_of(error),
                retryable=code is None or code.may_be_retried,
                retry_after=_seconds(error.retry_after),
                details=_plain(error.details),
            )
        case TimeoutError():
            return failed(ErrorCode.AGENT_TIMEOUT, message_of(error), **met(error))
        case ConnectionError():
            return failed(ErrorCode.TRANSPORT_ERROR, message_of(error), **met(error))
        case _:
            return _unexpected(error)


def _again(error: Retry | NoEffect, code: object, after: object) -> Failed:
    return Failed(code=_text(code), message=message_of(error), retryable=True, retry_after=_seconds(after))


def _unexpected(error: BaseException) -> Failed:
    return failed(ErrorCode.INTERNAL_AGENT_ERROR, said(error), **met(error))


def _text(code: object) -> str:
    return bounded(str(code), CODE_LIMIT)


def _plain(details: Mapping[str, Any]) -> dict[str, Any]:
    """The details as they can be recorded: what is not JSON, or too deep to be carried elsewhere, becomes its repr. A
    copy, which nobody changes any more."""
    plain: dict[str, Any] = {}
    for key, value in details.items():
        try:
            copy = json.loads(canonical(value))
        except Exception:  # besides what canonical raises, whatever a mapping of somebody's own does
            copy = shown(value)
        plain[str(key)] = shown(value) if _is_deep(copy) else copy
    return plain


def _is_deep(value: Any) -> bool:
    level = [value]
    for _ in range(MAX_DEPTH + 1):
        level = [part for one in level for part in _parts(one)]
        if not level:
            return False
    return True


def _parts(value: Any) -> Iterable[Any]:
    return value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
