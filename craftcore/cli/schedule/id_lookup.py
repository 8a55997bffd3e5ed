"""Which schedule a person means."""

from __future__ import annotations

from craftcore.cli.lookup import single_match
from craftcore.cli.session import hint
from craftcore.errors import NotFound
from craftcore.schedules.model import Schedule
from craftcore.schedules.store import IDS_LIKE, ScheduleStore
from craftcore.schedules.validation import ID
from craftcore.storage.transaction import Reader


def resolve_schedule_id(reader: Reader, given: str, *, removed: bool = False) -> str:
    """Return the id that `given` is, or begins, as long as that is unambiguous. Raises NotFound.

    The whole id of a removed schedule never means another, also when `removed` ones are not looked for.
    """
    found = []
    if ID.fullmatch(given):
        found = reader.fetch_all(IDS_LIKE, given=given, end=given + "\x7f", removed=int(removed))
    if found and found[0]["id"] == given and found[0]["removed"] and not removed:
        raise NotFound(f"schedule {given} was removed; see: {hint('schedule', 'history', given)}")
    nobody = f"no schedule has the id {given!r:.80}; see: {hint('schedule', 'list')}"
    return single_match([row["id"] for row in found], given, nobody)


def find_schedule(reader: Reader, given: str, *, removed: bool = False) -> Schedule:
    """Return the schedule of that id. Raises NotFound."""
    schedule = ScheduleStore().get(reader, resolve_schedule_id(reader, given, removed=removed))
    assert schedule is not None, given
    return schedule
