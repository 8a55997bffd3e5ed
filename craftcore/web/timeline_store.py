"""The SQL of the timeline: what comes within a day, a bounded number of each kind, by indexes of what is live."""

from __future__ import annotations

import heapq
from functools import lru_cache
from itertools import islice
from math import inf
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from craftcore.schedules.store import schedule_of
from craftcore.storage.damaged_rows import Damaged, list_damaged, omit_damaged, read_rows
from craftcore.storage.transaction import Reader, Row
from craftcore.triggers.claim_candidate_store import PRIORITIES
from craftcore.web.timeline import (
    DAY,
    SLOT,
    SPAN,
    Band,
    Entry,
    Lane,
    Timeline,
    expand_schedule,
    make_lane,
    make_timeline,
    page_address,
)

READ = 200
"""Rows of each kind that are read."""

EXPANDED_MAX = 512
"""Schedules whose occurrences are kept: those of two timelines."""

SCHEDULES = """
SELECT *
  FROM schedules INDEXED BY schedules_next
 WHERE next_at IS NOT NULL
   AND next_at <= :until
 ORDER BY next_at
 LIMIT :limit
"""
TRIGGERS = """
SELECT id, due_at, workflow, source, task_id
  FROM triggers INDEXED BY triggers_pending
 WHERE status = 'PENDING'
   AND priority = :priority
   AND due_at > :now
   AND due_at <= :until
 ORDER BY due_at, seq
 LIMIT :limit
"""
NEXT_SCHEDULES = """
SELECT id, next_at
  FROM schedules INDEXED BY schedules_next
 WHERE next_at IS NOT NULL
   AND next_at > :now
 ORDER BY next_at
 LIMIT :limit
"""
TIMER = "SELECT seq, workflow FROM tasks WHERE id = :id AND trigger_id = :trigger_id AND status = 'WAITING'"
WAITS = "SELECT seq, name, kind, event, due_at FROM waits WHERE task_seq = :seq AND status = 'WAITING'"
QUESTION = "SELECT id FROM questions WHERE task_seq = :seq AND status = 'OPEN' AND wait_seq = :wait_seq"
DEADLINES = """
SELECT id, workflow, deadline_at
  FROM (SELECT id, workflow, deadline_at FROM tasks WHERE status = 'RUNNING' ORDER BY seq DESC LIMIT :looked)
 WHERE deadline_at > :now
   AND deadline_at <= :until
 ORDER BY deadline_at
 LIMIT :limit
"""
SOON = 1.0
"""Seconds. A trigger that is due within them is not shown: it may have been emitted after `now` was read."""

LOOKED = 1000
"""The newest running tasks whose deadlines are looked at."""

AHEAD = """
SELECT rowid, updated_at, next_at
  FROM schedules INDEXED BY schedules_next
 WHERE next_at IS NOT NULL
   AND next_at <= ?1
 ORDER BY next_at
 LIMIT ?2
"""
"""Values of which one changes with each change of one of these schedules."""


class ScheduleLane(NamedTuple):
    """The lane of the schedules, those that cannot be read, and the rows of AHEAD that it was made from."""

    begin: float
    ahead: list[tuple[Any, ...]]
    lane: Lane
    damaged: list[Damaged]


