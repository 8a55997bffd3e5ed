"""The journal on a SQLite file: each record is a commit of the writer, with what it brings about."""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import anyio
import anyio.to_thread

from craftcore.activities.model import Activity, Decision, NewIntent, StartedCall
from craftcore.activities.store import ActivityStore
from craftcore.engine.durable_commit import DurableCommits
from craftcore.errors import RowInvalid, StorageFull
from craftcore.log import get_logger
from craftcore.schedules.runtime import RuntimeSchedules, find_made
from craftcore.serialization.untrusted import safe_repr
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.tasks.activity_events import ActEnd, ActivityEvents, NewAct
from craftcore.tasks.model import NewQuestion, NewTask, Task, Wait
from craftcore.tasks.session_message_store import SessionMessageStore
from craftcore.tasks.turn_event_store import MemoStore, NewEvent, StreamRow
from craftcore.triggers.derived_ids import is_derived
from craftcore.triggers.model import Claim, Emitted, NewTrigger

T = TypeVar("T")

log = get_logger(__name__)


class SqliteJournal:
    """The journal of one engine. `write_mark` writes a call mark to disk, beside the file. `due` makes the feeder poll
    at a moment, and `on_changed` wakes what looks for work."""

    def __init__(
        self,
        services: Services,
        commits: DurableCommits,
        write_mark: Callable[[int], None],
        due: Callable[[float], None],
        on_changed: Callable[[], None],
    ) -> None:
        self._writer = commits.writer
        self._commits = commits
        self._clock = services.clock
        self._turn_recorder = services.turn_recorder
        self._acts = services.acts
        self._tasks = services.tasks
        self._triggers = services.triggers
        self._call_marks = CallMarks(services.acts, write_mark)
        self._due = due
        self._on_changed = on_changed

    def require_lease(self) -> None:
        """Do nothing: the file is locked, so no other process runs a turn of it."""

    async def record(self, event: NewEvent) -> None:
        await self._commits.commit(self._turn_recorder.record_all, event, each=True, in_any_case=True)

    async def emit(
        self,
        row: NewTrigger,
        event_of: Callable[[Emitted], NewEvent],
        child: NewTask | None,
        *,
        id_may_be_used: bool = False,
    ) -> Emitted:
        def emit_recorded(tx: Transaction, row: NewTrigger, child: NewTask | None) -> Emitted:
            if id_may_be_used and is_derived(row.id) and self._triggers.is_id_used(tx, row.id):
                row, child = with_id(row, child, self._clock.new_id())
            return self._turn_recorder.emit_recorded(tx, row, event_of, child)

        try:
            try:
                emitted: Emitted = await self._commits.commit(emit_recorded, row, child)
            except RowInvalid:
                # Its id is that of work of an earlier task with the same id as this one, which retention removed.
                row, child = with_id(row, child, self._clock.new_id())
                emitted = await self._commits.commit(emit_recorded, row, child)
        finally:
            self._due(row.due_at)  # also when the turn is cancelled: the commit may have come about
        return emitted

    async def signal(
        self, task_id: str, event: str, payload: Any, *, sent_by: str, event_of: Callable[[bool], tuple[NewEvent, T]]
    ) -> T:
        def signal(tx: Transaction) -> T:
            record, answer = event_of(self._tasks.signal(tx, task_id, event, payload, sent_by=sent_by))
            self._turn_recorder.record(tx, record)
            self._turn_recorder.mark_made(tx, record, task_id)
            return answer

        try:
            answer: T = await self._commits.commit(signal)
        finally:
            self._on_changed()  # as above
        return answer

    async def reply(
        self, task: Task, waits: Sequence[Wait], reply_json: str, event: NewEvent, *, is_first_agent: bool
    ) -> None:
        seqs = [wait.seq for wait in waits]
        try:
            await self._commits.commit(self._turn_recorder.reply, task, seqs, reply_json, event, is_first_agent)
        finally:
            self._on_changed()  # as above

    # Irreversible actions

    async def begin(self, act: NewAct) -> StartedCall | Activity:
        try:
            return await self._writer.commit_batched(self._call_marks.begin_all, act)
        except (RowInvalid, ValueError, OverflowError):  # text that is not UTF-8 is a ValueError, too
            await self._commits.set_aside_corrupt()
            raise

    async def find_intent(self, intent: NewIntent) -> StartedCall | None:
        return await self._writer.commit(self._acts.intent_of, intent)

    async def wait_until_marked(self, begun: StartedCall) -> None:
        if not self._call_marks.has_reached(begun.mark):
            with anyio.CancelScope(shield=True):
                await self._call_marks.wait_for(begun.mark)

    async def settle(self, end: ActEnd, gives_up: Callable[[], bool]) -> None:
        try:
            await self._settle(end, gives_up)
        except BaseException as cancelled:
            if not isinstance(cancelled, Exception):  # while the disk was full, perhaps; a second one does no harm
                with anyio.CancelScope(shield=True), suppress(StorageFull):
                    await self._retry_settle(end, gives_up)
            raise

    async def _settle(self, end: ActEnd, gives_up: Callable[[], bool]) -> None:
        """Commit at once, as almost always; on a full disk as often as it takes."""
        try:
            await self._writer.commit_batched(self._acts.settle_all, end, in_any_case=True)
        except (StorageFull, RowInvalid, ValueError, OverflowError):
            await self._retry_settle(end, gives_up)

    async def _retry_settle(self, end: ActEnd, gives_up: Callable[[], bool]) -> None:
        # Once it gives up, the next boot finds an intent without an end.
        await self._commits.commit(self._acts.settle_all, end, each=True, in_any_case=True, gives_up=gives_up)

    async def decide(
        self, activity: Activity, decision: Decision, decided_by: str, reference: str | None, event: NewEvent
    ) -> Activity:
        return await self._writer.commit(self._acts.decide, activity, decision, decided_by, reference, event)

    async def look(self, key: str) -> Activity | None:
        return await self._writer.commit(ActivityStore().get, key)

    async def list_act_keys(self, task: Task) -> Iterable[str]:
        return await self._writer.commit(ActivityStore().list_keys_of_turn, task.seq, task.turn)

    async def list_of_turn(self, task: Task, beside: Container[str]) -> Sequence[Activity]:
        activities = await self._writer.commit(ActivityStore().list_of_turn, task.seq, task.turn)
        return [activity for activity in activities if activity.key not in beside]

    # The stream and the progress of a turn

    async def stream(self, task_id: str, limit: int) -> Sequence[StreamRow]:
        return await self._writer.commit(MemoStore().stream, task_id, limit)

    async def set_progress(self, claim: Claim, task: Task, progress_json: str) -> None:
        await self._commits.commit(self._turn_recorder.set_progress, claim, task.seq, progress_json)

    async def ask_stalled(self, claim: Claim, task: Task, asked: NewQuestion) -> None:
        await self._commits.commit(self._turn_recorder.ask_stalled, claim, task, asked)


