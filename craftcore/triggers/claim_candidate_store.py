"""The only SQL of what a claim may take: due triggers by rank, within the limits of workflows."""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from craftcore.serialization.canonical import canonicalize
from craftcore.storage.transaction import Reader

CANDIDATES = """
SELECT due_at + ?4, priority, seq, lane
  FROM triggers
 WHERE status = 'PENDING'
   AND priority = ?1
   AND due_at <= ?2
   AND (lane IS NULL OR lane NOT IN (SELECT value FROM json_each(?3)))
 ORDER BY due_at, seq
"""

PRIORITIES = """
WITH RECURSIVE used (priority) AS (
    SELECT min(priority) FROM triggers WHERE status = 'PENDING'
     UNION ALL
    SELECT (SELECT min(priority) FROM triggers WHERE status = 'PENDING' AND priority > used.priority)
      FROM used
     WHERE used.priority IS NOT NULL
)
SELECT priority FROM used WHERE priority IS NOT NULL
"""

BEHIND = """
SELECT due_at + ?4, seq, lane, due_at, coalesce(workflow, '/' || source)
  FROM triggers
 WHERE status = 'PENDING'
   AND priority = ?1
   AND due_at <= ?2
   AND (due_at, seq) > (?7, ?8)
   AND (lane IS NULL OR lane NOT IN (SELECT value FROM json_each(?3)))
   AND coalesce(workflow, '/' || source) NOT IN (SELECT value FROM json_each(?5))
   AND source NOT IN (SELECT value FROM json_each(?6))
 ORDER BY due_at, seq
"""
"""The rows after a position: (?7, ?8). ?5 has the full workflows, ?6 the held sources. The index tells it all: what is
passed over costs an entry, not a row."""

BEHIND_BUT_SCHEDULES = BEHIND.replace(
    " ORDER BY",
    "   AND (schedule_id IS NULL OR NOT EXISTS (SELECT 1 FROM json_each(?9) WHERE value IN ('*', schedule_id)))\n"
    " ORDER BY",
)
"""Without those of held schedules, ?9, of which '*' is every one. It reads the rows, not the index alone: a hold lasts
hours, not months."""


HELD_UP = """
SELECT seq, lane, destination
  FROM (SELECT seq, lane, coalesce(workflow, '/' || source) AS destination,
               row_number() OVER (PARTITION BY lane ORDER BY due_at + ?2 * priority, priority, seq) AS place
          FROM triggers
         WHERE status = 'PENDING'
           AND due_at <= ?1
           AND lane IS NOT NULL
           AND source NOT IN (SELECT value FROM json_each(?4)))
 WHERE place = 1
   AND destination IN (SELECT value FROM json_each(?3))
"""
"""The lanes whose first trigger goes to a full workflow, with that trigger and its destination. ?4 has the held
sources, which hold up nothing."""


class Budget(NamedTuple):
    """`places`: how many more of each limited workflow. `by_source`: the limited workflow that takes a source's
    triggers which name none. `held`: the workflows that have no place because a person holds them, not by a limit."""

    places: Mapping[str, int]
    by_source: Mapping[str, str]
    held: Collection[str] = ()


NO_LIMITS = Budget({}, {})


class Held(NamedTuple):
    """Sources and schedules of which nothing is claimed. `sources`: as the text of a JSON list."""

    sources: str
    schedules: list[str]


class BudgetUse:
    """A budget while one look spends it.

    A trigger's destination is the workflow it names, else `/` and its source: no name of a workflow has a slash.
    """

    def __init__(self, budget: Budget) -> None:
        self._left = dict(budget.places)
        self._limited = {name: name for name in budget.places}
        self._limited.update((f"/{source}", name) for source, name in budget.by_source.items())
        self._workflows: dict[int, str] = {}
        self._held = budget.held

    @property
    def full(self) -> list[str]:
        """The destinations of which nothing more may be claimed."""
        return [destination for destination in self._limited if self.is_full(destination)]

    @property
    def at_limit(self) -> list[str]:
        """The destinations that are full by a limit, not by a hold."""
        return [destination for destination in self.full if self._limited[destination] not in self._held]

    def is_full(self, destination: str) -> bool:
        """Return whether nothing more may be claimed of what goes there."""
        workflow = self._limited.get(destination)
        return workflow is not None and self._left[workflow] <= 0

    def note(self, seq: int, destination: str) -> None:
        """Remember where a candidate goes, if that is limited."""
        if (workflow := self._limited.get(destination)) is not None:
            self._workflows[seq] = workflow

    def has_place(self, seq: int) -> bool:
        """Return whether this candidate may be claimed."""
        workflow = self._workflows.get(seq)
        return workflow is None or self._left[workflow] > 0

    def take(self, seq: int) -> None:
        """Note that this candidate is claimed."""
        if (workflow := self._workflows.get(seq)) is not None:
            self._left[workflow] -= 1


