"""What goes, table by table: a look by any reader finds it, and a guarded batch takes what is still due then.

A look visits at most WINDOW rows and locks nothing. A batch is a rule over a transaction it is given; a kill after any
of them leaves a file in which nothing is half gone.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from craftcore.config import RetentionSettings
from craftcore.retention.account_store import OldAudit, OldOccurrences
from craftcore.retention.body_store import OldArguments, OldBodies
from craftcore.retention.epoch_store import OldEpochs
from craftcore.retention.horizons import Horizons, horizons
from craftcore.retention.model import Found, Taken
from craftcore.retention.record_store import Blocker, OldLooseRecords, OldRecords, blocker
from craftcore.retention.task_store import OldTasks
from craftcore.retention.trigger_store import OldTriggers
from craftcore.storage.transaction import Reader, Transaction

LONGEST_CATCH_UP = "SELECT coalesce(max(catch_up_window), 0.0) FROM schedules WHERE status <> 'REMOVED'"


class Old(Protocol):
    """One kind of rows. `find`: what is due after this number; `take`: of these, what is still due."""

    def find(self, tx: Reader, old: Horizons, after: int) -> Found: ...

    def take(self, tx: Transaction, old: Horizons, seqs: list[int]) -> Taken: ...


class Step(NamedTuple):
    """`name`: what it is about, for people."""

    name: str
    rows: Old


STEPS = (
    Step("triggers", OldTriggers()),
    Step("bodies of records", OldBodies()),
    Step("bodies of activities", OldArguments()),
    Step("records", OldRecords()),
    Step("records of no chain", OldLooseRecords()),
    Step("tasks", OldTasks()),
    Step("occurrences", OldOccurrences()),
    Step("operators' log", OldAudit()),
    Step("starts of the daemon", OldEpochs()),
)


class Retention:
    """The rules of one configuration."""

    def __init__(self, settings: RetentionSettings) -> None:
        self._settings = settings

    def horizons(self, tx: Reader, now: float) -> Horizons:
        """As they are now: no dedup key goes while a schedule may look back as far."""
        return horizons(self._settings, now, tx.value(LONGEST_CATCH_UP))

    def find(self, tx: Reader, step: Step, now: float, after: int = 0) -> Found:
        """What is due of this kind, from that number on."""
        return step.rows.find(tx, self.horizons(tx, now), after)

    def blocker(self, tx: Reader, now: float) -> Blocker | None:
        """The record that keeps old ones behind it in the chain; None: there is none."""
        return blocker(tx, self.horizons(tx, now))

    def due(self, tx: Reader, now: float) -> dict[str, int]:
        """How many rows of each kind would be taken now. Visits all that are old."""
        counts = {}
        for step in STEPS:
            count, after = 0, 0
            found: Found | None = None
            while found is None or found.after is not None:
                found = self.find(tx, step, now, after)
                count += len(found.seqs)
                after = found.after or 0
            counts[step.name] = count
        return counts

    def take(self, tx: Transaction, step: Step, seqs: list[int], now: float) -> Taken:
        """One batch: of these, what is due then, as far as it fits. `more`: look again where the last look began."""
        return step.rows.take(tx, self.horizons(tx, now), seqs)
