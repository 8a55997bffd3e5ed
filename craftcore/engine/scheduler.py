"""The scheduler: sleeps until the next occurrence, ticks, and tells the feeder what it fired.

It looks again at least every 30 seconds, because a wall clock may be set and a machine suspended while it sleeps.
"""

from __future__ import annotations

from typing import NamedTuple

import anyio

from craftcore.engine.durable_commit import DurableCommits
from craftcore.engine.events import EngineEvents
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.schedules.clock_guard import BACKWARD_MAX, STEP_MIN, ClockChange, ClockSample, ClockTrust, clock_change
from craftcore.schedules.model import Outcome
from craftcore.schedules.tick_service import Ticked
from craftcore.services import Services
from craftcore.storage.facts import get_fact
from craftcore.storage.transaction import Transaction

log = get_logger(__name__)

RECHECK_SECONDS = 30.0
CLOCK_SEEN_SECONDS = 900.0
"""How often the time is stored for the next boot: far less than what a clock may go back unnoticed."""


class ClockState(NamedTuple):
    """The clocks, as a tick of the schedules receives them. `latest`: the furthest the wall clock has been since this
    boot."""

    change: ClockChange
    latest: float
    store: bool
    set_back: float | None
    """Seconds that the clock was set back by since the last look. 0.0: the previous look found a change, and this look
    finds the rows written meanwhile. None: neither."""


class Scheduler:
    """Ticks for one engine."""

    def __init__(self, services: Services, commits: DurableCommits, events: EngineEvents, *, epoch: int) -> None:
        self._ticks = services.ticks
        self._clock = services.clock
        self._trust = ClockTrust()
        self._commits = commits
        self._events = events
        self._epoch = epoch
        self._rung = anyio.Event()
        self._before = self._read()
        self._latest = self._before.wall
        self._store_at = self._before.boot_time + CLOCK_SEEN_SECONDS
        self._was_set_back = False
        self.paused = False
        self.held = False
        """Schedules wait: for a person, or for the clock to be back where it was."""
        self.polls = 0
        """How often it polled."""
        self.is_drained = False
        """The last poll accounted for all that had come, and no bell rang since."""

    def ring(self) -> None:
        """Wake the scheduler: a schedule changed, or a trigger that an occurrence waits for is settled."""
        self.is_drained = False
        self._rung.set()

    async def schedule(self) -> None:
        """Tick, sleep; until cancelled."""
        while True:
            self._rung = anyio.Event()
            ticked: Ticked | None = None
            if not self.paused:
                clocks = self._observe()
                ticked = await self._commits.commit(self._poll, clocks)
                hit(Failpoint.TICK_COMMITTED)
                if clocks.latest - self._before.wall > BACKWARD_MAX:
                    self._latest = self._before.wall  # the table remembers it now, and a person may overrule the table
                self._log_tick(clocks, ticked)
                if clocks.set_back is not None:
                    self._events.on_due(self._before.wall)  # some may be due now
            self.polls += 1
            if ticked is not None and ticked.due_at is not None:
                self._events.on_due(ticked.due_at)
            more = ticked is not None and ticked.more
            self.is_drained = not more and not self._rung.is_set()
            if not more:
                await self._sleep(None if ticked is None else ticked.next_at)

    def _poll(self, tx: Transaction, clocks: ClockState) -> Ticked | None:
        """Run the tick on the thread of the writer. None when schedules are held."""
        self._trust.note(tx, self._epoch, clocks.change)
        if clocks.set_back is not None and (changed := self._trust.set_back(tx, clocks.set_back)):
            tx.after_commit(log.warning, "clock.delays_set_back", changed=changed)
        self._trust.hold_if_behind(tx, self._epoch, clocks.latest)
        if self._trust.is_held(tx, self._epoch) or get_fact(tx, "held") or get_fact(tx, "safe_mode"):
            return None
        ticked = self._ticks.tick(tx)
        if ticked.fired or (clocks.store and ticked.next_at is not None):
            self._trust.store_time(tx)
        hit(Failpoint.TICK_WRITTEN)
        return ticked

    def _observe(self) -> ClockState:
        """Compare the clocks with what they showed at the last look."""
        now = self._read()
        change = clock_change(self._before, now)
        self._before = now
        self._latest = max(self._latest, now.wall)
        store = now.boot_time >= self._store_at
        if store:
            self._store_at = now.boot_time + CLOCK_SEEN_SECONDS
        back = -change.step if change.step <= -STEP_MIN else 0.0 if self._was_set_back else None
        self._was_set_back = bool(back)
        return ClockState(change, self._latest, store, back)

    def _log_tick(self, clocks: ClockState, ticked: Ticked | None) -> None:
        """Log the steps of the clocks, and the occurrences that did not fire. A schedule that fired has a record."""
        if clocks.change.is_worth_noting:
            log.warning("clock.moved", step=round(clocks.change.step, 3), asleep=round(clocks.change.asleep, 3))
        if self.held is not (ticked is None):
            self.held = ticked is None
            log.warning("schedules.held" if self.held else "schedules.going_on")
        if ticked is not None:
            log_ticked(ticked)
            self._events.on_ticked(ticked)

    def _read(self) -> ClockSample:
        return ClockSample(wall=self._clock.now(), boot_time=self._clock.boot_time(), awake=self._clock.awake_time())

    async def _sleep(self, next_at: float | None) -> None:
        """Wait until the doorbell, the next occurrence or the next check."""
        wait = RECHECK_SECONDS if next_at is None else min(RECHECK_SECONDS, next_at - self._clock.now())
        with anyio.move_on_after(max(0.0, wait)):
            await self._rung.wait()


def log_ticked(ticked: Ticked) -> None:
    """Log what did not fire, and why."""
    for schedule_id, run in ticked.skipped:
        log.info("schedule.skipped", schedule=schedule_id, count=run.count, reason=run.reason)
    for placed in ticked.placed:
        if placed.outcome is Outcome.SKIPPED and not placed.again:
            log.info("schedule.skipped", schedule=placed.schedule_id, count=1, reason=placed.reason)
    for schedule_id, reason in ticked.disabled:
        log.error("schedule.disabled", schedule=schedule_id, reason=reason)
