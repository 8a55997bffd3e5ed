"""The rollover of a task: when it goes on in the next run of its workflow, and what it carries to that run."""

from __future__ import annotations

import zlib
from typing import Any

from temporalio import workflow
from temporalio.converter import PayloadConverter

from craftcore.errors import PayloadTooLarge
from craftcore.temporal.workflow.messages import TaskStart, TaskState

CARRIED_MAX_BYTES = 1_950_000
"""Bytes of all arguments of a run: the server takes 2 MB. A large state is compressed."""

PARTS = {
    "memo": "the records of its turn",
    "kept_waits": "the waits of its turn that are over",
    "mails": "its unread signals",
    "acts": "its irreversible actions",
    "child_ends": "the results of its children",
    "task": "its state and its trigger",
}
"""The fields of a state that may be large, and what a message calls them."""

UPDATES_SPARE = 400
"""How many updates more a run takes, while its state is too large to be carried. The server takes 2,000 in a run."""

EVENTS_MAX = 45_000
HISTORY_MAX_BYTES = 40_000_000
"""The same for its history. The server ends a run at 51,200 events and at 50 MB."""

MEASURED_EVERY = 50
"""Updates between two looks at a state that was too large."""


class RunLimits:
    """Counts what a run has taken of its limits."""

    def __init__(self, start: TaskStart) -> None:
        self._start = start
        self._updates_max = start.run_updates_max
        self._measured_at = -MEASURED_EVERY
        self.updates = 0
        self.children = 0
        """Those that it has started and that have not ended."""

    def is_due(self, state: TaskState) -> bool:
        """Return whether the task has to go on in its next run. One whose state is too large for that goes on in this
        run as long as the server allows it."""
        if self.children >= self._start.run_children_max:
            return True
        info = workflow.info()
        if self.updates < self._updates_max and not info.is_continue_as_new_suggested():
            return False
        if (
            self.updates >= self._updates_max + UPDATES_SPARE
            or info.get_current_history_length() >= EVENTS_MAX
            or info.get_current_history_size() >= HISTORY_MAX_BYTES
        ):
            return True
        if self.updates - self._measured_at < MEASURED_EVERY:
            return False
        if pack(self._start, state) is not None:
            return True
        self._measured_at = self.updates
        return False


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
