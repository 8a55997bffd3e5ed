"""The heartbeats of one entry, and the answers of the cluster.

The SDK sends a heartbeat at some time and does not say whether it has arrived. A worker must know: once no heartbeat
was acknowledged for the timeout, the cluster may have given its entry to another worker. So these are sent directly.
"""

from __future__ import annotations

import asyncio
from datetime import timedelta
from enum import Enum

from temporalio.client import AsyncActivityCancelledError, AsyncActivityHandle
from temporalio.service import RPCError

from craftcore.clock import Clock
from craftcore.engine.attempt import Attempt
from craftcore.temporal.rpc_errors import is_missing
from craftcore.temporal.workflow.messages import BEGUN

HEARTBEATS = 3
"""Heartbeats within the time after which a silent worker is dead."""

RETRY_SECONDS = 0.5


class Answer(Enum):
    """The answer of the cluster to a heartbeat. SILENT: there is none yet; LOST: the entry is given up, or may be."""

    OURS = 1
    CANCELLED = 2
    SILENT = 3
    LOST = 4


class Heartbeats:
    """Heartbeats of one entry. `timeout`: seconds after which the cluster gives it up.

    Its time goes on while the machine is suspended, as that of the cluster does.
    """

    def __init__(self, handle: AsyncActivityHandle, timeout: float, clock: Clock) -> None:
        self._handle = handle
        self._timeout = timeout
        self._clock = clock
        self._stopped_at: float | None = None
        self._sent_at = clock.boot_time()
        """When the last heartbeat was sent that the cluster has acknowledged."""
        self.details: tuple[str, ...] = ()
        """The details of each heartbeat."""
        self.is_refused = False
        """The cluster has answered that it gave the entry up."""

    @property
    def wait(self) -> float:
        """Return the seconds until the next heartbeat, or until the entry may be given up."""
        left = self._sent_at + self._timeout - self._clock.boot_time()
        interval = self._timeout / HEARTBEATS
        return min(interval, left) if left > 0 else interval

    def may_be_lost(self) -> bool:
        """Return whether the cluster may have given the entry up. Any thread may ask."""
        return self.is_refused or self.judge() is Answer.LOST

    def note_stop(self) -> None:
        """Note that the worker stops, and that the time which it leaves to its entries is over."""
        if self._stopped_at is None:
            self._stopped_at = self._clock.boot_time()

    def has_stopped(self) -> bool:
        """Return whether the worker stops, and nothing is sent any more: the cluster was silent for the timeout, or has
        had that time since. Any thread may ask."""
        stopped_at = self._stopped_at
        if stopped_at is None:
            return False
        return self.judge() is Answer.LOST or self._clock.boot_time() - stopped_at >= self._timeout

    async def send_heartbeat(self) -> Answer:
        sent_at = self._clock.boot_time()
        try:
            await self._handle.heartbeat(*self.details, rpc_timeout=timedelta(seconds=self.wait))
        except AsyncActivityCancelledError as error:
            self._sent_at = sent_at
            is_cancelled = error.details is not None and error.details.cancel_requested
            return Answer.CANCELLED if is_cancelled else Answer.OURS
        except RPCError as error:
            if is_missing(error):
                self.is_refused = True
                return Answer.LOST
            return self.judge()
        self._sent_at = sent_at
        return Answer.OURS

    async def mark_begun(self, attempt: Attempt) -> None:
        """Let the cluster know that the code of the entry begins now, before it does. It is sent until the cluster has
        accepted it, or the entry is stopped. On the loop of the user's code."""
        self.details = (BEGUN,)
        while attempt.stopped_by is None and not self.may_be_lost():
            try:
                await self._handle.heartbeat(*self.details, rpc_timeout=timedelta(seconds=self._timeout))
                return
            except AsyncActivityCancelledError:
                return  # the other heartbeats see that, too
            except RPCError as error:
                if is_missing(error):
                    return
            await asyncio.sleep(RETRY_SECONDS)

    def judge(self) -> Answer:
        """Return whether the entry may be given up, without a heartbeat."""
        return Answer.SILENT if self._clock.boot_time() - self._sent_at < self._timeout else Answer.LOST
