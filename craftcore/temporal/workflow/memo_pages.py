"""The records of a turn for its entry: in the input of the activity, or in pages when they are large."""

from __future__ import annotations

from craftcore.tasks.model import Wait
from craftcore.temporal.workflow.carried import size_of
from craftcore.temporal.workflow.messages import MemoPage, TaskState

INLINE_MAX_BYTES = 32_768
PAGE_MAX_BYTES = 1_000_000
"""Bytes of a page, unless one record alone has more."""


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
