"""The live tasks that the app of this engine does not fit: judged once, at its start. Their turns are not entered.

The app cannot change while it runs, but for a workflow that is declared late: so what comes is judged again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from craftcore.engine.signature_check import misfit
from craftcore.log import get_logger
from craftcore.registry.registry import Registry
from craftcore.storage.transaction import Reader, Transaction
from craftcore.tasks.hold_store import HoldStore
from craftcore.tasks.holds import Holds, task_advanced_by
from craftcore.triggers.model import Claim

log = get_logger(__name__)

NAMED_MAX = 20
"""How many held tasks a start names in its log."""


def misfits(reader: Reader, app: Registry) -> dict[str, str]:
    """Return every live task that the app does not fit, and what does not."""
    reasons: dict[str, str] = {}
    for task in HoldStore().list_live(reader):
        if (wrong := misfit(task, app.workflows, app.actions)) is not None:
            reasons[task.id.decode(errors="backslashreplace")] = wrong
    return reasons


class HeldTasks:
    """For one engine. False when nothing is held, as almost always: then a start asks for nothing."""

    def __init__(self, app: Registry, holds: Holds) -> None:
        self._app = app
        self._holds = holds
        self._store = HoldStore()
        self._reasons: dict[str, str] = {}
        self._released: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._reasons)

    def judge(self, tx: Transaction) -> None:
        """Hold what does not fit, release what does; in the commit of the boot, after the resume contract."""
        self._reasons = misfits(tx, self._app)
        self._released = self._holds.hold_misfits(tx, self._reasons)

    def say(self) -> None:
        """Name them in the log."""
        for task_id, reason in list(self._reasons.items())[:NAMED_MAX]:
            log.warning("task.held", task=task_id, reason=reason)
        if self._reasons:
            kinds = Counter(self._reasons.values())
            advice = "start the code that they fit, or decide: craftcore task list --held, task retry, task cancel"
            log.warning("tasks.held", count=len(self._reasons), reasons=dict(kinds.most_common(5)), advice=advice)
        if self._released:
            log.info("tasks.released", count=len(self._released), reason="the code fits again")

    def select_startable(self, tx: Transaction, claims: Sequence[Claim]) -> list[Claim]:
        """Return the claims that may be started; those of a held task are put off."""
        return [claim for claim in claims if not self._put_off(tx, claim)]

    def _put_off(self, tx: Transaction, claim: Claim) -> bool:
        task_id = task_advanced_by(claim)
        if task_id is None or task_id not in self._reasons:
            return False
        if not self._store.is_held(tx, task_id):
            return False  # a person lets it try
        task = self._store.get_live(tx, task_id)
        reason = None if task is None else misfit(task, self._app.workflows, self._app.actions)
        if reason is None:
            self._holds.release(tx, task_id)
            return False
        return self._holds.put_off(tx, claim, task_id, reason)
