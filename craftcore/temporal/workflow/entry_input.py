"""The input of an entry: what its activity receives of the task, and the pages of what is too large for that."""

from __future__ import annotations

from craftcore.errors import PayloadTooLarge
from craftcore.tasks.model import Wait
from craftcore.temporal.workflow.messages import EntryStart, MemoPage, TaskStart, TaskState
from craftcore.temporal.workflow.rollover import size_of

ENTRY_MAX_BYTES = 2_000_000
"""Bytes of the input of an entry. The server takes 2,097,152, and a converter of the user's own may add some. A larger
one would block its task for good."""

UNMEASURED_MAX = 100_000
"""Characters that are few enough at any length of their escapes."""

INLINE_MAX_BYTES = 32_768
PAGE_MAX_BYTES = 1_000_000
"""Bytes of a page, unless one record alone has more."""


def make_entry(start: TaskStart, state: TaskState, now: float) -> EntryStart:
    """Return the input of the next entry of a task, whose number it has already."""
    is_paged = not is_inline(state)
    return EntryStart(
        token=state.entries,
        task=state.task,
        start=start,
        resume=state.resume,
        attempts=state.attempts,
        starts=state.starts,
        crashes=state.crashes,
        now=now,
        first_at=now if state.first_at is None else state.first_at,
        memo={} if is_paged else state.memo,
        waits=[] if is_paged else state.kept_waits,
        attempt_entry=state.attempt_entry,
        handed_back_since=state.handed_back_since,
        limits=state.limits,
        gates=state.gates,
        touched_at=state.touched_at if state.is_interrupted else None,
        is_paged=is_paged,
    )


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


def is_inline(state: TaskState) -> bool:
    """Return whether the memo and the waits of the turn are small enough for the input of an activity."""
    size = 0
    for item in (*state.memo.items(), *state.kept_waits):
        size += size_of(item)
        if size > INLINE_MAX_BYTES:
            return False
    return True


def make_page(state: TaskState, first: int) -> MemoPage:
    """Return the page that begins with this item: the memo is counted first, then the waits."""
    page = MemoPage(memo={}, waits=[], following=None)
    size = 0
    items: list[tuple[str, str] | Wait] = [*state.memo.items(), *state.kept_waits]
    for number, item in enumerate(items[first:], start=first):
        size += size_of(item)
        if size > PAGE_MAX_BYTES and number > first:
            return MemoPage(memo=page.memo, waits=page.waits, following=number)
        if isinstance(item, tuple):
            page.memo[item[0]] = item[1]
        else:
            page.waits.append(item)
    return page
