"""The journal of a turn: what it completes is on record when a call of the journal returns.

A turn knows no more of where that is than these two protocols say. `sqlite_journal.py` is the one on a file.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Container, Iterable, Sequence
from typing import Any, Protocol, TypeVar

from craftcore.activities.model import Activity, Decision, NewIntent, StartedCall
from craftcore.engine.turn.stream_buffer import StreamBuffer
from craftcore.schedules.runtime import RuntimeSchedules
from craftcore.tasks.activity_events import ActEnd, NewAct
from craftcore.tasks.model import NewQuestion, NewTask, Task, Wait
from craftcore.tasks.session_message_store import SessionMessageStore
from craftcore.tasks.stream_chunks import OpenStream
from craftcore.tasks.turn_event_store import NewEvent, StreamRow
from craftcore.triggers.model import Claim, Emitted, NewTrigger

T = TypeVar("T")


class Journal(Protocol):
    """The record of the turns that run. Every call may raise LeaseLost: the turn is given up, and nothing was written.

    A caller that is cancelled may find its record there, unless the call says otherwise.
    """

    def require_lease(self) -> None:
        """Raise LeaseLost when the turn is given up, or may be: no user code is called then."""

    async def record(self, event: NewEvent) -> None:
        """Record what has happened, also when the caller is cancelled meanwhile."""

    async def emit(
        self,
        row: NewTrigger,
        event_of: Callable[[Emitted], NewEvent],
        child: NewTask | None,
        *,
        id_may_be_used: bool = False,
    ) -> Emitted:
        """Emit a trigger and record what `event_of` says of it at once. `child`: the task that the trigger creates.
        `id_may_be_used`: earlier work may have its id. It is then given another.

        Raises DuplicateTrigger when the spec asked for it.
        """

    async def signal(
        self, task_id: str, event: str, payload: Any, *, sent_by: str, event_of: Callable[[bool], tuple[NewEvent, T]]
    ) -> T:
        """Signal another task and record it at once. `event_of`: the event, and the answer of this call, for a signal
        that the task waited for, or not.

        Raises InvalidInput, PayloadTooLarge, NotFound or StateRefused: nothing was sent.
        """

    async def reply(
        self, task: Task, waits: Sequence[Wait], reply_json: str, event: NewEvent, *, is_first_agent: bool
    ) -> None:
        """Answer what came by these waits of the turn and has no reply, and record it at once.

        Raises StateRefused when there is nothing, and nothing is written; not for a later agent of the turn.
        """

    async def begin(self, act: NewAct) -> StartedCall | Activity:
        """Record the intent of a call. Return the activity instead when it must not be called.

        Raises IdempotencyConflict. Nothing is called before this returns, nor after the act's `ends_at`.
        """

    async def find_intent(self, intent: NewIntent) -> StartedCall | None:
        """Return the intent of this attempt that has no end yet; None when there is none."""

    async def wait_until_marked(self, begun: StartedCall) -> None:
        """Return once the mark of a call is where it has to be before the call. Raises why it cannot be there."""

    async def settle(self, end: ActEnd, gives_up: Callable[[], bool]) -> None:
        """Record the outcome of a call, also when the turn is given up or cancelled meanwhile: it has happened.

        It is tried until `gives_up` returns True.
        """

    async def decide(
        self, activity: Activity, decision: Decision, decided_by: str, reference: str | None, event: NewEvent
    ) -> Activity:
        """Record that a policy ended a doubt. Return the activity after that. Raises StateRefused when another did."""

    async def look(self, key: str) -> Activity | None:
        """Return the activity of this key; None when nothing was begun under it."""

    async def list_act_keys(self, task: Task) -> Iterable[str]:
        """Return the keys of the activities of the task's turn, and perhaps of its other turns."""

    async def list_of_turn(self, task: Task, beside: Container[str]) -> Sequence[Activity]:
        """Return the activities of the task's turn but those of these keys, the oldest first."""

    async def stream(self, task_id: str, limit: int) -> Sequence[StreamRow]:
        """Return the newest events of a task, oldest of them first."""

    async def set_progress(self, claim: Claim, task: Task, progress_json: str) -> None:
        """Store how far the task has come, in place of what was stored before."""

    async def ask_stalled(self, claim: Claim, task: Task, asked: NewQuestion) -> None:
        """Ask a person about a turn that completes nothing. Nothing is asked while such a question is open."""


class StreamJournal(Protocol):
    """The record of the streams that turns write. Only a journal on a database has them."""

    async def open(self, claim: Claim, task: Task, name: str) -> OpenStream:
        """Return a stream of a turn, which is made when there is none, and its chunks on record. Raises LeaseLost;
        InvalidInput where there are no streams."""

    def schedule(self, buffer: StreamBuffer) -> None:
        """Let what the buffer holds be committed soon, together with what others hold."""

    async def save(self, buffer: StreamBuffer) -> None:
        """Return once all that was added to the buffer is on disk, or `buffer.error` says why it cannot be."""

    def call(self, write: Callable[[], Awaitable[None]]) -> None:
        """Await `write()` on the loop of the turn, for a thread that waits for it. Raises what it raises; StateRefused
        when the loop has ended."""


class TurnTables(Protocol):
    """The tables that a turn writes itself, in the commit that records it. Only a journal on a database has them."""

    @property
    def schedules(self) -> RuntimeSchedules:
        """The rules of `ctx.schedules`. Raises InvalidInput where there are no tables."""

    async def write_user(
        self, fn: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        """Run `fn(tx, *args)`, which writes the user's own tables, and record what `event_of` says of its result: one
        commit. Return what `event_of` says beside the event."""

    async def write_own(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        """Do the same with `call(tx, *args)`, which writes tables of craftcore."""

    @property
    def messages(self) -> SessionMessageStore:
        """The table of `ctx.history`. Raises InvalidInput where there are no tables."""

    async def read_recorded(
        self, call: Callable[..., Any], args: tuple[Any, ...], event_of: Callable[[Any], tuple[NewEvent, T]]
    ) -> T:
        """Do the same with `call(tx, *args)`, which only reads."""

    async def read(self, call: Callable[..., T], *args: Any) -> T:
        """Return `call(reader, *args)` as it is now. It is not recorded."""
