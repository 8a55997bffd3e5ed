"""The lines of `craftcore status` on schedules: how many there are, and why they do not fire."""

from __future__ import annotations

from typing import Any

from craftcore.cli.output import Output, add_iso_times
from craftcore.cli.session import hint
from craftcore.schedules.clock_event_store import last_clock_event
from craftcore.schedules.model import ScheduleStatus
from craftcore.schedules.store import ScheduleStore
from craftcore.serialization.plurals import format_count
from craftcore.serialization.time_text import clock_time, format_span, relative_text
from craftcore.storage.facts import get_fact, number
from craftcore.storage.transaction import Reader

COUNTS = "SELECT status, count(*) FROM schedules GROUP BY status"
NEXT = "SELECT id, next_at FROM schedules WHERE next_at IS NOT NULL ORDER BY next_at, id LIMIT 1"
TOLD = (ScheduleStatus.ACTIVE, ScheduleStatus.PAUSED, ScheduleStatus.DISABLED, ScheduleStatus.FINISHED)
EVENT_WORTH_SAYING = 7 * 86_400.0
NAMES_SHOWN = 5
EVENTS = {
    "forward": "went forward by {}",
    "backward": "went back by {}",
    "suspend": "the machine slept for {}",
    "held": "was behind by {}: schedules were held",
    "caught up": "caught up: schedules go on",
    "trusted": "was said to be right: schedules go on",
}


def read_schedules(reader: Reader, now: float) -> dict[str, Any]:
    """Return the keys `schedules`, `safe_mode` and `clock` of the document."""
    counts = dict(tuple(row) for row in reader.fetch_tuples(COUNTS))
    following = reader.fetch_one(NEXT) or {"id": None, "next_at": None}
    until = number(reader, "clock_held")
    event = last_clock_event(reader)
    held_until = None if until is None or until <= now else until
    return {
        "schedules": add_iso_times(
            {
                **{status.value.lower(): counts.get(status, 0) for status in TOLD},
                "next_id": following["id"],
                "next_at": following["next_at"],
                "ahead": [schedule.id for schedule in ScheduleStore().list_ahead(reader, now)],
            }
        ),
        "safe_mode": get_fact(reader, "safe_mode"),
        "clock": add_iso_times(
            {"held_until": held_until, "last_event": None if event is None else add_iso_times(event)}
        ),
    }


def schedules_alarm(found: dict[str, Any]) -> str | None:
    """Return why schedules wait for a person, and what to do; None when they do not."""
    if (until := found["clock"]["held_until"]) is not None:
        return _clock_held(until, found["now"])
    if ahead := found["schedules"]["ahead"]:
        names = ", ".join(ahead[:NAMES_SHOWN]) + (", …" if len(ahead) > NAMES_SHOWN else "")
        wait = format_count(len(ahead), "schedule waits", "schedules wait")
        return f"{wait}, ahead of the clock: {names}. If it is right: {hint('schedule', 'reanchor')}"
    return None


def schedules_held_reason(reader: Reader, now: float) -> str | None:
    """Return why no schedule fires, whatever its row says, and what to do; None when nothing holds them."""
    if held := get_fact(reader, "held"):
        return f"everything is held: {held}. To let it go on: {hint('release')}"
    if safe_mode := get_fact(reader, "safe_mode"):
        return f"safe mode, no schedule fires: {safe_mode}. Find out why it dies, then: {hint('release')}"
    until = number(reader, "clock_held")
    return None if until is None or until <= now else _clock_held(until, now)


def _clock_held(until: float, now: float) -> str:
    shown = f"the clock has shown {clock_time(until)} here and now shows {clock_time(now)}"
    return f"schedules are held: {shown}. Set it, or if it is right: {hint('schedule', 'trust-clock')}"


def say_schedules(out: Output, found: dict[str, Any]) -> None:
    """The lines of `status` about schedules; none where there are no schedules."""
    schedules, now = found["schedules"], found["now"]
    counted = [f"{schedules[name]:,} {name}" for name in map(str.lower, TOLD) if schedules[name]]
    if counted:
        text = ", ".join(counted)
        if schedules["next_at"] is not None:
            text += f"; next {schedules['next_id']} at {clock_time(schedules['next_at'])}"
            text += f", {relative_text(schedules['next_at'], now)}"
        out.line(f"schedules {text}", style="warn" if schedules["disabled"] else "")
    event = found["clock"]["last_event"]
    if event is not None and event["at"] > now - EVENT_WORTH_SAYING:
        what = EVENTS[event["kind"]].format(format_span(event["seconds"]))
        out.line(f"clock     {clock_time(event['at'])}: {what}")
