"""The excerpt of a payload: masked as all payloads are, and short enough for a row of a table."""

from __future__ import annotations

from typing import Any

from craftcore.serialization.display import shorten
from craftcore.web.mask import MASKED, is_secret, masked_text
from craftcore.web.visit import Visit

EXCERPT_MAX = 240
"""Characters of an excerpt."""

VALUES = ("result", "data", "value", "question", "error")
"""The parts of an event's payload that a label leaves out and a reader wants to see; the first that it has."""


def make_excerpt(visit: Visit, payload: Any) -> str | None:
    """Return a payload in one short line; None where it is empty, or is not shown to this person."""
    if payload in (None, "", {}) or not visit.shows_payloads:
        return None
    return shorten(masked_text(payload, visit.settings.mask), EXCERPT_MAX)


def excerpt_of_event(visit: Visit, payload: Any) -> str | None:
    """Return the excerpt of what an event tells beside its label. A payload other than an object is shown as it is."""
    if not isinstance(payload, dict):
        return make_excerpt(visit, payload)
    name = next((name for name in VALUES if payload.get(name) is not None), None)
    if name is None:
        return None
    if is_secret(name, visit.settings.mask):
        return MASKED if visit.shows_payloads else None
    return make_excerpt(visit, payload[name])
