"""The size of what an entry sends, as it is sent: what the cluster takes in one message, and what is refused before."""

from __future__ import annotations

from craftcore.engine.workers.encoded import require_small
from craftcore.errors import ErrorCode, PayloadTooLarge
from craftcore.executions.responses import truncate_result
from craftcore.temporal.workflow.journal_messages import SENT_MAX_BYTES, JournalCall, measure_sent
from craftcore.temporal.workflow.messages import EntryEnd, EntryStart
from craftcore.temporal.workflow.rollover import size_of

RECORD_MAX_BYTES = 1_500_000
"""Bytes of one result."""

AROUND_MAX_BYTES = 2_000
"""Bytes that the event of a result has around it."""


def measure_call(call: JournalCall) -> int:
    """Return the bytes of a call as it is sent, beside its short fields."""
    outcome = "" if call.outcome is None else call.outcome.result_json or ""
    request = "" if call.intent is None else call.intent.request_json or ""
    payload = "" if call.start is None else call.start.payload_json
    return sum(map(measure_sent, (call.text, outcome, request, payload, call.payload_json)))


def require_sendable(text: str, limit: int, what: str) -> None:
    """Raise PayloadTooLarge for a result over the limit, or one that the cluster would refuse once it is there."""
    require_small(text, limit, what)
    if (size := measure_sent(text)) > SENT_MAX_BYTES - AROUND_MAX_BYTES:
        raise _make_refusal(what, size)


def require_sendable_call(call: JournalCall) -> None:
    """Raise PayloadTooLarge for a call that is too much for one update."""
    if (size := measure_call(call)) > SENT_MAX_BYTES:
        raise _make_refusal("a record", size)


def truncate_sent(result_json: str) -> str:
    """Return the result of a task, or a stub with its size and hash when it is too large for the cluster."""
    return truncate_result(result_json, RECORD_MAX_BYTES if measure_sent(result_json) <= SENT_MAX_BYTES else 0)


def refuse_large(end: EntryEnd, given: EntryStart) -> EntryEnd:
    """Return the end of an entry, or a failure when it is too large to be sent.

    The cluster would take it for a worker that has died. A state goes to the next entry, beside the trigger.
    """
    sizes = {"the state": measure_sent(end.state_json), "its wait": size_of(end.wait)}
    beside = size_of(given.start) if end.move == "continues" else 0
    if sum(sizes.values()) + beside <= SENT_MAX_BYTES:
        return end
    what = max(sizes, key=lambda each: sizes[each])
    code, refusal = ErrorCode.PAYLOAD_TOO_LARGE, _make_refusal(what, sizes[what], beside)
    return EntryEnd(status="FAILED", reason=code, error_code=code, error_message=refusal.message, steps=end.steps)


def _make_refusal(what: str, size: int, beside: int = 0) -> PayloadTooLarge:
    trigger = f", beside {beside:,} of its trigger" if beside else ""
    return PayloadTooLarge(
        f"{what} has {size:,} bytes as it is sent{trigger}; on a cluster the limit is {SENT_MAX_BYTES:,}: store what "
        "is large elsewhere and keep a reference"
    )
