"""Failures of user code: the outcome that an exception becomes, the errors of its group, and where it was raised."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import timedelta
from pathlib import Path
from traceback import walk_tb
from types import CodeType, FrameType
from typing import Any, cast

import anyio

from craftcore.clock import YEAR_10000
from craftcore.error_codes import ErrorCode, find_code
from craftcore.errors import CraftcoreError
from craftcore.outcome_exceptions import LONGEST_WAIT, Fail, NoEffect, Retry, Snooze
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.encode import MAX_DEPTH
from craftcore.serialization.untrusted import (
    MESSAGE_LIMIT,
    message_of,
    safe_isinstance,
    safe_repr,
    traceback_of,
    truncate_text,
    type_name,
)
from craftcore.triggers.settlement import Failed, Snoozed

PAST_SNOOZE_SECONDS = 1.0
"""Seconds after which a snooze until a past moment is tried again: it counts no attempt, and would have no end."""

CODE_LIMIT = 100
"""Characters of an error code that are kept."""


def outcome_of(error: BaseException, now: float) -> Failed | Snoozed:
    """Return what becomes of the attempt that raised the error. The decisive error of a group counts."""
    try:
        return _outcome(decisive_error(error), now)
    except BaseException:  # an attribute of an exception of user code may raise
        return _unexpected_failure(error)


def failure_of(code: ErrorCode, message: str, **details: Any) -> Failed:
    """Return the failure with a code of the table, which says whether it is tried again."""
    return Failed(code=code, message=message, retryable=code.may_be_retried, details=details)


def exception_details(error: BaseException) -> dict[str, Any]:
    """Return the details of an exception of user code: its `exception_type`, and `where` it was raised."""
    return {"exception_type": type_name(error), "where": traceback_places(error)}


def wait_asked(error: BaseException, name: str = "retry_after") -> float | None:
    """Return the seconds that an error's `retry_after`, or another attribute, asks for; None where it has none."""
    try:
        return _seconds(getattr(error, name, None))
    except BaseException:  # a property of an exception of user code may raise
        return None


def _seconds(asked: object) -> float | None:
    """Return the seconds of a wait; None for an invalid one."""
    seconds = asked.total_seconds() if isinstance(asked, timedelta) else asked
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= LONGEST_WAIT:
        return None
    return float(seconds)


def _outcome(error: BaseException, now: float) -> Failed | Snoozed:
    match error:
        case Snooze():
            if not 0 <= error.until < YEAR_10000:
                return _unexpected_failure(error)
            return Snoozed(until=error.until if error.until > now else now + PAST_SNOOZE_SECONDS)
        case Retry():
            return _retry_later(error, error.code, error.after)
        case NoEffect():
            return _retry_later(error, error.code, error.retry_after)
        case Fail():
            return Failed(
                code=_text(error.code),
                message=message_of(error),
                retryable=False,
                expected=error.expected is True,
                details=_plain_details(error.details),
            )
        case CraftcoreError():
            code = find_code(error.code)
            return Failed(
                code=_text(error.code),
                message=message_of(error),
                retryable=code is None or code.may_be_retried,
                retry_after=_seconds(error.retry_after),
                details=_plain_details(error.details),
            )
        case TimeoutError():
            return failure_of(ErrorCode.AGENT_TIMEOUT, message_of(error), **exception_details(error))
        case ConnectionError():
            return failure_of(ErrorCode.TRANSPORT_ERROR, message_of(error), **exception_details(error))
        case _:
            return _unexpected_failure(error)


def _retry_later(error: Retry | NoEffect, code: object, after: object) -> Failed:
    return Failed(code=_text(code), message=message_of(error), retryable=True, retry_after=_seconds(after))


def _unexpected_failure(error: BaseException) -> Failed:
    return failure_of(ErrorCode.INTERNAL_AGENT_ERROR, error_text(error), **exception_details(error))


def _text(code: object) -> str:
    return truncate_text(str(code), CODE_LIMIT)


def _plain_details(details: Mapping[str, Any]) -> dict[str, Any]:
    """Return the details as they can be recorded: what is not JSON, or too deep to be carried elsewhere, becomes its
    repr. The returned copy is not changed any more."""
    plain: dict[str, Any] = {}
    for key, value in details.items():
        try:
            copy = json.loads(canonicalize(value))
        except Exception:  # besides what canonicalize raises: a mapping of user code may raise anything
            copy = safe_repr(value)
        plain[str(key)] = safe_repr(value) if _is_deep(copy) else copy
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


