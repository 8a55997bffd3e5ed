"""The answer of a worker process: an encoded result, or the exception that the function raised.

An exception is pickled where it comes back from the pickle as it was. The worker process tries that, since it fails
for many classes with an `__init__` of their own. Then an error with the same code and message takes its place.
"""

from __future__ import annotations

import json
import pickle
import traceback
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import msgspec

from craftcore.engine.failure import RemoteTraceback, first_error, outcome_of, traceback_places
from craftcore.engine.workers.encoded import Encoded
from craftcore.errors import CraftcoreError
from craftcore.outcome_exceptions import Fail, Snooze
from craftcore.serialization.canonical import canonicalize
from craftcore.serialization.encode import describe_error
from craftcore.serialization.untrusted import MESSAGE_LIMIT, message_of, truncate_text, type_name
from craftcore.triggers.settlement import Snoozed

PICKLED_MAX = 256 << 10
"""Bytes of a pickled exception."""

UNPICKLE_SECONDS = 10.0
"""How long the daemon waits for a pickled exception to come back."""

TRACEBACK_MAX = 16 << 10
"""Characters of a traceback that are kept, from its end."""


class Returned(msgspec.Struct, tag=True):
    """The function returned."""

    text: str
    is_stored: bool


class Raised(msgspec.Struct, tag=True, kw_only=True):
    """The function raised. `pickled` is empty where `why` says that it cannot be pickled.

    `until` is set for a Snooze, and `is_final` for what trying again cannot help.
    """

    pickled: bytes
    why: str
    class_name: str
    message: str
    places: list[str]
    traceback: str
    until: float | None = None
    code: str = ""
    is_final: bool = False
    expected: bool = False
    retry_after: float | None = None
    details_json: str = "{}"


Answer = Returned | Raised
_decode: Callable[[bytes], Answer] = msgspec.msgpack.Decoder(Answer).decode


def encode_answer(answer: Encoded | BaseException) -> bytes:
    """Return the bytes of an answer, in the worker process."""
    return msgspec.msgpack.encode(Returned(*answer) if isinstance(answer, Encoded) else _encode_failure(answer))


def decode_answer(data: bytes) -> Answer:
    """Return an answer out of its bytes. Raises msgspec.MsgspecError."""
    return _decode(data)


async def decode_exception(raised: Raised) -> BaseException:
    """Return what is to be raised in the daemon."""
    if raised.pickled:
        with anyio.move_on_after(UNPICKLE_SECONDS) as scope:
            error = await anyio.to_thread.run_sync(_load_exception, raised, abandon_on_cancel=True)
            if error is not None:
                return error
        if scope.cancelled_caught:
            raised.why = f"it did not come back within {UNPICKLE_SECONDS:g} seconds"
    error = _build_substitute(raised)
    error.__cause__ = RemoteTraceback(raised.traceback, raised.places)
    return error


def _load_exception(raised: Raised) -> BaseException | None:
    """Return the exception; None, with the reason in `why`, when its class does not let it. Runs in a thread, since it
    is user code."""
    try:
        error: BaseException = pickle.loads(raised.pickled)  # noqa: S301 - from our own worker process
        first_error(error).__cause__ = RemoteTraceback(raised.traceback, raised.places)
        return error
    except BaseException as refused:
        raised.why = describe_error(refused)
        return None


def _encode_failure(error: BaseException) -> Raised:
    pickled, why = _encode_exception(error)
    raised = Raised(
        pickled=pickled,
        why=why,
        class_name=type_name(error),
        message=message_of(error),
        places=traceback_places(error),
        traceback=_format(error),
    )
    outcome = outcome_of(error, 0.0)
    if isinstance(outcome, Snoozed):
        raised.until = outcome.until
        return raised
    raised.code, raised.message, raised.is_final = outcome.code, outcome.message, not outcome.retryable
    raised.expected = outcome.expected
    raised.retry_after, raised.details_json = outcome.retry_after, canonicalize(dict(outcome.details))
    return raised


def _encode_exception(error: BaseException) -> tuple[bytes, str]:
    """Return the exception pickled; nothing, and why, where it does not come back as it was."""
    if not isinstance(error, Exception):  # SystemExit or KeyboardInterrupt would mean the daemon there
        return b"", "it is not an Exception"
    try:
        pickled = pickle.dumps(error)
        again = pickle.loads(pickled)  # noqa: S301 - made in the line above
    except BaseException as refused:  # a class of user code
        return b"", describe_error(refused)
    if len(pickled) > PICKLED_MAX:
        return b"", f"it has {len(pickled):,} bytes, the limit is {PICKLED_MAX:,}"
    if type(again) is not type(error) or message_of(again) != message_of(error):
        return b"", f"it comes back as {type_name(again)}: {message_of(again)}"
    return pickled, ""


def _build_substitute(raised: Raised) -> Exception:
    """Return an error of craftcore with the same outcome."""
    if raised.until is not None:
        return Snooze(raised.message, until=raised.until)
    details: dict[str, Any] = json.loads(raised.details_json)
    if raised.is_final:
        failed = Fail(raised.code, raised.message, expected=raised.expected)
        failed.details = details
        return failed
    message = f"{raised.message} ({raised.class_name} cannot be carried to the daemon: {raised.why})"
    error = CraftcoreError(truncate_text(message, MESSAGE_LIMIT))
    error.details = details
    error.code = raised.code
    error.retry_after = raised.retry_after
    return error


def _format(error: BaseException) -> str:
    try:
        return "".join(traceback.format_exception(error))[-TRACEBACK_MAX:].encode(errors="replace").decode()
    except BaseException:  # a __str__ of user code
        return "\n".join(traceback_places(error))
