"""The calls of commands on tasks, in a database file or on a cluster."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any, Protocol

from craftcore.cli.damaged_list import RowList
from craftcore.cli.lookup import find_task, resolve_id
from craftcore.cli.session import Session, finding_document
from craftcore.cli.short_ids import count_digits
from craftcore.daemon.lock import read_note
from craftcore.diagnostics.documents import task_document, wait_document
from craftcore.diagnostics.live_counts import is_booting
from craftcore.diagnostics.reasons.trigger_reasons import task_reasons
from craftcore.diagnostics.tasks.task_details import hold_reason, read_details, read_events
from craftcore.diagnostics.text.trigger_text import name_work
from craftcore.errors import NotFound
from craftcore.operations import tasks
from craftcore.serialization.time_text import clock_time
from craftcore.storage.damaged_rows import Damaged, list_damaged, omit_damaged
from craftcore.storage.transaction import Reader
from craftcore.tasks.listing_store import TaskLists
from craftcore.tasks.model import Task, Wait
from craftcore.tasks.wait_store import WaitStore
from craftcore.triggers.store import TriggerStore

LIST_COLUMNS = ("id", "created", "workflow", "session", "status", "turn", "until", "reason")


class TaskCalls(Protocol):
    """The calls on tasks. `given`: an id, or as much of one as names a task.

    `list_newest` takes the filters of `TaskLists.list_newest`. `read` returns a task, its document, and the digits of
    ids in tables (None: they are whole). `read_events` says whether there were more. `signal` returns the whole id, the
    task (None: it has not begun), and whether it waited.
    """

    def list_newest(self, **filters: Any) -> RowList[Any]: ...

    def find(self, given: str) -> Task: ...

    def read(self, given: str) -> tuple[Task, dict[str, Any], int | None]: ...

    def read_events(self, given: str, limit: int) -> tuple[list[dict[str, Any]], bool]: ...

    def signal(self, given: str, event: str, payload: Any) -> tuple[str, Task | None, bool]: ...

    def cancel(self, task_id: str, reason: str | None) -> Task: ...

    def retry(self, given: str, reason: str | None) -> Task: ...


def open_tasks(session: Session) -> TaskCalls:
    """Return the calls on the tasks that the options name."""
    if session.cluster is None:
        return FileTasks(session)
    from craftcore.cli.temporal.cluster_tasks import ClusterTasks

    return ClusterTasks(session)


class FileTasks:
    """The calls on the tasks of a database file."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._core = session.core()

    def list_newest(self, **filters: Any) -> RowList[Task]:
        with self._core.reading() as reader:
            found = TaskLists().list_newest(reader, **filters)
            held_by = {one.id: hold_reason(reader, one) for one in omit_damaged(found)}
            digits = count_digits(reader)
            waits = {one.id: WaitStore().look(reader, one.seq) for one in omit_damaged(found)}
        return RowList(
            LIST_COLUMNS,
            found,
            document_of=lambda one: {
                **task_document(one),
                "held": held_by[one.id],
                "wait": wait_document(waits[one.id]),
            },
            cells=lambda one: _make_row(one, waits[one.id], held_by[one.id]),
            beside=chain.from_iterable(waits.values()),
            digits=digits,
        )

    def find(self, given: str) -> Task:
        with self._core.reading() as reader:
            return find_task(reader, given)

    def read(self, given: str) -> tuple[Task, dict[str, Any], int | None]:
        core = self._core
        note, daemon_runs = read_note(core.database.path)
        with core.reading() as reader:
            found = find_task(reader, given)
            weight, now = core.config.triggers.priority_weight, core.clock.now()
            booting = is_booting(reader, note, held=daemon_runs)
            why = task_reasons(reader, found, now, daemon_runs=daemon_runs, priority_weight=weight, booting=booting)
            document = {
                **task_document(found),
                "held": hold_reason(reader, found),
                "reasons": [finding_document(reason) for reason in why],
                **read_details(reader, found),
            }
            return found, document, count_digits(reader)

    def read_events(self, given: str, limit: int) -> tuple[list[dict[str, Any]], bool]:
        with self._core.reading() as reader:
            return read_events(reader, find_task(reader, given), limit)

    def signal(self, given: str, event: str, payload: Any) -> tuple[str, Task | None, bool]:
        with self._session.write(self._core) as (tx, scope):
            try:
                whole = find_task(tx, given).id
            except NotFound:
                if (to_begin := _trigger_to_begin(tx, given)) is None:
                    raise
                whole = to_begin
            return whole, *tasks.signal(tx, scope, self._core, whole, event, payload)

    def cancel(self, task_id: str, reason: str | None) -> Task:
        with self._session.write(self._core) as (tx, scope):
            return tasks.cancel(tx, scope, self._core, task_id, reason)

    def retry(self, given: str, reason: str | None) -> Task:
        with self._session.write(self._core) as (tx, scope):
            return tasks.retry(tx, scope, self._core, find_task(tx, given).id, reason)


def _make_row(task: Task, waits: Sequence[Wait | Damaged], held: str | None) -> tuple[object, ...]:
    """Return its row under LIST_COLUMNS."""
    ends = [wait.due_at for wait in omit_damaged(waits) if wait.due_at is not None]
    until = "damaged" if list_damaged(waits) else clock_time(min(ends)) if ends else None
    return (
        task.id,
        clock_time(task.created_at),
        name_work(task.workflow, task.schedule_id),
        task.session_id,
        task.status,
        task.turn,
        until,
        f"held: {held}" if held is not None else task.error_message or task.reason,
    )


def _trigger_to_begin(reader: Reader, given: str) -> str | None:
    """Return the id of a live trigger that has created no task yet; None: the id is of no such trigger."""
    try:
        trigger = TriggerStore().get(reader, resolve_id(reader, given))
    except NotFound:
        return None
    if trigger is None or trigger.status.is_settled or trigger.task_id is not None:
        return None
    return trigger.id
