"""From which moments on rows are old enough to go. Pure."""

from __future__ import annotations

from typing import NamedTuple, Self

from craftcore.config import RetentionSettings

NEVER = float("-inf")
"""The cutoff of what is kept for ever: nothing is older."""

AFTER_CATCH_UP = 7 * 86_400.0
"""Seconds by which a dedup key outlives the longest time that a schedule looks back."""


class Cutoffs(NamedTuple):
    """Rows that ended at or before these moments may be removed; NEVER: none. A row later than `now` was stamped by a
    clock that was ahead. It does not show the age of its neighbours."""

    triggers: float
    dead: float
    keys: float
    bodies: float
    history: float
    audit: float
    messages: float
    now: float

    @classmethod
    def from_settings(cls, settings: RetentionSettings, now: float, longest_catch_up: float) -> Self:
        """Return the cutoffs at this moment. `longest_catch_up`: seconds, of all schedules.

        >>> Cutoffs.from_settings(RetentionSettings(triggers=60, keys=60, dead=0), 1_000_000.0, 86_400.0)[:3]
        (999940.0, -inf, 308800.0)
        """
        keys = settings.keys and max(settings.keys, longest_catch_up + AFTER_CATCH_UP)
        ages = (
            settings.triggers,
            settings.dead,
            keys,
            settings.bodies,
            settings.history,
            settings.audit,
            settings.messages,
        )
        return cls._make([*(now - seconds if seconds else NEVER for seconds in ages), now])
