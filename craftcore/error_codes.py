"""The table of error codes in records: category, retryable, backoff.

The first fourteen are the failure model's own, the others are ours beside them. The page docs/reference/error-codes.md
explains each code.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, NamedTuple

Retryable = Literal[True, False, "maybe"]
"""`maybe`: the policy of the workflow decides, and the default policy tries again."""


class Backoff(StrEnum):
    """How long it is until another attempt."""

    NONE = "none"
    """No retry: it would fail in the same way."""
    EXPONENTIAL = "exponential"
    """By the policy of the workflow: longer each time, and not sooner than the error asks for."""
    RETRY_AFTER = "retry_after"
    """As long as the one who refused has said; exponential where nothing was said."""


class ErrorCode(StrEnum):
    """An error code."""

    VALIDATION_ERROR = "VALIDATION_ERROR"
    PAYLOAD_TOO_LARGE = "PAYLOAD_TOO_LARGE"
    ROUTING_ERROR = "ROUTING_ERROR"
    CAPABILITY_NOT_FOUND = "CAPABILITY_NOT_FOUND"
    AGENT_ERROR = "AGENT_ERROR"
    AGENT_TIMEOUT = "AGENT_TIMEOUT"
    AGENT_UNAVAILABLE = "AGENT_UNAVAILABLE"
    INTERNAL_AGENT_ERROR = "INTERNAL_AGENT_ERROR"
    TRANSPORT_ERROR = "TRANSPORT_ERROR"
    PROTOCOL_ERROR = "PROTOCOL_ERROR"
    UNAUTHORIZED = "UNAUTHORIZED"
    RATE_LIMIT = "RATE_LIMIT"
    EMCL_FAILURE = "EMCL_FAILURE"
    WORKFLOW_ABORTED = "WORKFLOW_ABORTED"

    LEASE_LOST = "LEASE_LOST"
    POISON = "POISON"
    STORAGE_FULL = "STORAGE_FULL"
    SCHEDULE_INVALID = "SCHEDULE_INVALID"
    STEP_CONFLICT = "STEP_CONFLICT"
    KEY_REQUIRED = "KEY_REQUIRED"
    CHILD_FAILED = "CHILD_FAILED"
    IDEMPOTENCY_CONFLICT = "IDEMPOTENCY_CONFLICT"
    ACTIVITY_UNKNOWN = "ACTIVITY_UNKNOWN"
    WORKER_DIED = "WORKER_DIED"
    NOT_REPLAYABLE = "NOT_REPLAYABLE"
    REPLAY_HASH_MISMATCH = "REPLAY_HASH_MISMATCH"

    @property
    def category(self) -> str:
        return _FACTS[self].category

    @property
    def retryable(self) -> Retryable:
        return _FACTS[self].retryable

    @property
    def backoff(self) -> Backoff:
        return _FACTS[self].backoff

    @property
    def may_be_retried(self) -> bool:
        """True when the default policy retries after this error."""
        return self.retryable is not False


def find_code(code: str) -> ErrorCode | None:
    """Return the code of this text; None for a code of user code."""
    try:
        return ErrorCode(code)
    except ValueError:
        return None


class _Facts(NamedTuple):
    category: str
    retryable: Retryable
    backoff: Backoff


_NONE, _EXPONENTIAL, _RETRY_AFTER = Backoff.NONE, Backoff.EXPONENTIAL, Backoff.RETRY_AFTER

_FACTS: dict[ErrorCode, _Facts] = {
    ErrorCode.VALIDATION_ERROR: _Facts("validation", False, _NONE),
    ErrorCode.PAYLOAD_TOO_LARGE: _Facts("validation", False, _NONE),
    ErrorCode.ROUTING_ERROR: _Facts("routing", "maybe", _EXPONENTIAL),
    ErrorCode.CAPABILITY_NOT_FOUND: _Facts("routing", False, _NONE),
    ErrorCode.AGENT_ERROR: _Facts("agent", "maybe", _EXPONENTIAL),
    ErrorCode.AGENT_TIMEOUT: _Facts("agent", True, _EXPONENTIAL),
    ErrorCode.AGENT_UNAVAILABLE: _Facts("agent", True, _EXPONENTIAL),
    ErrorCode.INTERNAL_AGENT_ERROR: _Facts("agent", "maybe", _EXPONENTIAL),
    ErrorCode.TRANSPORT_ERROR: _Facts("transport", True, _EXPONENTIAL),
    ErrorCode.PROTOCOL_ERROR: _Facts("transport", False, _NONE),
    ErrorCode.UNAUTHORIZED: _Facts("security", False, _NONE),
    ErrorCode.RATE_LIMIT: _Facts("security", True, _RETRY_AFTER),
    ErrorCode.EMCL_FAILURE: _Facts("security", False, _NONE),
    ErrorCode.WORKFLOW_ABORTED: _Facts("internal", False, _NONE),
    ErrorCode.LEASE_LOST: _Facts("internal", False, _NONE),
    ErrorCode.POISON: _Facts("internal", False, _NONE),
    ErrorCode.STORAGE_FULL: _Facts("internal", True, _EXPONENTIAL),
    ErrorCode.SCHEDULE_INVALID: _Facts("validation", False, _NONE),
    ErrorCode.STEP_CONFLICT: _Facts("validation", False, _NONE),
    ErrorCode.KEY_REQUIRED: _Facts("validation", False, _NONE),
    ErrorCode.CHILD_FAILED: _Facts("agent", False, _NONE),
    ErrorCode.IDEMPOTENCY_CONFLICT: _Facts("validation", False, _NONE),
    ErrorCode.ACTIVITY_UNKNOWN: _Facts("agent", False, _NONE),
    ErrorCode.WORKER_DIED: _Facts("agent", True, _EXPONENTIAL),
    ErrorCode.NOT_REPLAYABLE: _Facts("validation", False, _NONE),
    ErrorCode.REPLAY_HASH_MISMATCH: _Facts("validation", False, _NONE),
}
