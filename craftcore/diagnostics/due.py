"""The triggers that are due and do not run, each with the reasons why."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from craftcore.diagnostics.finding import Finding
from craftcore.diagnostics.reasons.trigger_reasons import list_reasons
from craftcore.services import Services
from craftcore.storage.damaged_rows import Damaged, try_read
from craftcore.storage.transaction import Reader
from craftcore.triggers.model import Trigger
from craftcore.triggers.store import TriggerStore


class Due(NamedTuple):
    """One trigger that waits although it is due."""

    trigger: Trigger
    reasons: list[Finding]


def explain_due(
    reader: Reader, services: Services, ids: Sequence[str], now: float, *, daemon_runs: bool, booting: bool
) -> list[Due | Damaged]:
    """Return these triggers with their reasons, without those that are settled or gone by now."""
    weight = services.config.triggers.priority_weight

    def explain(id: str) -> Due | None:
        trigger = TriggerStore().get(reader, id)
        if trigger is None or trigger.status.is_settled:
            return None
        reasons = list_reasons(reader, trigger, now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting)
        return Due(trigger, reasons)

    found = [try_read(id, partial(explain, id)) for id in ids]
    return [one for one in found if one is not None]
