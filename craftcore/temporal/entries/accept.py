"""The check of what is emitted, before it is sent to a cluster."""

from __future__ import annotations

from collections.abc import Callable

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.registry.registry import Registry
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.triggers.model import NewTrigger, TriggerSpec
from craftcore.triggers.service import TriggerService


def make_accept(app: Registry | None, clock: SystemClock, config: Config) -> Callable[[TriggerSpec], NewTrigger]:
    """Return a function that refuses a spec that the app could only fail. Without an app it refuses less."""
    triggers = TriggerService(clock, read_moment, payload_max_bytes=config.triggers.payload_max_bytes)

    def accept(spec: TriggerSpec) -> NewTrigger:
        row = triggers.accept(spec)
        if app is not None:
            app.check(row)
        return row

    return accept
