"""The state of a task on its way to its next run. The server limits all arguments of a run together to 2 MB, so a large
state is compressed."""

from __future__ import annotations

import zlib
from typing import Any

from temporalio.converter import PayloadConverter

from craftcore.errors import PayloadTooLarge
from craftcore.temporal.workflow.messages import TaskStart, TaskState

CARRIED_MAX_BYTES = 1_950_000
"""Bytes of all arguments of a run."""

PARTS = {
    "memo": "the records of its turn",
    "kept_waits": "the waits of its turn that are over",
    "mails": "its unread signals",
    "acts": "its irreversible actions",
    "child_ends": "the results of its children",
    "task": "its state and its trigger",
}
"""The fields of a state that may be large, and what a message calls them."""


def pack(start: TaskStart, state: TaskState) -> list[Any] | None:
    """Return the arguments of the next run. None when they are too much."""
    left = CARRIED_MAX_BYTES - size_of(start)
    text = PayloadConverter.default.to_payload(state).data
    if len(text) <= left:
        return [start, state, None]
    packed = zlib.compress(text)
    return [start, None, packed] if len(packed) <= left else None


def unpack(state: TaskState | None, packed: bytes | None) -> TaskState | None:
    """Return the state that was packed; None in the first run."""
    if packed is None:
        return state
    converter = PayloadConverter.default
    payload = converter.to_payload(None)
    payload.metadata["encoding"] = b"json/plain"
    payload.data = zlib.decompress(packed)
    found: TaskState = converter.from_payload(payload, TaskState)
    return found


def make_refusal(state: TaskState) -> PayloadTooLarge:
    """Return the refusal of a state that cannot be carried. It names the largest part."""
    sizes = {part: size_of(getattr(state, part)) for part in PARTS}
    part = max(PARTS, key=lambda each: sizes[each])
    return PayloadTooLarge(
        f"the task carries {sum(sizes.values()):,} bytes to its next run; the limit is {CARRIED_MAX_BYTES:,} after "
        f"compression. {PARTS[part].capitalize()} are {sizes[part]:,}: store what is large elsewhere"
    )


def size_of(value: Any) -> int:
    """Return the bytes of a value as it is sent."""
    return len(PayloadConverter.default.to_payload(value).data)
