"""One entry of a turn: what it completed before, what it completes now, and what it is suspended for."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import cached_property
from typing import Any, NamedTuple, NoReturn

import anyio

from craftcore.clock import Clock
from craftcore.config import TaskSettings
from craftcore.engine.attempt import Attempt
from craftcore.engine.turn.act_places import ActPlaces
from craftcore.engine.turn.completed_step import list_steps
from craftcore.engine.turn.continuation import budget_wait, resolve_delay
from craftcore.engine.turn.journal import Journal, StreamJournal, TurnTables
from craftcore.engine.turn.parked_waits import ParkedWaits, RunningCall
from craftcore.engine.turn.part import get_running_part
from craftcore.engine.turn.turn_state import SAVE_SECONDS, PendingCall, RetryActLater, Suspend, TurnState
from craftcore.engine.turn.turn_streams import TurnStreams
from craftcore.engine.workers.thread_pool import ThreadPool
from craftcore.engine.workers.worker_pool import WorkerPool
from craftcore.errors import CraftcoreError, InvalidInput, KeyRequired, StateRefused, StepConflict
from craftcore.executions.model import EventType
from craftcore.registry.action import Action
from craftcore.serialization.arguments import Duration
from craftcore.serialization.plurals import format_count
from craftcore.storage.event_loop import Loop
from craftcore.tasks.model import CONTINUED, Entry, NewWait, Resume, Wait, WaitKind
from craftcore.tasks.turn_event_store import FAILURE_MARK, NewEvent
from craftcore.triggers.model import NewTrigger, TriggerSpec
from craftcore.triggers.validation import require_name

WAITING_CALLS = ("ask", "sleep", "wait_for", "wait_any")
WAITS_BESIDE = (
    "With a key it waits beside the others. Steps and acts that run end first. Then the turn is suspended for all "
    "waits of its tasks, and goes on at each answer"
)


class TurnServices(NamedTuple):
    """The services of the engine that a turn uses.

    journal        the record of what a turn completes
    streams        the record of the streams that turns write
    tables         what ctx.transaction and ctx.schedules write in the commit that records it
    accept         refuses a spec that the app could only fail
    in_flight      the irreversible actions that are being called, by key
    require_small  refuses a text that is too much to be on record: its limit and its name
    no_waits       why tasks beside the turn's own cannot wait; None: they can
    """

    journal: Journal
    streams: StreamJournal
    tables: TurnTables
    actions: Mapping[str, Action]
    in_flight: dict[str, PendingCall]
    epoch: int
    clock: Clock
    accept: Callable[[TriggerSpec], NewTrigger]
    loop: Loop
    threads: ThreadPool
    workers: WorkerPool
    settings: TaskSettings
    bounded: Callable[[str], str]
    require_small: Callable[[str, int, str], None]
    no_waits: str | None = None


class Turn(TurnState):
    """Calls of `ctx` in one entry of a turn. Everything it completes is known by its identity within the turn."""

    def __init__(self, attempt: Attempt, entry: Entry, services: TurnServices, ends_at: float | None) -> None:
        super().__init__(entry, max_steps=services.settings.max_steps)
        self.attempt = attempt
        self.services = services
        self.ends_at = ends_at
        """When this attempt is over at the latest; None: never."""
        self.is_entered_again = (
            attempt.claim.starts > 1 or entry.resume is Resume.RESUME or not entry.waits.keys() <= {CONTINUED}
        )
        """Code ran in this turn before: in an attempt that is over, or up to a wait."""
        self.context: Any = None
        """The TaskContext by which its code makes these calls."""
        self._own_task = services.loop.get_current_task()
        self.parked = ParkedWaits(self.refuse_when_over, self.suspend_with)
        self.places = ActPlaces()
        self._taken: set[str] = set()
        self._counted: Counter[str] = Counter()
        self._unwinds = False
        routed = attempt.routed
        is_first = routed is None or not routed.agents or routed.workflow == routed.agents[0]
        self.later_agent = None if is_first or routed is None else routed.workflow
        """The agent that runs, when it is not the first; None: it is."""
        self.scope = "" if self.later_agent is None else f"|{self.later_agent}"
        """The mark that separates the identities of a later agent of the turn from those of the first. No name holds a
        `|`."""

    # Identity

    def claim_identity(self, kind: str, name: str, key: str | None) -> str:
        """Return the identity of something that has a name: once per name, or name and key, in one entry of a turn.

        Raises StepConflict for the second, InvalidInput for an invalid name.
        """
        self.refuse_when_over()
        require_name(f"{kind} name", name)
        if key is not None:
            require_name(f"{kind} key", key)
        identity = self.identity(kind, name, key)
        if identity in self._taken:
            call = f"{kind} {name}" if key is None else f"{kind} {name} with key {key}"
            raise StepConflict(f"{call} was used before in this turn: give each its own key=…, e.g. the item it is for")
        self._taken.add(identity)
        return identity

    def identity(self, kind: str, name: str, key: str | None) -> str:
        """Return what the agent that runs completes is known by, when it has a name."""
        return f"{kind}:{name}{self.scope}" if key is None else f"{kind}:{name}/{key}{self.scope}"

    @property
    def is_in_order(self) -> bool:
        """True when calls come in the order of the code here: in the turn's own task, and not in a step."""
        return self.is_own_task and get_running_part() is None

    @property
    def is_own_task(self) -> bool:
        """True in the task that runs the workflow, and not in one that it has started."""
        return self.services.loop.get_current_task() is self._own_task

    @cached_property
    def left_steps(self) -> dict[str, str]:
        """The completed steps that this entry had not come to when this was first asked, with their events."""
        return {identity: text for identity, text in list_steps(self.memo) if identity not in self._taken}

    def is_taken(self, identity: str) -> bool:
        """Return whether this entry has come to it."""
        return identity in self._taken

    def next_ordinal(self, kind: str, key: str | None) -> str:
        """Return the identity of something that needs no name: its key, else its place among those of the turn's own
        task. Acts have places of their own: whatever else a turn does at a re-entry must not make one of them another.

        Raises KeyRequired inside a step, and in any other task, because several have no order.
        """
        if key is not None:
            return self.claim_identity(kind, key, None)
        self.refuse_when_over()
        if not self.is_own_task:
            rule = f" {WAITS_BESIDE}" if kind in WAITING_CALLS else ""
            raise KeyRequired(
                f"ctx.{kind} in a task beside the turn's own needs key=…: without one it is known by its order, and "
                f"tasks have none.{rule}"
            )
        if get_running_part() is not None:
            raise KeyRequired(
                f"ctx.{kind} inside a step or an action needs key=…: that is not run again at a re-entry, and what "
                "follows it would be counted differently"
            )
        if kind == "act":  # whose it is, its key says
            self._counted[kind] += 1
            return f"{kind}#{self._counted[kind]}"
        self._counted[""] += 1
        return f"{kind}#{self._counted['']}{self.scope}"

    # Completing

    async def record(self, type_: EventType, payload_json: str, memo: str | None) -> None:
        """Commit an event of this turn, also when the turn is cancelled meanwhile: it has happened. With a memo it is
        found at a re-entry, and unless that has FAILURE_MARK it counts as completed. Raises LeaseLost."""
        event = self.event(type_, payload_json, memo)
        await self.services.journal.record(event)
        if memo is None or FAILURE_MARK not in memo:
            self.add_completed(memo, payload_json)

    def event(
        self, type_: EventType, payload_json: str, memo: str | None, *, activity_seq: int | None = None
    ) -> NewEvent:
        """Return an event of this turn, to be written by the commit that brings it about."""
        claim, record = self.attempt.claim, self.attempt.record
        return NewEvent(
            claim.seq,
            claim.lease_token,
            record.seq,
            self.task.seq,
            self.task.turn,
            type_,
            payload_json,
            memo,
            activity_seq,
        )

    def require_small(self, text: str, what: str) -> None:
        """Raise PayloadTooLarge for what is too much to be put on record."""
        self.services.require_small(text, self.services.settings.result_max_bytes, what)

    def add_completed(self, memo: str | None, payload_json: str) -> None:
        """Add an event that is on disk."""
        self.progress_at = time.monotonic()
        if memo is not None:
            self.memo[memo] = payload_json

    # Streams

    @cached_property
    def streams(self) -> TurnStreams:
        """The streams of the turn."""
        settings = self.services.settings
        return TurnStreams(
            self.attempt.claim,
            self.task,
            self.services.streams,
            self._entry.streams,
            own_part=self.scope,
            max_bytes=settings.stream_max_bytes,
        )

    @property
    def has_streams(self) -> bool:
        """This entry has written to a stream, or an earlier one has."""
        return "streams" in self.__dict__ or bool(self._entry.streams)

    def list_streams(self) -> Mapping[str, frozenset[str]]:
        return self.streams.parts if self.has_streams else {}

    async def close_streams(self) -> None:
        if self.has_streams:
            await self.streams.close()

    async def save_streams(self) -> None:
        if self.has_streams:
            with anyio.move_on_after(SAVE_SECONDS, shield=True), suppress(CraftcoreError):
                await self.streams.save()

    # Budget

    def charge_budget(self) -> None:
        """Count one more item of work. A task that used up its work budget is suspended until a person says more."""
        done = len(self.memo) + len(self.acts)
        if self.task.steps_alone + done < self.services.settings.max_steps:  # more than enough, whatever was renewed
            return
        if self.task.steps_alone + self.spent < self.services.settings.max_steps:
            return
        used = format_count(self.services.settings.max_steps, "step")
        self.suspend_with(self.parked.collect(budget_wait(self.task, used, f"{self.task.turn}:{done}")))

    # Waiting

    async def wait_or_suspend(self, kind: str, key: str | None, make: Callable[[str], NewWait]) -> Wait:
        """Return the wait of this identity once it is over; suspends the turn until then.

        Raises InvalidInput or KeyRequired.
        """
        name = self.next_ordinal(kind, key)
        return self.resolved_wait(name) or await self.suspend_for(make(name))

    def resolved_wait(self, name: str) -> Wait | None:
        """Return the wait of this turn that is known by that name and is over; None when it has not begun."""
        return self._entry.waits.get(name)

    @property
    def received_waits(self) -> list[Wait]:
        """The waits of this turn by which a message may have come before this entry."""
        return [wait for wait in self._entry.waits.values() if wait.kind in (WaitKind.EVENT, WaitKind.QUESTION)]

    def find_alternative(self, name: str) -> Wait | None:
        """Return the wait that came first of those that the turn knows by that name together; None: none came yet."""
        return next((wait for wait in self._entry.waits.values() if wait.any_of == name), None)

    def is_still_open(self, name: str) -> bool:
        """Return whether this wait was begun at an earlier entry, and is not over."""
        return name in self._entry.still_open

    async def suspend_for(self, wait: NewWait) -> NoReturn:
        """Unwind the turn until a wait is over: at once from its own task, from one beside it once nothing of the turn
        is in flight."""
        self.refuse_when_over()
        if not self.is_own_task:
            if self.services.no_waits is not None:
                raise InvalidInput(self.services.no_waits)
            await self.parked.suspend_when_idle(wait)
        self.wait = self.parked.collect(wait)
        self._unwinds = True
        self.parked.look_again()
        raise Suspend(self.wait.identity)

    async def suspend_for_act(self, wait: NewWait) -> NoReturn:
        """Unwind the turn until an act is out of doubt. An exception that already unwinds it counts."""
        if not self.is_own_task:
            await self.parked.suspend_when_idle(wait)
        self.suspend_with(self.parked.collect(wait))

    def suspend_with(self, wait: NewWait) -> NoReturn:
        """Unwind the turn from whichever of its tasks this is called. An exception that already unwinds it counts."""
        if self.wait is None:
            self.wait = wait
            self.attempt.stop("parked")
            self.parked.look_again()
        raise Suspend(self.wait.identity)  # not only cancelled: it may be in a shielded scope

    def running_call(self) -> RunningCall:
        """Return the context manager of a call that ends before the turn is suspended for tasks beside its own."""
        return RunningCall(self.parked)

    async def end(self) -> None:
        self.parked.look_again()
        await super().end()

    def retry_act_later(self, message: str, after: float | None) -> NoReturn:
        """End this attempt; the next one, not sooner than `after` seconds from now, enters the turn again."""
        self.again = RetryActLater(message, after)
        raise self.again

    def moment_after(self, what: str, length: Duration) -> float:
        """Return the moment that many seconds from now. Raises InvalidInput, which names `what`, for anything but a
        number of seconds."""
        return resolve_delay(self.services.clock.now(), what, length)

    def refuse_when_over(self) -> None:
        """Raise StateRefused; InvalidInput on another event loop than the turn's. In a task that cannot know yet that
        the turn is suspended, Suspend: it unwinds, too."""
        if not self.services.loop.is_current():
            raise InvalidInput(
                f"{self.calls_made.describe_caller()} runs on another event loop than its turn, and did nothing: await "
                "it in the workflow. The function of a step can return the values that the workflow then passes to ctx"
            )
        if self.is_over:
            raise StateRefused("the turn is over: nothing of ctx can be used after its workflow has returned")
        if self.again is not None:
            raise self.again
        if self.wait is None:
            return
        if self._unwinds and self.services.loop.get_current_task() is self._own_task:
            raise StateRefused("the turn is suspended: nothing of ctx can be used while it unwinds")
        raise Suspend(self.wait.identity)