class TimelineStore:
    """Reads what comes, for all viewers of one process, and keeps the lane of schedules that did not change. Threads
    may share it."""

    def __init__(self) -> None:
        self._kept: ScheduleLane | None = None

    def read(self, tx: Reader, now: float) -> tuple[Timeline, list[Damaged]]:
        """Return the timeline, which begins with the quarter of an hour of `now`, and the schedules that cannot be
        read. Within that quarter it changes only with what comes.
        """
        begin = now // SLOT * SLOT
        schedules = self._schedule_lane(tx, begin)
        return make_timeline(begin, [schedules.lane, *self._trigger_lanes(tx, begin, now)]), schedules.damaged

    def list_next(self, tx: Reader, now: float, limit: int) -> list[Entry]:
        """Return what comes first, of schedules and triggers: each schedule once, and nothing that is late."""
        schedules = read_rows(tx, NEXT_SCHEDULES, _read_next, now=now, limit=limit)
        triggers = (self._enter_trigger(tx, row)[1] for row in self._list_triggers(tx, now, inf, limit))
        found = [*omit_damaged(schedules), *triggers]
        return sorted(found, key=attrgetter("at"))[:limit]

    def _schedule_lane(self, tx: Reader, begin: float) -> ScheduleLane:
        ahead, kept = list(tx.fetch_tuples(AHEAD, (begin + SPAN, READ))), self._kept
        if kept is not None and (kept.begin, kept.ahead) == (begin, ahead):
            return kept
        found = read_rows(
            tx, SCHEDULES, lambda row: _expand_row(tuple(row.items()), begin), until=begin + SPAN, limit=READ
        )
        whole: list[tuple[Entry, ...] | Band] = omit_damaged(found)
        entries = [entry for one in whole if not isinstance(one, Band) for entry in one]
        bands = [one for one in whole if isinstance(one, Band)]
        lane = make_lane("schedules", entries, begin, bands=bands, more=len(found) == READ)
        made = ScheduleLane(begin, ahead, lane, list_damaged(found))
        self._kept = None if made.damaged else made  # a repair by hand may leave these columns as they are
        return made

    def _trigger_lanes(self, tx: Reader, begin: float, now: float) -> tuple[Lane, Lane]:
        """Return the triggers, and apart from them those that end a wait, with the deadlines of running tasks."""
        rows = self._list_triggers(tx, now, now + DAY, READ + 1)
        more = len(rows) > READ
        triggers: list[Entry] = []
        ends = tx.fetch_all(DEADLINES, now=now, until=now + DAY, looked=LOOKED, limit=READ)
        waits = [_deadline(row) for row in ends]
        for row in rows[:READ]:
            is_wait, entry = self._enter_trigger(tx, row)
            (waits if is_wait else triggers).append(entry)
        return make_lane("triggers", triggers, begin, more=more), make_lane("waits", waits, begin, more=more)

    def _list_triggers(self, tx: Reader, now: float, until: float, limit: int) -> list[Row]:
        """Return the first ones due, at most `limit`."""
        lines = [
            tx.fetch_all(TRIGGERS, priority=priority, now=now + SOON, until=until, limit=limit)
            for (priority,) in list(tx.fetch_tuples(PRIORITIES))
        ]
        return list(islice(heapq.merge(*lines, key=itemgetter("due_at")), limit))

    def _enter_trigger(self, tx: Reader, row: Row) -> tuple[bool, Entry]:
        """Return whether a trigger ends a wait, and its entry."""
        wait = None if row["task_id"] is None else self._find_wait(tx, row)
        if wait is not None:
            return True, wait
        name = str(row["workflow"] or row["source"])
        return False, Entry(at=row["due_at"], kind="trigger", name=name, href=page_address("triggers", row["id"]))

    def _find_wait(self, tx: Reader, row: Row) -> Entry | None:
        """Return the wait that a trigger ends as its timer; None for any other trigger of a task."""
        task = tx.fetch_one(TIMER, id=row["task_id"], trigger_id=row["id"])
        if task is None:
            return None
        waits = [one for one in tx.fetch_all(WAITS, seq=task["seq"]) if one["due_at"] is not None]
        first = min(waits, key=itemgetter("due_at"), default=None)
        href = page_address("tasks", row["task_id"])
        if first is None or first["due_at"] > row["due_at"]:
            return Entry(at=row["due_at"], kind="deadline", name=task["workflow"], href=href)
        if first["kind"] == "question":
            question = tx.fetch_value(QUESTION, seq=task["seq"], wait_seq=first["seq"])
            href = href if question is None else page_address("q", question)
        what = first["event"] if first["kind"] == "event" else first["name"]
        return Entry(at=row["due_at"], kind=first["kind"], name=f"{task['workflow']}: {what}", href=href)


@lru_cache(maxsize=EXPANDED_MAX)
def _expand_row(row: tuple[tuple[str, Any], ...], now: float) -> tuple[Entry, ...] | Band:
    """Return the occurrences of the schedule of a row. They follow from it and the begin, so they are kept."""
    return expand_schedule(schedule_of(dict(row)), now)


def _read_next(row: Row) -> Entry:
    return Entry(at=row["next_at"], kind="schedule", name=row["id"], href=page_address("schedules", row["id"]))


def _deadline(row: Row) -> Entry:
    return Entry(at=row["deadline_at"], kind="deadline", name=row["workflow"], href=page_address("tasks", row["id"]))
