"""The events of a clock, in words. Pure."""

from __future__ import annotations

from craftcore.serialization.time_text import format_span

CLOCK_EVENTS = {
    "forward": "went forward by {}",
    "backward": "went back by {}",
    "suspend": "the machine slept for {}",
    "held": "was behind by {}: schedules were held",
    "caught up": "caught up: schedules go on",
    "trusted": "was said to be right: schedules go on",
}


def clock_event_text(kind: str, seconds: float) -> str:
    """Return `went back by 10 min`."""
    return CLOCK_EVENTS[kind].format(format_span(seconds))
