"""Triggers that are due when they are emitted: the commit that accepts one also claims it.

    room in the engine     the commit also starts it: attempt, record and turn; its code runs after that flush
    room in the window     it starts in the next commit

Anything else goes through the table. An error of craftcore while a trigger is started never refuses the trigger: it is
accepted without its start, and fails where every start fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from craftcore.engine.attempt import Attempt
from craftcore.engine.attempt_commits import AttemptCommits
from craftcore.engine.consumer import Consumer
from craftcore.engine.events import EngineEvents
from craftcore.engine.faults import fault
from craftcore.engine.feeder import Feeder
from craftcore.failpoints import Failpoint, hit
from craftcore.log import get_logger
from craftcore.services import Services
from craftcore.storage.transaction import Transaction
from craftcore.storage.writer import Writer
from craftcore.triggers.model import Claim, NewTrigger

log = get_logger(__name__)


class DueEmits:
    """Emits of one engine."""

    def __init__(
        self,
        services: Services,
        writer: Writer,
        attempts: AttemptCommits,
        feeder: Feeder,
        consumer: Consumer,
        events: EngineEvents,
        *,
        epoch: int,
    ) -> None:
        self._writer = writer
        self._attempts = attempts
        self._feeder = feeder
        self._consumer = consumer
        self._events = events
        lease_seconds = services.claims.lease_seconds
        self._emit_claimed = partial(services.triggers.emit_claimed, epoch=epoch, lease_seconds=lease_seconds)
        self._reserved = 0
        """How many are on their way to the window."""

    async def emit(self, row: NewTrigger) -> bool:
        """Accept a trigger that need not go through the table; it is on disk then. False: it must, and nothing was
        written."""
        if not self._feeder.may_claim_on_emit(row, self._reserved):
            return False
        if not (self._may_start() and await self._start(row)):
            await self._claim(row)
        return True

    def _may_start(self) -> bool:
        """Take a slot, if nothing is on its way to the window. Not beside a look, which may take back claims that the
        engine does not know yet."""
        feeder = self._feeder
        is_first = not (self._reserved or feeder.is_looking or feeder.is_heartbeat_postponed)
        return is_first and self._consumer.reserve_slot()

    async def _claim(self, row: NewTrigger) -> None:
        """Accept a trigger as claimed, and push it into the window."""
        self._reserved += 1
        claim: Claim | None = None
        try:
            claim = await self._writer.commit_batched(self._emit_claimed, row)
            hit(Failpoint.EMIT_COMMITTED)
        finally:
            self._reserved -= 1
            if claim is not None:
                self._feeder.push_claimed(claim)

    async def _start(self, row: NewTrigger) -> bool:
        """Accept and start a trigger that has a slot. False: an error of craftcore, and nothing was written."""
        starting = self._feeder.starting
        starting.add(row.id)
        try:
            await self._writer.commit_batched(self._emit_and_start, row)
        except BaseException as error:
            fault(error, "start")  # raises what concerns the storage or the caller
            log.warning("emit.not_started", trigger=row.id, exc_info=error)
            return False
        finally:
            if row.id in starting:  # nothing was written
                starting.remove(row.id)
                self._consumer.release_slot()
                self._events.on_emit_refused()
            if self._feeder.is_heartbeat_postponed and not starting:
                self._feeder.ring()
        return True

    def _emit_and_start(self, tx: Transaction, rows: Sequence[NewTrigger]) -> list[Claim | Exception]:
        """Insert and start triggers, on the writer's thread. The attempts are handed over before any caller goes on, so
        a caller that was cancelled loses nothing."""
        answers = self._emit_claimed(tx, rows)
        claims = [claim for claim in answers if isinstance(claim, Claim)]
        runs = self._attempts.start_all(tx, claims, alone=False, outlived=None)
        tx.after_commit(self._take, claims, runs)
        return answers

    def _take(self, claims: list[Claim], runs: list[Attempt]) -> None:
        """Give started attempts to the workers, on the thread of the loop."""
        for claim in claims:
            if claim.id in self._feeder.starting:
                self._feeder.starting.remove(claim.id)
            else:  # its caller is gone for good, and gave the slot back
                self._consumer.slots.taken += 1
            hit(Failpoint.EMIT_COMMITTED)
        try:
            self._consumer.take_started(claims, runs)
        except BaseException as error:
            self._events.crash("an error of craftcore while it handed over what it had started", error)
