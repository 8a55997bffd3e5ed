"""Limits at a start: the starts of earlier epochs, and what was put off by a limit that is not declared any more."""

from __future__ import annotations

from collections.abc import Iterable

from craftcore.clock import Clock
from craftcore.engine.limits.workflow_limits import Limits
from craftcore.executions.starts_store import StartsStore
from craftcore.log import get_logger
from craftcore.registry.workflow import Workflow
from craftcore.storage.transaction import Reader, Transaction
from craftcore.triggers.limit_wait_store import LimitWaitStore

log = get_logger(__name__)


def restore_rate_history(reader: Reader, limits: Limits, clock: Clock) -> None:
    """Remember which starts of earlier epochs still count against a rate."""
    now = clock.now()
    booted = now - clock.boot_time()
    if limits.rates:
        longest = max(rate.seconds for rate in limits.rates.values())
        starts, are_all = StartsStore().list_since(reader, limits.rates, now - longest, now)
        _warn_of_rest(len(starts), are_all)
        limits.remember((workflow, at - booted) for workflow, at in starts)
    if keyed := limits.keys.rates:
        longest = max(limit.seconds for limit in keyed.values())
        keyed_starts, are_all = StartsStore().list_keyed_since(reader, keyed, now - longest, now)
        _warn_of_rest(len(keyed_starts), are_all)
        limits.keys.remember((key, at - booted) for key, at in keyed_starts)


def _warn_of_rest(count: int, are_all: bool) -> None:
    if not are_all:
        log.warning("limits.recalled_in_part", starts=count, reason="too many records since then")


def put_back_undeclared(tx: Transaction, workflows: Iterable[Workflow]) -> int:
    """Boot: put back the triggers that a limit put off which is not declared any more. Return their number. The first
    look puts back the others as far as there are places."""
    declared = [(workflow.name, workflow.limit_by) for workflow in workflows if workflow.limit_by is not None]
    return LimitWaitStore().put_back_others(tx, declared)
