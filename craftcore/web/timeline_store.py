"""The SQL of the timeline: what comes within a day, a bounded number of each kind, by indexes of what is live."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from operator import itemgetter

from craftcore.schedules.model import Schedule
from craftcore.schedules.store import schedule_of
from craftcore.storage.damaged_rows import Damaged, read_rows
from craftcore.storage.transaction import Reader, Row
from craftcore.triggers.claim_candidate_store import PRIORITIES
from craftcore.web.timeline import DAY, Entry, Lane, Timeline, expand_schedules, make_lane, make_timeline, page_address

READ = 200
"""Rows of each kind that are read."""

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
LOOKED = 1000
"""The newest running tasks whose deadlines are looked at."""


class TimelineStore:
    """Reads what comes. Holds nothing."""

    def read(self, tx: Reader, now: float) -> tuple[Timeline, list[Damaged]]:
        """Return the timeline of the day that begins now, and the schedules that cannot be read."""
        found = read_rows(tx, SCHEDULES, schedule_of, until=now + DAY, limit=READ)
        schedules = [one for one in found if isinstance(one, Schedule)]
        entries, bands = expand_schedules(schedules, now)
        lane = make_lane("schedules", entries, now, bands=bands, more=len(found) == READ)
        damaged = [one for one in found if isinstance(one, Damaged)]
        return make_timeline(now, [lane, *self._trigger_lanes(tx, now)]), damaged

    def _trigger_lanes(self, tx: Reader, now: float) -> tuple[Lane, Lane]:
        """Return the triggers, and apart from them those that end a wait, with the deadlines of running tasks."""
        rows = self._list_triggers(tx, now)
        more = len(rows) > READ
        triggers, waits = [], [_deadline(row) for row in self._list_deadlines(tx, now)]
        for row in rows[:READ]:
            wait = None if row["task_id"] is None else self._find_wait(tx, row)
            if wait is None:
                name = str(row["workflow"] or row["source"])
                triggers.append(
                    Entry(at=row["due_at"], kind="trigger", name=name, href=page_address("triggers", row["id"]))
                )
            else:
                waits.append(wait)
        return make_lane("triggers", triggers, now, more=more), make_lane("waits", waits, now, more=more)

    def _list_triggers(self, tx: Reader, now: float) -> list[Row]:
        """Return the first ones due, one more than READ where there are more."""
        lines = [
            tx.fetch_all(TRIGGERS, priority=priority, now=now, until=now + DAY, limit=READ + 1)
            for (priority,) in list(tx.fetch_tuples(PRIORITIES))
        ]
        return list(_take(heapq.merge(*lines, key=itemgetter("due_at")), READ + 1))

    def _list_deadlines(self, tx: Reader, now: float) -> list[Row]:
        return tx.fetch_all(DEADLINES, now=now, until=now + DAY, looked=LOOKED, limit=READ)

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


def _deadline(row: Row) -> Entry:
    return Entry(at=row["deadline_at"], kind="deadline", name=row["workflow"], href=page_address("tasks", row["id"]))


def _take(rows: Iterator[Row], most: int) -> Iterator[Row]:
    for _, row in zip(range(most), rows, strict=False):
        yield row
