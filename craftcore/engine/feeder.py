"""The feeder keeps the claim window filled: it leases due triggers and sleeps until the next one is due.

It wakes at the doorbell (a trigger was emitted, cancelled or settled), at the next due time, and at a slow poll. It
also wakes for a token of a workflow with a rate, and for a free slot in the window. Because of the poll, a lost ring
delays work and loses none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from typing import NamedTuple

import anyio

from craftcore.engine.attempt import Attempt
from craftcore.engine.claim_window import ClaimWindow
from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.events import EngineEvents
from craftcore.engine.faults import fault, report
from craftcore.engine.limits.workflow_limits import Limits
from craftcore.errors import LeaseLost
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.triggers.claim_candidate_store import Budget
from craftcore.triggers.claim_service import ClaimResult
from craftcore.triggers.keyed_claims import KeyedClaims
from craftcore.triggers.limit_keys import KeyAnswer, KeyRequest
from craftcore.triggers.model import Claim, NewTrigger, TriggerSource
from craftcore.triggers.settlement import Failed
from craftcore.triggers.start_holds import NOTHING_HELD, StartHolds, read_holds

log = get_logger(__name__)

URGENT_LIMIT = 16
"""How many that rank before the worst of a full window are claimed at once."""


class ClaimRequest(NamedTuple):
    """The request of a poll, decided on the thread of the event loop. `held`: the heartbeat is due, and this is what
    we hold. `budget`: how many of each limited workflow; None: there are no limits."""

    limit: int
    before_rank: float | None
    busy_lanes: frozenset[str]
    held: frozenset[tuple[int, str]] | None
    budget: Budget | None
    keys: KeyRequest | None = None


class FeedResult(NamedTuple):
    """The result of one poll of the table. `holds`: what may not be claimed. `keys`: what the limits by key found."""

    claimed: ClaimResult
    cancel_requests: list[int]
    holds: StartHolds
    keys: KeyAnswer | None


class Feeder:
    """Claims for one engine. `polls`: how often it polled. `is_drained`: the last poll took all that it might take, and
    no bell rang since. `is_polling`: a poll is on its way, and the engine does not hold its claims yet.

    `starting`: the IDs of triggers on their way to a commit that accepts and starts them. Their claims are not known
    yet. `is_heartbeat_postponed`: it waits for them, because it would take such claims back."""

    def __init__(
        self,
        services: Services,
        commits: DurableCommits,
        window: ClaimWindow,
        limits: Limits,
        events: EngineEvents,
        *,
        epoch: int,
    ) -> None:
        self._claims = services.claims
        self._keyed = KeyedClaims(services.claims, weight=services.config.triggers.priority_weight)
        self._clock = services.clock
        self._claim_batch = services.config.triggers.claim_batch
        self._poll_seconds = services.config.daemon.poll_seconds
        self._commits = commits
        self._window = window
        self._limits = limits
        self._events = events
        self._epoch = epoch
        self._rung = anyio.Event()
        self._more = False
        self._unpushable: list[Claim] = []
        self._unfit: list[tuple[Claim, Failed]] = []
        self.starting: set[str] = set()
        self.is_heartbeat_postponed = False
        self._next_due = math.inf
        self._token_at = math.inf
        self._heartbeat_at = 0.0
        self.paused = False
        self.holds = NOTHING_HELD
        self._has_polled = anyio.Event()
        self.polls, self.is_drained, self.is_polling = 0, False, False

    def ring(self) -> None:
        """Wake the feeder after a change of the table."""
        self.is_drained = False
        self._rung.set()

    def request_reclaim(self) -> None:
        """Poll after a loss of memory, and take back the claims that no attempt holds."""
        self._heartbeat_at = 0.0
        self.ring()

    async def wait_for_first_poll(self) -> None:
        """Wait until the table was looked at for the first time: only then is it known whether the engine is held."""
        await self._has_polled.wait()

    def notify_due(self, due_at: float) -> None:
        """Poll no later than that moment, when a trigger will be due."""
        if self.paused:
            return  # nothing would be claimed
        if due_at <= self._clock.now():
            self.ring()
        elif due_at < self._next_due:
            self._next_due = due_at
            self._rung.set()

    def may_claim_on_emit(self, row: NewTrigger, reserved: int) -> bool:
        """Return whether a new trigger may be claimed on emit. It must be plain and due, and its workflow has no limit.
        The window has a slot beside the `reserved` ones, and holds all earlier due triggers."""
        return (
            self.is_drained
            and not self.paused
            and not self.holds
            and row.is_plain
            and self._limits.workflow_of(row) is None
            and len(self._window) + reserved < self._claim_batch
            and row.due_at <= self._clock.now()
        )

    def push_claimed(self, claim: Claim) -> None:
        """Push a trigger that was claimed when it was created: a new one, or the next turn of a task. The window may be
        full then: the turn takes the place of the one before."""
        if self._push_unless_held(claim):
            self._events.on_claimed()

    def note_started(self, attempts: Sequence[Attempt]) -> None:
        """Note the started claims: now it is known when their tokens return."""
        if not self._limits:
            return
        self._limits.note_started([attempt.claim for attempt in attempts], self._clock.boot_time())
        if (token_at := self.next_token_at()) < self._token_at:
            self._token_at = token_at
            self._rung.set()

    def notify_slot_freed(self) -> None:
        """Wake the feeder: the window has a free slot."""
        if self._more and len(self._window) <= self._claim_batch // 2:
            self._more = False
            self._rung.set()

    async def feed(self) -> None:
        """Poll, claim, sleep; until cancelled."""
        while True:
            self._rung = anyio.Event()
            self._next_due = math.inf  # what becomes due while the poll is on its way must ring: it may miss that
            request = self._claim_request()
            self.is_polling = True
            result: FeedResult = await self._commits.commit(self._poll, request)
            hit(Failpoint.CLAIM_COMMITTED)
            self.is_polling = False
            self._take(request, result)
            if unpushable := list(self._unpushable):
                await self._commits.commit(self._claims.release_unstarted, unpushable)
                del self._unpushable[: len(unpushable)]
                self.ring()  # others may have their lanes now, and their places
            await self._fail_unfit()
            self._token_at = self.next_token_at()
            if request.limit > 0 and result.holds.everything is None:
                # The window may have emptied while the poll was on its way, and nothing may start again.
                self.notify_slot_freed()
            await self._sleep()

    def _claim_request(self) -> ClaimRequest:
        held = None
        is_due = self._clock.boot_time() >= self._heartbeat_at
        self.is_heartbeat_postponed = is_due and bool(self.starting)
        if is_due and not self.starting:
            self._heartbeat_at = self._clock.boot_time() + self._claims.lease_seconds / 3
            held = frozenset(
                (claim.seq, claim.lease_token)
                for claim in chain(self._events.held_claims, self._unpushable, (each for each, _ in self._unfit))
            )
        free = self._claim_batch - len(self._window)
        lanes = self._window.busy_lanes
        events, now = self._events, self._clock.boot_time()
        budget = self._limits.budget(events.held_claims, events.running_claims, now)
        if self.paused or free <= -self._claim_batch:
            return ClaimRequest(0, None, lanes, held, budget)
        keys = self._limits.keys.begin_look(events.held_claims, events.running_claims, now)
        if free > 0:
            return ClaimRequest(free, None, lanes, held, budget, keys)
        return ClaimRequest(URGENT_LIMIT, self._window.worst, lanes, held, budget, keys)

    def _poll(self, tx: Transaction, request: ClaimRequest) -> FeedResult:
        """Poll the table once, on the thread of the writer."""
        if request.held is not None:
            if request.held:
                self._claims.extend_leases(tx, self._epoch)
            self._claims.reclaim_strays(tx, self._epoch, request.held)
        holds = read_holds(tx)
        claimed, keys = self._keyed.claim(
            tx,
            request.keys,
            epoch=self._epoch,
            limit=request.limit,
            busy_lanes=request.busy_lanes,
            before_rank=request.before_rank,
            holds=holds,
            budget=self._limits.close_workflows(request.budget, holds.workflows),
        )
        return FeedResult(claimed, self._claims.cancel_requests(tx, self._epoch), holds, keys)

    def _take(self, request: ClaimRequest, result: FeedResult) -> None:
        """Push what was claimed. A claim whose lane a router took in the meantime is handed back."""
        self.polls += 1
        self._has_polled.set()
        claimed = result.claimed
        self._unpushable += [claim for claim in claimed.claims if not self._push(claim)]
        if self._limits.keys.end_look(result.keys, self._events.held_claims, self._events.running_claims):
            self.ring()
        self._more = claimed.more
        can_claim = request.limit > 0 and result.holds.everything is None
        self.is_drained = not (claimed.more and can_claim) and not self._rung.is_set()
        if claimed.next_due is not None:
            self._next_due = min(self._next_due, claimed.next_due)
        if result.holds != self.holds:
            self._apply_holds(result.holds)
        if claimed.claims:
            self._events.on_claimed()
        if result.cancel_requests:
            self._events.on_cancel_requests(result.cancel_requests)

    def _apply_holds(self, holds: StartHolds) -> None:
        """Take what is held now out of the window, to be given back, and log the change."""
        before, self.holds = self.holds, holds
        for claim in self._window.claims():
            if self._is_held(claim):
                self._unpushable.append(self._window.take_out(claim))
        log_hold_changes(before, holds)

    def _push_unless_held(self, claim: Claim) -> bool:
        """Push such a trigger. False: it is held now, or its lane is taken, and it is given back."""
        if not self._is_held(claim) and self._push(claim):
            return True
        self._unpushable.append(claim)
        self.ring()
        return False

    def _is_held(self, claim: Claim) -> bool:
        holds = self.holds
        return bool(holds) and holds.is_held(claim.source, self._limits.find_workflow(claim), claim.schedule_id)

    def may_claim_turn(self, workflow: str | None) -> bool:
        """Return whether the next turn of a task may be claimed when it is created: no hold on it was found."""
        is_held = bool(self.holds) and self.holds.is_held(TriggerSource.CONTINUATION, workflow, None)
        return not (self.paused or is_held)

    def _push(self, claim: Claim) -> bool:
        """Return whether the window takes it. A claim that meets an error of craftcore there fails at once."""
        try:
            return self._window.push(claim)
        except Exception as error:
            report(claim, "queue", error)
            self._unfit.append((claim, fault(error, "queue")))
            self.ring()
            return True

    async def _fail_unfit(self) -> None:
        while self._unfit:
            with suppress(LeaseLost):
                await self._commits.commit(self._claims.fail, *self._unfit[0])
            del self._unfit[0]

    def next_token_at(self) -> float:
        held, running = self._events.held_claims, self._events.running_claims
        return min(self._limits.next_token(held, running), self._limits.keys.next_token(held, running))

    async def _sleep(self) -> None:
        """Wait until the doorbell, the next due time, the next token, the heartbeat or the poll."""
        waits = (
            self._poll_seconds,
            self._claims.lease_seconds / 3,
            self._next_due - self._clock.now(),
            self._token_at - self._clock.boot_time(),
        )
        with anyio.move_on_after(max(0.0, min(waits))):
            await self._rung.wait()


def log_hold_changes(before: StartHolds, after: StartHolds) -> None:
    """Log which holds stand that did not before, and which were released."""
    if after.everything is not None and after.everything != before.everything:
        log.warning("engine.held", reason=after.everything)
    elif before.everything is not None and after.everything is None:
        log.warning("engine.released")
    if after.safe_mode != before.safe_mode:
        log.warning("engine.safe_mode", reason=after.safe_mode or "released")
    for target in before.targets.keys() ^ after.targets.keys():
        log.warning("engine.hold", target=str(target), reason=after.targets.get(target, "released"))
