"""The size of what an entry is given, as it is sent: one over the limit of the server would block its task for good."""

from __future__ import annotations

from craftcore.errors import PayloadTooLarge
from craftcore.temporal.workflow.carried import size_of
from craftcore.temporal.workflow.messages import EntryStart

ENTRY_MAX_BYTES = 2_000_000
"""Bytes of the input of an entry. The server takes 2,097,152, and a converter of the user's own may add some."""

UNMEASURED_MAX = 100_000
"""Characters that are few enough at any length of their escapes."""


def find_excess(given: EntryStart) -> PayloadTooLarge | None:
    """Return the refusal of an input that is too large, which names its largest part. None: it can be sent."""
    parts = {
        "its state": given.task.state_json,
        "its trigger": given.start.payload_json,
        "its progress": given.task.progress_json or "",
    }
    if sum(map(len, parts.values())) <= UNMEASURED_MAX or (size := size_of(given)) <= ENTRY_MAX_BYTES:
        return None
    sizes = {part: size_of(text) for part, text in parts.items()}
    part = max(parts, key=lambda each: sizes[each])
    return PayloadTooLarge(
        f"the task gives {size:,} bytes to its next entry, as they are sent; the limit is {ENTRY_MAX_BYTES:,}. "
        f"{part.capitalize()} has {sizes[part]:,}: store what is large elsewhere"
    )
