"""One schedule of a cluster in the ports of the rules of schedules: its row, its account and its tasks, from its book.

The rules are those of a database. The book reads only the `now` of a `tx`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any

from craftcore.errors import NotFound
from craftcore.schedules.model import FireCause, Occurrence, Origin, Outcome, Schedule, ScheduleStatus
from craftcore.schedules.occurrence_store import RunningOccurrence, occurrence_of
from craftcore.schedules.recurrence.timing import Startup
from craftcore.schedules.store import columns_of, schedule_of
from craftcore.storage.damaged_rows import Damaged
from craftcore.storage.transaction import Reader, Transaction
from craftcore.temporal.emission import start_of
from craftcore.temporal.ids import workflow_id_of_key
from craftcore.temporal.workflow.messages import TaskStart
from craftcore.temporal.workflow.schedule_messages import OccurrenceStart, ScheduleBook
from craftcore.triggers.model import Emitted, NewTrigger, TriggerSpec, TriggerStatus
from craftcore.triggers.service import TriggerService


class BookRow:
    """The one row of the book."""

    def __init__(self, book: ScheduleBook) -> None:
        self.row: Schedule | None = None if book.row is None else schedule_of(book.row)

    def put(self, tx: Transaction, schedule: Schedule) -> None:
        self.row = schedule

    def get(self, tx: Reader, schedule_id: str) -> Schedule | None:
        return self.row

    def list_due(self, tx: Reader, now: float, limit: int) -> list[Schedule]:
        return [row for row in self._rows() if row.next_at is not None and row.next_at <= now]

    def next_occurrence_at(self, tx: Reader) -> float | None:
        return None if self.row is None else self.row.next_at

    def list_all(self, tx: Reader) -> list[Schedule | Damaged]:
        return [*self._rows()]

    def list_of_origin(self, tx: Reader, origin: Origin) -> list[Schedule]:
        return [row for row in self._rows() if row.origin is origin and row.status is not ScheduleStatus.REMOVED]

    def list_startup(self, tx: Reader) -> list[Schedule]:
        active = [row for row in self._rows() if row.status is ScheduleStatus.ACTIVE]
        return [row for row in active if isinstance(row.timing, Startup)]

    def list_ahead(self, tx: Reader, now: float) -> list[Schedule]:
        return []  # the time of a cluster is right

    def advance(self, tx: Transaction, before: Schedule, after: Schedule) -> bool:
        self.row = replace(after, updated_at=tx.now)
        return True

    def disable(self, tx: Transaction, schedule_id: str, reason: str, *, runs: int) -> bool:
        assert self.row is not None, schedule_id
        self.row = replace(
            self.row, status=ScheduleStatus.DISABLED, reason=reason, runs=runs, next_at=None, updated_at=tx.now
        )
        return True

    def columns(self) -> dict[str, Any] | None:
        """Return the row as the book keeps it."""
        return None if self.row is None else columns_of(self.row)

    def _rows(self) -> list[Schedule]:
        return [] if self.row is None else [self.row]


class BookAccount:
    """The lines of the book, and what runs. `changed`: the numbers of the lines that were written."""

    def __init__(self, book: ScheduleBook) -> None:
        self._lines: dict[int, Occurrence] = {line["seq"]: occurrence_of(line) for line in book.lines}
        self.running = dict(book.running)
        self.lines_made = book.lines_made
        self.changed: set[int] = set()

    def insert(self, tx: Transaction, line: Occurrence) -> bool:
        self.lines_made += 1
        self._put(replace(line, seq=self.lines_made))
        return True

    def extend(self, tx: Transaction, schedule: Schedule, nominal_at: float, reason: str) -> bool:
        newest = next(reversed(self._lines.values()), None)
        if (
            newest is None
            or newest.generation != schedule.generation
            or (newest.cause, newest.outcome, newest.reason) != (FireCause.TIME, Outcome.SKIPPED, reason)
            or newest.last_at >= nominal_at
        ):
            return False
        self._put(replace(newest, last_at=nominal_at, count=newest.count + 1, decided_at=tx.now))
        return True

    def find_occurrence(
        self, tx: Reader, schedule: Schedule, nominal_at: float, causes: Sequence[FireCause]
    ) -> Occurrence | None:
        for line in self._lines.values():
            is_of_it = line.generation == schedule.generation or not schedule.is_one_time
            stands = line.outcome is not Outcome.SKIPPED and line.cause in causes
            if is_of_it and stands and line.nominal_at == nominal_at:
                return line
        return None

    def close_buffered(self, tx: Transaction, line: Occurrence, outcome: Outcome, *, of: str) -> bool:
        fired = outcome is Outcome.FIRED
        self._put(
            replace(
                line,
                outcome=outcome,
                trigger_id=of if fired else None,
                reason=line.reason if fired else of,
                decided_at=tx.now,
            )
        )
        return True

    def list_buffered(self, tx: Reader, schedule_id: str) -> list[Occurrence]:
        waiting = [line for line in self._lines.values() if line.outcome is Outcome.BUFFERED]
        return sorted(waiting, key=lambda line: (line.nominal_at, line.seq))

    def ready(self, tx: Reader, limit: int) -> list[Occurrence]:
        return [] if self.running else self.list_buffered(tx, "")[:1]

    def running_occurrence(self, tx: Reader, schedule_id: str) -> RunningOccurrence | None:
        return RunningOccurrence("task", next(iter(self.running.values()))) if self.running else None

    def list_unstarted_triggers(self, tx: Reader, schedule_id: str, *, after: float = -1.0) -> list[str]:
        return []

    def list_changed(self) -> list[dict[str, Any]]:
        """Return the lines that were written, as the book keeps them."""
        return [asdict(line) for seq, line in self._lines.items() if seq in self.changed]

    def find_line(self, trigger_id: str) -> int:
        """Return the number of the line that fired this."""
        return next(seq for seq, line in self._lines.items() if line.trigger_id == trigger_id)

    def _put(self, line: Occurrence) -> None:
        self._lines[line.seq] = line
        self.changed.add(line.seq)


class BookTriggers:
    """Collects the tasks that are to be started, by the ids of their workflows."""

    def __init__(self, checks: TriggerService, account: BookAccount, heartbeat_timeout: float) -> None:
        self._checks = checks
        self._account = account
        self._heartbeat_timeout = heartbeat_timeout
        self._started: dict[str, TaskStart] = {}

    def accept(self, spec: TriggerSpec) -> NewTrigger:
        return self._checks.accept(spec)

    def emit_scheduled(
        self,
        tx: Transaction,
        spec: TriggerSpec,
        *,
        schedule_id: str,
        nominal_at: float,
        not_before: float | None,
        is_late: bool = False,
    ) -> Emitted:
        row = self.accept(spec)
        row = row._replace(due_at=max(row.fire_at, not_before or row.fire_at))
        workflow_id = workflow_id_of_key(row.dedup_key or "")
        self._started[workflow_id] = replace(start_of(row, self._heartbeat_timeout), schedule_id=schedule_id)
        self._account.running[workflow_id] = workflow_id
        return Emitted(id=workflow_id, created=True, status=TriggerStatus.PENDING, due_at=row.due_at)

    def cancel(self, tx: Transaction, trigger_id: str, reason: str) -> None:
        raise NotFound(f"no trigger {trigger_id}: an occurrence of a cluster is a task at once")

    def list_started(self) -> list[OccurrenceStart]:
        """Return the tasks to be started, each with its line."""
        return [
            OccurrenceStart(workflow_id=workflow_id, seq=self._account.find_line(workflow_id), start=start)
            for workflow_id, start in self._started.items()
        ]
