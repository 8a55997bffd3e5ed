"""The moments of a spec, where they were given as texts such as `tomorrow 9am`."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

from craftcore.triggers.model import TriggerSpec
from craftcore.triggers.validation import ReadMoment

MOMENT_TEXTS = (str, timedelta)
"""Moments of these types are read with the time zone of the machine."""


def with_moments(spec: TriggerSpec, now: float, zone: str | None, read_moment: ReadMoment) -> TriggerSpec:
    """Return the spec with moments in place of their texts. A time from now is a delay, which follows a clock that is
    set back. `zone`: of the machine. Raises InvalidInput."""
    if spec.expires_at is not None:
        spec = replace(spec, expires_at=read_moment("expires_at", spec.expires_at, now, zone).at)
    if spec.at is None:
        return spec
    given = read_moment("at", spec.at, now, zone)
    if given.is_delay and spec.delay is None:
        return replace(spec, at=None, delay=given.at - now)
    return replace(spec, at=given.at)
