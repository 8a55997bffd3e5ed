"""What a rate has to know after a restart: which starts of earlier epochs still count."""

from __future__ import annotations

import structlog

from craftcore.clock import Clock
from craftcore.engine.limits import Limits
from craftcore.executions.starts_store import StartsStore
from craftcore.storage.transaction import Reader

log = structlog.get_logger(__name__)


def recall(reader: Reader, limits: Limits, clock: Clock) -> None:
    """Remember which starts of earlier epochs still count against a rate."""
    now = clock.now()
    longest = max(rate.seconds for rate in limits.rates.values())
    starts, are_all = StartsStore().since(reader, limits.rates, now - longest, now)
    if not are_all:
        log.warning("limits.recalled_in_part", starts=len(starts), reason="too many records since then")
    booted = now - clock.boot_time()
    limits.remember((workflow, at - booted) for workflow, at in starts)