class CandidateStore:
    """PENDING rows of `triggers`, as the claim reads them."""

    def due(
        self,
        tx: Reader,
        now: float,
        *,
        weight: float,
        busy_lanes: Collection[str],
        limit: int,
        before: float | None,
        held_sources: Collection[str] = (),
        held_schedules: Collection[str] = (),
        budget: Budget | None = None,
    ) -> tuple[list[int], bool]:
        """Return the `seq` of the triggers to run next, best rank first, and whether more may be due. At most `limit`
        are taken, one of each lane, none of a busy lane, of a held source or schedule, and of limited workflows no more
        than the budget. A trigger that its limit holds back holds its lane.

        Rank is `due_at + weight * priority`, ties go by priority, then age; only ranks less than `before` count. It
        makes one index seek per priority in use. Rows that are not taken are not visited, but for index entries of a
        busy lane, a full workflow or a held source. Where a workflow is full and a trigger with a lane was found, the
        index entries of all due triggers are read once more.
        """
        held = Held(canonicalize(sorted(held_sources)), sorted(held_schedules))
        if budget is None and (held_sources or held_schedules):
            budget = NO_LIMITS
        lanes = set(busy_lanes)
        full_before = [] if budget is None else BudgetUse(budget).at_limit
        while True:
            spending = None if budget is None else BudgetUse(budget)
            taken, more = _look(tx, now, weight, lanes, limit, before, held, spending)
            found = set(taken.values()) - {None}
            if spending is None or not found or not (at_limit := spending.at_limit):
                return list(taken), more
            bound = (now, weight, canonicalize(at_limit), held.sources)
            waiting = {lane: place for seq, lane, place in tx.fetch_tuples(HELD_UP, bound) if seq not in taken}
            held_up = set(waiting)
            if not held_up & found:
                return list(taken), more
            # A trigger that must wait may have used the last place of another workflow: only the first one is certain.
            lanes |= {lane for lane, place in waiting.items() if place in full_before}
            lanes.add(next(lane for lane in taken.values() if lane is not None and lane in held_up))

    def next_due(self, tx: Reader, now: float) -> float | None:
        """Return when the next trigger that is not due yet becomes due; None when there is none."""
        moments = (
            tx.fetch_value(
                "SELECT min(due_at) FROM triggers WHERE status = 'PENDING' AND priority = :priority AND due_at > :now",
                priority=priority,
                now=now,
            )
            for (priority,) in list(tx.fetch_tuples(PRIORITIES))
        )
        return min((moment for moment in moments if moment is not None), default=None)


def _look(
    tx: Reader,
    now: float,
    weight: float,
    busy_lanes: Collection[str],
    limit: int,
    before: float | None,
    held: Held,
    spending: BudgetUse | None,
) -> tuple[dict[int, str | None], bool]:
    """Return the `seq` and the lane of each trigger to run next, as `due` does, but for lanes that are held up."""
    busy = canonicalize(sorted(busy_lanes))
    lines: list[Iterable[tuple[Any, ...]]] = []
    for (priority,) in list(tx.fetch_tuples(PRIORITIES)):
        asked = (priority, now, busy, weight * priority)
        if spending is None:
            lines.append(tx.fetch_tuples(CANDIDATES, asked))
        else:
            lines.append(select_within_limits(tx, asked, spending, held))
    taken: dict[int, str | None] = {}
    lanes: set[str] = set()
    skipped = 0
    for rank, _, seq, lane in heapq.merge(*lines):
        if spending is not None and not spending.has_place(seq):
            continue
        if (before is not None and rank >= before) or len(taken) == limit or skipped > 8 * limit:
            return taken, True
        if lane in lanes:
            skipped += 1
            continue
        taken[seq] = lane
        if lane:
            lanes.add(lane)
        if spending is not None:
            spending.take(seq)
    return taken, False


def select_within_limits(
    tx: Reader, asked: tuple[int, float, str, float], spending: BudgetUse, held: Held
) -> Iterator[tuple[float, int, int, str | None]]:
    """Yield the candidates of one priority, as CANDIDATES brings them. Once another workflow is full they are read
    again, from there on."""
    priority = asked[0]
    reached = (-math.inf, 0)
    statement, schedules = (BEHIND_BUT_SCHEDULES, (canonicalize(held.schedules),)) if held.schedules else (BEHIND, ())
    while True:
        bound = (*asked, canonicalize(spending.full), held.sources, *reached, *schedules)
        for rank, seq, lane, due_at, destination in tx.fetch_tuples(statement, bound):
            reached = (due_at, seq)
            if spending.is_full(destination):
                break
            spending.note(seq, destination)
            yield rank, priority, seq, lane
        else:
            return
