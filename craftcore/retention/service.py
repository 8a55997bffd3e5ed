"""The removal, table by table: any reader finds the rows, and a guarded batch removes those that are still due.

A look visits at most WINDOW rows and locks nothing. A batch is a rule over a transaction it is given; a kill after any
of them leaves a file in which nothing is half gone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import NamedTuple, Protocol

from craftcore.config import RetentionSettings
from craftcore.retention import size_store
from craftcore.retention.body_store import OLD_ARGUMENTS, OLD_BODIES
from craftcore.retention.conversation_store import OLD_MESSAGES
from craftcore.retention.cutoffs import Cutoffs
from craftcore.retention.execution_store import OldLooseRecords, OldRecords, OldRetainedRecords
from craftcore.retention.history_store import OLD_OCCURRENCES, OldAudit, OldEpochs
from craftcore.retention.model import Found, Taken
from craftcore.retention.scan_store import LONGEST_CATCH_UP
from craftcore.retention.size_limit import DOWN_TO, UNLIMITED, Limit, Size, limit_of, size_of
from craftcore.retention.size_store import Statements, TableSizes, weigh
from craftcore.retention.task_store import OLD_TASKS
from craftcore.retention.trigger_store import OLD_TRIGGERS
from craftcore.retention.turn_store import OLD_ACTIVITIES, OLD_QUESTIONS, OLD_STREAMS, OLD_WAITS
from craftcore.storage.transaction import Reader, Transaction


class Old(Protocol):
    """One kind of rows. `find`: what is due after this number; `take`: of these, what is still due."""

    def find(self, tx: Reader, old: Cutoffs, after: int) -> Found: ...

    def take(self, tx: Transaction, old: Cutoffs, seqs: list[int]) -> Taken: ...


class Step(NamedTuple):
    """`name`: what it is about, for people. `weights`: what says how much of it there is."""

    name: str
    rows: Old
    weights: Statements


class Due(NamedTuple):
    """The rows that would be removed now, by kind and by table, with all that depends on them."""

    kinds: dict[str, int]
    weight: TableSizes


STEPS = (
    Step("triggers", OLD_TRIGGERS, size_store.OF_TRIGGERS),
    Step("bodies of records", OLD_BODIES, size_store.OF_BODIES),
    Step("bodies of activities", OLD_ARGUMENTS, size_store.OF_ARGUMENTS),
    Step("streams", OLD_STREAMS, size_store.OF_STREAMS),
    Step("records of ended turns", OldRetainedRecords(), size_store.OF_RECORDS),
    Step("records", OldRecords(), size_store.OF_RECORDS),
    Step("records of no chain", OldLooseRecords(), size_store.OF_RECORDS),
    Step("waits of ended turns", OLD_WAITS, size_store.OF_ENDED_WAITS),
    Step("activities of ended turns", OLD_ACTIVITIES, size_store.OF_ENDED_ACTS),
    Step("questions of live tasks", OLD_QUESTIONS, size_store.OF_ENDED_QUESTIONS),
    Step("tasks", OLD_TASKS, size_store.OF_TASKS),
    Step("messages of sessions", OLD_MESSAGES, size_store.OF_MESSAGES),
    Step("occurrences", OLD_OCCURRENCES, size_store.OF_OCCURRENCES),
    Step("operators' log", OldAudit(), size_store.OF_AUDIT),
    Step("starts of the daemon", OldEpochs(), size_store.OF_EPOCHS),
)


class Retention:
    """The rules of one configuration."""

    def __init__(self, settings: RetentionSettings, limit: Limit = UNLIMITED) -> None:
        self._settings = settings
        self._limit = limit

    def tighten(self, tx: Reader, now: float, *, beat: Callable[[], object] = lambda: None) -> Retention:
        """Return these rules, tightened as far as the size limit demands now. Reads the rows that would be removed."""
        size = self.size(tx, now)
        if not 0 < size.max_bytes < size.used_bytes:
            return self
        by_age = self.count_due(tx, now, beat=beat).weight.bytes.total()
        excess = size.used_bytes - round(DOWN_TO * size.max_bytes) - by_age
        if excess <= 0:
            return self
        return Retention(self._settings, limit_of(tx, self.find_cutoffs(tx, now), excess, beat))

    def size(self, tx: Reader, now: float) -> Size:
        """Return what the database holds, and how much it may."""
        return size_of(tx, self._settings, now)

    def find_cutoffs(self, tx: Reader, now: float) -> Cutoffs:
        """Return the current cutoffs: no dedup key is removed while a schedule may look back as far."""
        return self._limit.tighten(Cutoffs.from_settings(self._settings, now, tx.fetch_value(LONGEST_CATCH_UP)))

    def find(self, tx: Reader, step: Step, now: float, after: int = 0) -> Found:
        """Return what is due of this kind, from that number on."""
        return step.rows.find(tx, self.find_cutoffs(tx, now), after)

    def count_due(self, tx: Reader, now: float, *, beat: Callable[[], object] = lambda: None) -> Due:
        """Return what would be taken now. Visits all that is old, and calls `beat` now and then."""
        due = Due({}, TableSizes(Counter(), Counter()))
        old = self.find_cutoffs(tx, now)
        for step in STEPS:
            due.kinds[step.name] = 0
            after: int | None = 0
            while after is not None:
                found = step.rows.find(tx, old, after)
                due.kinds[step.name] += len(found.seqs)
                due.weight.add(weigh(tx, step.weights, old, found))
                after = found.after
                beat()
        return due

    def take_weighed(self, tx: Transaction, step: Step, found: Found, now: float) -> tuple[Taken, TableSizes]:
        """Remove one batch. Return what was removed."""
        old = self.find_cutoffs(tx, now)
        before = weigh(tx, step.weights, old, found)
        taken = step.rows.take(tx, old, found.seqs)
        before.subtract(weigh(tx, step.weights, old, found))
        return taken, before

    def take(self, tx: Transaction, step: Step, seqs: list[int], now: float) -> Taken:
        """Remove one batch of those that are due then. `more`: search again where the last search began."""
        return step.rows.take(tx, self.find_cutoffs(tx, now), seqs)
