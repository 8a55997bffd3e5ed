"""The one place of wiring: a database and the services on it, for the daemon, the CLI, producers and tests alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from craftcore.activities.ledger import Ledger
from craftcore.clock import Clock, SystemClock
from craftcore.config import Config
from craftcore.errors import CraftcoreError, InvalidInput, NotFound, StateRefused
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.schedules.service import ScheduleService
from craftcore.schedules.tick_service import TickService
from craftcore.serialization.arguments import show_value
from craftcore.storage import migrate
from craftcore.storage.database import Database
from craftcore.storage.facts import give_id
from craftcore.storage.restored_work import RestoredWork
from craftcore.storage.transaction import Reader, Transaction, get_single_result
from craftcore.storage.user_sql.user_transaction import UserDatabase
from craftcore.tasks.activity_decisions import ActivityDecisions
from craftcore.tasks.activity_events import ActivityEvents
from craftcore.tasks.all_work import CancelledWork, cancel_all
from craftcore.tasks.holds import Holds
from craftcore.tasks.message_store import MessageStore
from craftcore.tasks.model import Task, TaskStatus
from craftcore.tasks.resume import ResumeContract
from craftcore.tasks.service import TaskService
from craftcore.tasks.stream_chunks import StreamView
from craftcore.tasks.stream_recorder import StreamRecorder
from craftcore.tasks.task_end import TaskCloser
from craftcore.tasks.turn_end import TurnService
from craftcore.tasks.turn_events import TurnRecorder
from craftcore.tasks.turn_start import TurnStarter
from craftcore.tasks.turn_stop import TurnStopper
from craftcore.tasks.waits import WaitService
from craftcore.tasks.work_store import WorkFilter, WorkResult, WorkStore, WorkUpdate
from craftcore.triggers.claim_service import ClaimService
from craftcore.triggers.model import Emitted, NewTrigger, Trigger, TriggerStatus
from craftcore.triggers.service import TriggerService
from craftcore.triggers.start_holds import HoldTarget, hold
from craftcore.triggers.store import TriggerStore
from craftcore.triggers.workflow_store import refuse_unknown

T = TypeVar("T")


class Services:
    """One database with the services on it. Raises a StorageError when it cannot be opened.

    With `read_only` it is never opened to write: what would is refused with PermissionRefused. `vfs` as for Database.
    `database`: the class that opens the file.
    """

    def __init__(
        self,
        path: Path,
        config: Config,
        clock: Clock | None = None,
        *,
        read_only: bool = False,
        vfs: str | None = None,
        database: type[Database] = Database,
    ) -> None:
        self.config = config
        self.clock: Clock = clock or SystemClock()
        open_file = partial(
            database,
            path,
            self.clock,
            synchronous=config.storage.synchronous,
            busy_timeout=config.storage.busy_timeout,
            read_only=read_only,
            vfs=vfs,
        )
        self.database = open_file()
        self.user_database = UserDatabase(open_file(statement_cache=0))
        self.triggers = TriggerService(self.clock, read_moment, payload_max_bytes=config.triggers.payload_max_bytes)
        self.claims = ClaimService(
            lease_seconds=config.triggers.lease_seconds,
            priority_weight=config.triggers.priority_weight,
        )
        self.schedules = ScheduleService(self.clock, self.triggers)
        self.ticks = TickService(self.triggers)
        waits = WaitService(self.clock, self.triggers)
        self.restored = RestoredWork()
        ledger = Ledger(self.restored)
        self.turn_recorder = TurnRecorder(self.clock, self.triggers, self.restored)
        self.streams = StreamRecorder()
        self.acts = ActivityEvents(self.clock, ledger, self.turn_recorder)
        self.activity_decisions = ActivityDecisions(ledger, waits)
        task_closer = TaskCloser(self.triggers, waits, self.acts, self.restored)
        turn_stopper = TurnStopper(self.triggers, waits, self.acts)
        self.holds = Holds()
        self.tasks = TaskService(
            self.clock,
            self.triggers,
            waits,
            task_closer,
            turn_stopper,
            self.activity_decisions,
            self.holds,
            payload_max_bytes=config.triggers.payload_max_bytes,
        )
        self.turn_starter = TurnStarter(waits)
        self.turns = TurnService(
            self.triggers,
            waits,
            task_closer,
            turn_stopper,
            self.restored,
            lease_seconds=config.triggers.lease_seconds,
            history_messages=config.tasks.history_messages,
        )
        self.resume_contract = ResumeContract(self.tasks, waits, max_age=config.tasks.resume_max_age)
        self.triggers.follower = self.claims.follower = self.tasks

    def cancel_all(self, tx: Transaction, reason: str = "cancelled", *, with_schedules: bool = True) -> CancelledWork:
        """Cancel all work: every live trigger and task, and, unless they are to stay, every schedule."""
        stopped = self.schedules.stop_all(tx, reason) if with_schedules else []
        return cancel_all(tx, self.triggers, self.tasks, reason, stopped)

    def signal(
        self,
        tx: Transaction,
        task_id: str | None,
        event: str,
        payload: Any,
        *,
        sent_by: str | None,
        start: NewTrigger | None,
        maker_id: str | None = None,
    ) -> bool:
        """Tell a live task that something happened, as `tasks.signal` does. `start` is emitted when no task of this id
        lives, or no id is given; the signal goes to its task then. `maker_id`: of the work whose code signals."""
        if start is not None and (task_id is None or not self.tasks.can_signal(tx, task_id)):
            task_id = get_single_result(self.triggers.emit_all(tx, [start])).id
        if task_id is None:
            raise InvalidInput("signal names no task: give its id, or start=TriggerSpec(…)")
        waited = self.tasks.signal(tx, task_id, event, payload, sent_by=sent_by)
        if maker_id is not None:
            self.restored.mark(tx, maker_id, task_id)
        return waited

    def emit_for(self, tx: Transaction, rows: Sequence[NewTrigger], maker_id: str | None) -> list[NewTrigger | Emitted]:
        """Insert accepted triggers: all, or none. `maker_id`: of the work whose code emits them."""
        emitted = self.triggers.emit_together(tx, rows)
        for answer in emitted if maker_id is not None else ():
            self.restored.mark(tx, maker_id or "", answer.id)
        return emitted

    def state_of_work(self, tx: Reader, id: str) -> Task | Trigger:
        """Return the task of this id, or the trigger while it has created none. Raises NotFound."""
        work = self.tasks.find(tx, id) or TriggerStore().get(tx, id)
        if work is None:
            raise NotFound(f"no trigger or task {id}")
        return work

    def cancel_work(self, tx: Transaction, id: str, reason: str = "cancelled") -> None:
        """Cancel the task of this id, or the trigger that has created none. Stop the turn that has received a delivered
        message, or take the message back. Raises NotFound, or StateRefused when it has ended, or has its reply."""
        messages = MessageStore()
        id = messages.newest_id(tx, id)
        task = self.tasks.find(tx, id)
        if task is not None:
            if task.reply_json is not None and task.status.is_live:
                raise StateRefused(
                    f"{id} has its reply, and its task goes on; nothing was written. To end the task: craftcore task "
                    f"cancel {id}"
                )
            self.tasks.cancel(tx, id, reason)
        elif (message := messages.find(tx, id)) is not None and message.status in ("UNREAD", "READ"):
            self.tasks.cancel_message(tx, id, message, reason)
        else:
            self.triggers.cancel(tx, id, reason)

    def find_work(self, tx: Reader, filter: WorkFilter, limit: int) -> list[str]:
        """Return the ids of the newest work that matches, newest first. Raises InvalidInput for an unknown status."""
        statuses = {*TriggerStatus, *TaskStatus}
        if filter.status is not None and filter.status not in statuses:
            known = ", ".join(sorted(statuses))
            raise InvalidInput(f"status {show_value(filter.status)} is unknown; it must be one of {known}")
        return WorkStore().find(tx, filter, limit)

    def update_of_work(self, id: str) -> WorkUpdate:
        """Return work as it is now. Raises NotFound when no row of it is left."""
        return self.read(WorkStore().update_of, id)

    def look_at_stream(self, id: str, name: str, after: int) -> StreamView:
        """Return the next chunks of a stream of emitted work after a number. Raises NotFound when no row of the work is
        left, DatabaseInvalid for damaged chunks."""
        return self.read(self.streams.look, id, name, after)

    def find_ends_of_work(self, ids: Sequence[str]) -> Mapping[str, WorkResult | CraftcoreError]:
        """Return the ends of those of these ids that have ended; NotFound for one of which no row is left."""
        with self.reading() as reader:
            return WorkStore().find_ends(reader, ids)

    def hold(self, tx: Transaction, target: HoldTarget, by: str, reason: str | None = None) -> bool:
        """Keep a target from starting until it is released; False when it is held already.

        Raises UnknownWorkflow, NotFound for a schedule, InvalidInput, StateRefused for too many holds.
        """
        if target.kind == "workflow":
            refuse_unknown(tx, [target.name])
        elif target.kind == "schedule":
            self.schedules.get(tx, target.name)
        return hold(tx, target, by, reason)

    def prepare(self) -> None:
        """Make sure the schema is this program's: a new file gets it, and its id; an older one is refused."""
        try:
            with self.database.reading() as reader:
                fresh = migrate.is_empty(reader)
                if not fresh:
                    migrate.require_current(reader, self.database.path)
        except NotFound:
            fresh = True
        if fresh:
            new_id = self.clock.new_id()
            migrate.migrate(self.database, self.clock, also=lambda tx, _: give_id(tx, new_id))

    def transaction(self) -> AbstractContextManager[Transaction]:
        """Return one transaction, which is on disk when the block is left."""
        return self.database.transaction()

    @contextmanager
    def reading(self, *, within: float | None = None) -> Iterator[Reader]:
        """Open a read-only snapshot of a database with this program's schema; `within` as for `Database.reading`."""
        with self.database.reading(within=within) as reader:
            migrate.require_current(reader, self.database.path)
            yield reader

    def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)`."""
        with self.reading() as reader:
            return call(reader, *args)

    def close(self) -> None:
        self.user_database.close()
        self.database.close()
