"""Work that was interrupted for long: it goes on only after a person agrees, as on one machine."""

from __future__ import annotations

from craftcore.registry.registry import Registry
from craftcore.tasks.model import NewWait, QuestionKind, WaitKind
from craftcore.tasks.resume import make_stale_question
from craftcore.temporal.entries.entry_runner import make_entry
from craftcore.temporal.workflow.messages import EntryEnd, EntryStart


def ask_stale(app: Registry, given: EntryStart, max_age: float, now: float) -> EntryEnd | None:
    """Return the end of an entry whose task was interrupted longer ago than `max_age` seconds: it asks a person. None:
    it goes on. A workflow without a context has nothing on record, and begins again."""
    if given.touched_at is None or now - given.touched_at <= max_age or make_entry(app, given) is None:
        return None
    wait = NewWait(
        name=f"{QuestionKind.STALE}:{given.token}",
        kind=WaitKind.QUESTION,
        question=make_stale_question(given.task, now - given.touched_at),
    )
    return EntryEnd(status="DONE", reason="stale: waits for an answer", move="suspends", wait=wait, is_task=True)
