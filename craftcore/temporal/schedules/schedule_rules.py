"""The rules of one schedule on a cluster: those of a database, over its book. Nothing is started here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import cast

from craftcore.clock import SystemClock
from craftcore.config import Config
from craftcore.errors import CraftcoreError, InvalidInput, ScheduleInvalid, StateRefused
from craftcore.schedules.firing import FiringResult
from craftcore.schedules.model import Origin, Overlap, ScheduleSpec, ScheduleStatus
from craftcore.schedules.recurrence.moment_text import read_moment
from craftcore.schedules.recurrence.timing import Startup
from craftcore.schedules.service import ScheduleService
from craftcore.schedules.tick_service import TickService
from craftcore.storage.transaction import Transaction
from craftcore.temporal.schedules.schedule_book import BookAccount, BookRow, BookTriggers
from craftcore.temporal.workflow.schedule_messages import ScheduleBook, ScheduleCall, ScheduleMove
from craftcore.triggers.service import TriggerService

ID_MAX = 100
"""Characters of the id of a schedule: the dedup keys of its tasks have room for a moment."""


@dataclass(frozen=True, slots=True)
class Moment:
    """All that the rules use of a transaction: its time."""

    now: float


class ScheduleRules:
    """The rules of a machine: its time zone and its limits."""

    def __init__(self, config: Config, heartbeat_timeout: float) -> None:
        self._payload_max = config.triggers.payload_max_bytes
        self._heartbeat_timeout = heartbeat_timeout

    def move(self, call: ScheduleCall, book: ScheduleBook, now: float) -> ScheduleMove:
        """Return what is to be done. A refusal is part of the answer."""
        clock = FixedClock(now)
        try:
            account, store = BookAccount(book), BookRow(book)
        except (CraftcoreError, ValueError, TypeError, KeyError) as error:
            reason = f"this worker cannot read the schedule, which is damaged, or of a newer craftcore: {error}"
            return ScheduleMove(error_name=StateRefused.__name__, error=reason)
        checks = TriggerService(clock, read_moment, payload_max_bytes=self._payload_max)
        triggers = BookTriggers(checks, account, self._heartbeat_timeout)
        desk = Desk(
            ScheduleService(clock, triggers, store, account),
            TickService(triggers, store, account),
            store,
            cast(Transaction, Moment(now)),
        )
        try:
            done = desk.apply_call(call, book)
        except CraftcoreError as error:
            return ScheduleMove(error_name=type(error).__name__, error=error.message)
        return ScheduleMove(
            row=store.columns(),
            lines=account.list_changed(),
            lines_made=account.lines_made,
            started=triggers.list_started(),
            next_at=None if store.row is None else store.row.next_at,
            revision=max(book.revision, call.revision),
            change=done.change,
            moment=done.moment,
            placed=[asdict(one) for one in done.placed],
        )


class FixedClock(SystemClock):
    """The time of the cluster at a move."""

    def __init__(self, now: float) -> None:
        super().__init__()
        self._now = now

    def now(self) -> float:
        return self._now


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied:
    """The result of a call: what a declaration changed, the moment that is skipped, and the occurrences that were asked
    for."""

    change: str = ""
    moment: float | None = None
    placed: Sequence[FiringResult] = ()


@dataclass(frozen=True, slots=True)
class Desk:
    """The calls of a schedule, over the services of one move."""

    schedules: ScheduleService
    ticks: TickService
    store: BookRow
    tx: Transaction

    def apply_call(self, call: ScheduleCall, book: ScheduleBook) -> Applied:
        """Do what is asked. Raises CraftcoreError."""
        schedules, tx = self.schedules, self.tx
        if call.kind == "declare":
            return Applied(change=self._declare(call, book))
        row = self.store.row
        if row is None:
            return Applied()
        match call.kind:
            case "tick":
                self.ticks.tick(tx)
            case "undeclare":
                if call.revision >= book.revision and row.status is ScheduleStatus.ACTIVE:
                    schedules.declare(tx, row.origin, [])
                    return Applied(change="disabled")
                return Applied(change="unchanged")
            case "pause":
                schedules.pause(tx, row.id, call.reason)
            case "resume":
                schedules.resume(tx, row.id)
            case "run-now":
                return Applied(placed=[schedules.run_now(tx, row.id)])
            case "skip-next":
                return Applied(moment=schedules.skip_next(tx, row.id))
            case "backfill":
                return Applied(placed=schedules.backfill(tx, row.id, call.since, call.until))
            case _:
                raise InvalidInput(f"a schedule has no call {call.kind}: the worker is older than the client")
        return Applied()

    def _declare(self, call: ScheduleCall, book: ScheduleBook) -> str:
        assert call.spec is not None, call
        if call.revision < book.revision:
            return "older"
        put = self.schedules.put(self.tx, ScheduleSpec(**call.spec), Origin(call.origin))
        if isinstance(put.schedule.timing, Startup):
            self.ticks.fire_startup(self.tx)
        return put.change


def refuse_beyond_cluster(spec: ScheduleSpec) -> None:
    """Raise ScheduleInvalid for what a schedule of a cluster does not keep."""
    if len(spec.id) > ID_MAX:
        raise ScheduleInvalid(f"id {spec.id!r:.80} has {len(spec.id)} characters; on a cluster the limit is {ID_MAX}")
    if spec.session_id is not None:
        raise ScheduleInvalid("on a cluster, a schedule takes no session_id")


def is_blocked(book: ScheduleBook) -> bool:
    """Return whether an occurrence would have to wait for what is noted as running."""
    return bool(book.running) and book.row is not None and book.row["overlap"] != Overlap.ALLOW