def with_id(row: NewTrigger, child: NewTask | None, new_id: str) -> tuple[NewTrigger, NewTask | None]:
    """Return a trigger, and the child that it is to create, under another id."""
    if child is None:
        return row._replace(id=new_id), None
    lane = row.session_id or new_id
    return row._replace(id=new_id, task_id=new_id, lane=lane), child._replace(id=new_id, trigger_id=new_id)


class CallMarks:
    """Begins acts, and writes call marks beside the file, one at a time. A mark is on disk before the irreversible
    calls that need it, and one write serves many calls.

    The writer's thread writes the mark of a commit once that is on disk and before its callers have their answers. So
    the calls of one commit share one flush, and wait for nothing else. A mark that could not be written then is tried
    again by the calls that need it: they raise why it fails.

    `write(mark)` is a blocking function that returns once the mark is on disk. It may be called from two threads.
    """

    def __init__(self, acts: ActivityEvents, write: Callable[[int], None]) -> None:
        self._acts = acts
        self._write = write
        self._thread = anyio.CapacityLimiter(1)
        self._wanted = 0
        self._written = 0
        self._writing: anyio.Event | None = None

    def begin_all(self, tx: Transaction, acts: list[NewAct]) -> list[StartedCall | Activity | Exception]:
        """Write intents, as `ActivityEvents.begin_all`; the mark of this commit follows it."""
        answers = self._acts.begin_all(tx, acts)
        if mark := max((answer.mark for answer in answers if isinstance(answer, StartedCall)), default=0):
            tx.before_answers(self._write_first, mark)
        return answers

    def has_reached(self, mark: int) -> bool:
        """Return whether this mark, or a later one, is on disk."""
        return self._written >= mark

    async def wait_for(self, mark: int) -> None:
        """Wait until this mark, or a later one, is on disk.

        A caller that finds no write under way writes the newest mark that is waited for. Raises what `write` raises;
        the others that waited for that write try it themselves.
        """
        self._wanted = max(self._wanted, mark)
        while self._written < mark:
            if self._writing is not None:
                await self._writing.wait()
                continue
            over = self._writing = anyio.Event()
            newest = self._wanted
            try:
                await anyio.to_thread.run_sync(self._write, newest, limiter=self._thread)
                self._written = max(self._written, newest)
            finally:
                self._writing = None
                over.set()

    def _write_first(self, mark: int) -> None:
        """Write the mark of a commit, on the writer's thread. A failure is left to the calls of the commit, and ends no
        commit."""
        try:
            self._write(mark)
        except Exception as error:
            log.debug("call_mark.not_written", mark=mark, why=safe_repr(error))
        else:
            self._written = max(self._written, mark)


class SqliteTables:
    """The tables of the file that a turn writes. `on_changed` wakes the scheduler."""

    def __init__(
        self, services: Services, commits: DurableCommits, schedules: RuntimeSchedules, on_changed: Callable[[], None]
    ) -> None:
        self.schedules = schedules
        self.messages = SessionMessageStore()
        self._commits = commits
        self._turn_recorder = services.turn_recorder
        self._read = services.read
        self._on_changed = on_changed

    async def write_user(
        self, fn: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        def record(tx: Transaction, result: Any) -> T:
            event, answer = event_of(result)
            self._turn_recorder.record(tx, event)
            return answer

        return await self._commits.writer.commit_user_sql(fn, args, record)

    async def write_own(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        def record(tx: Transaction) -> T:
            result = call(tx, *args)
            event, answer = event_of(result)
            self._turn_recorder.record(tx, event)
            if (made := find_made(result, tx.now)) is not None:
                self._turn_recorder.mark_made(tx, event, made[1], kind=made[0])
            return answer

        try:
            answer: T = await self._commits.commit(record)
        finally:
            self._on_changed()  # also when the turn is cancelled: the commit may have come about
        return answer

    async def read_recorded(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        def record(tx: Transaction) -> T:
            event, answer = event_of(call(tx, *args))
            self._turn_recorder.record(tx, event)
            return answer

        answer: T = await self._commits.commit(record)
        return answer

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        return await anyio.to_thread.run_sync(self._read, call, *args)