LEAVES_SAID = 100
"""Errors of a group whose texts are in a message: more would not fit."""

_EXCEPTIONS = BaseExceptionGroup.__dict__["exceptions"]

Kinds = type[BaseException] | tuple[type[BaseException], ...]


def is_only(error: BaseException, kinds: Kinds) -> bool:
    """Return whether this is a nursery's group of these and nothing else."""
    return safe_isinstance(error, BaseExceptionGroup) and all(
        safe_isinstance(leaf, kinds) for leaf in leaf_errors(error)
    )


def decisive_error(error: BaseException) -> BaseException:
    """Return the error that says what becomes of an attempt: of several, the first that trying again cannot help; the
    group itself when there is none."""
    leaves = leaf_errors(error)
    return leaves[0] if len(leaves) == 1 else next(filter(is_hopeless, leaves), error)


def is_hopeless(error: BaseException) -> bool:
    """Return a failure that another try cannot repair."""
    if not safe_isinstance(error, CraftcoreError):
        return safe_isinstance(error, Fail)
    try:
        code = find_code(cast(CraftcoreError, error).code)
    except BaseException:  # an attribute of an exception of user code may raise
        return False
    return code is not None and not code.may_be_retried


def error_text(error: BaseException) -> str:
    """Return the error's own words; those of all that are in a group."""
    return truncate_text("; ".join(message_of(leaf) for leaf in leaf_errors(error)[:LEAVES_SAID]), MESSAGE_LIMIT)


def first_error(error: BaseException) -> BaseException:
    """Return the first error of a group; any other is its own."""
    return next(iter(leaf_errors(error)), error)


def leaf_errors(error: BaseException) -> list[BaseException]:
    """Return the errors of a group, however deep, in their order; any other error is its only one."""
    leaves, within = list[BaseException](), [error]  # no recursion: it may be deeper than the interpreter goes
    while within:
        one = within.pop()
        if safe_isinstance(one, BaseExceptionGroup):
            within.extend(reversed(_EXCEPTIONS.__get__(one)))
        else:
            leaves.append(one)
    return leaves


FIRST, LAST = 4, 6
"""Places of a traceback that are kept from either end: the author's own, and where the error was raised."""

PLACE_LIMIT = 300
"""Characters of a place."""

_OURS = str(Path(__file__).parents[1]) + "/"
_MACHINERY = (_OURS, str(Path(anyio.__file__).parent) + "/")


def format_places(stack: Iterable[tuple[FrameType, int]]) -> list[str]:
    """Return the places of a stack that are not of craftcore, outermost first."""
    frames = [(frame.f_code, line) for frame, line in stack]
    return _format_places([one for one in frames if not one[0].co_filename.startswith(_MACHINERY)])


class RemoteTraceback(Exception):
    """The cause of an exception that was raised in another process: its traceback as text, and its places."""

    def __init__(self, text: str, places: list[str]) -> None:
        super().__init__(text)
        self.places = places


_CAUSE = BaseException.__dict__["__cause__"]


def traceback_places(error: BaseException) -> list[str]:
    """Return `["/srv/agent/app.py:81 in report", …]`: from the outermost to where it was raised; of a group that of
    its first.

    An exception that was raised within craftcore alone has only its last place.
    """
    first = first_error(error)
    cause = _CAUSE.__get__(first)
    if type(cause) is RemoteTraceback:
        return cause.places
    frames = [(frame.f_code, line) for frame, line in walk_tb(traceback_of(first))]
    theirs = [one for one in frames if not one[0].co_filename.startswith(_MACHINERY)] or frames[-1:]
    return _format_places(theirs)


def _format_places(theirs: list[tuple[CodeType, int]]) -> list[str]:
    if len(theirs) > FIRST + LAST:
        theirs = theirs[:FIRST] + theirs[-LAST:]
    return [truncate_text(f"{code.co_filename}:{line} in {code.co_name}", PLACE_LIMIT) for code, line in theirs]


def sole_exception(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """Return the one exception in a group of one, however deep; else the group itself."""
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error
