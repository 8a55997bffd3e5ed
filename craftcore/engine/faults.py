"""Errors of the engine itself while it works on one trigger: that trigger fails, and the engine goes on.

An error of the storage is never such a fault: it ends the engine, or is waited for. RowInvalid is one: nothing was
written, and another trigger's rows may be accepted.
"""

from __future__ import annotations

from contextlib import suppress

import anyio

from craftcore.engine.failure import exception_details, failure_of
from craftcore.engine.loop.keyboard_interrupt import is_ctrl_c
from craftcore.errors import ErrorCode, RowInvalid, StorageError
from craftcore.log import get_logger
from craftcore.serialization.untrusted import MESSAGE_LIMIT, message_of, safe_isinstance, truncate_text, type_name
from craftcore.triggers.model import Claim
from craftcore.triggers.settlement import Failed

log = get_logger(__name__)


def fault(error: BaseException, step: str) -> Failed:
    """Return the failure of the trigger that met this error in a step of the engine: it is not tried again.

    Raises the error itself when it is about the storage, or ends the engine: a cancellation, or Ctrl-C.
    """
    is_of_storage = safe_isinstance(error, StorageError) and not safe_isinstance(error, RowInvalid)
    ends = (anyio.get_cancelled_exc_class(), GeneratorExit, KeyboardInterrupt)
    if is_of_storage or safe_isinstance(error, ends) or is_ctrl_c(error):
        raise error
    message = f"craftcore failed to {step} this trigger: {type_name(error)}: {message_of(error)}"
    failed = failure_of(
        ErrorCode.INTERNAL_AGENT_ERROR, truncate_text(message, MESSAGE_LIMIT), **exception_details(error)
    )
    return Failed(code=failed.code, message=failed.message, retryable=False, details=failed.details)


def report(claim: Claim, step: str, error: BaseException) -> None:
    """Log a fault with its traceback. A log of the host's that fails changes nothing of what the trigger comes to."""
    with suppress(Exception):
        log.critical("trigger.fault", trigger=claim.id, workflow=claim.workflow, step=step, exc_info=error)
