"""The activity of one entry of a turn: it runs on the loop of its worker, and the user's code on another."""

from __future__ import annotations

import asyncio
from functools import partial

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from craftcore.clock import SystemClock, utc_iso
from craftcore.engine.attempt import Attempt, Why
from craftcore.log import get_logger
from craftcore.temporal.entries.declared_limits import refuse_entry
from craftcore.temporal.entries.entry_runner import ClusterClock, EntryRunner, ask_stale
from craftcore.temporal.entries.heartbeats import Answer, Heartbeats
from craftcore.temporal.entries.open_entry import OpenEntry
from craftcore.temporal.entries.user_loop import UserLoop
from craftcore.temporal.workflow.messages import ACTIVITY, HANDED_BACK, EntryEnd, EntryStart

log = get_logger(__name__)

BLOCKED_SECONDS = 60.0
"""How long the loop of the user's code may be blocked. Then its worker gives up the entries on it, on purpose."""

UNKNOWN_SECONDS = 600.0
"""How long a workflow that this worker does not know is left to others, as in a rolling deployment."""

HAND_BACK_SECONDS = 10.0
"""Seconds until an entry that was handed back is offered again."""


class TurnActivity:
    """Runs entries of turns of one app. The seconds are those of the constants. `shutdown_grace`: how long entries may
    go on when their worker stops."""

    def __init__(
        self,
        client: Client,
        user: UserLoop[EntryRunner],
        *,
        shutdown_grace: float = 0.0,
        blocked_seconds: float = BLOCKED_SECONDS,
        unknown_seconds: float = UNKNOWN_SECONDS,
        hand_back_seconds: float = HAND_BACK_SECONDS,
    ) -> None:
        self._client = client
        self._user = user
        self._shutdown_grace = shutdown_grace
        self._blocked_seconds = blocked_seconds
        self._unknown_seconds = unknown_seconds
        self._hand_back_seconds = hand_back_seconds

    @activity.defn(name=ACTIVITY)
    async def run(self, given: EntryStart) -> EntryEnd:
        """Run one entry to its end. It returns an outcome and raises none: only the death of a worker is an error."""
        info, runner = activity.info(), self._user.opened
        machine = SystemClock()
        clock = ClusterClock(info.started_time.timestamp(), machine)
        if (end := self._refuse(given, clock.now())) is not None:
            return end
        attempt = runner.make_attempt(given)
        handle = self._client.get_async_activity_handle(task_token=info.task_token)
        heartbeats = Heartbeats(handle, given.start.heartbeat_timeout, machine)
        opened = OpenEntry(
            client=self._client,
            workflow_id=info.workflow_id or "",
            task_id=given.task.id,
            token=given.token,
            run_id=info.workflow_run_id,
            may_be_lost=heartbeats.may_be_lost,
            has_stopped=heartbeats.has_stopped,
            mark_begun=partial(heartbeats.mark_begun, attempt) if given.crashes else None,
        )
        running = self._user.start(runner.run(opened, info.task_queue, given, attempt, clock))
        sending = asyncio.create_task(self._send_heartbeats(heartbeats, attempt, asyncio.wrap_future(running)))
        leaving = asyncio.create_task(self._leave_after_grace(heartbeats, attempt))
        while not sending.done():
            try:
                await asyncio.wait({sending})
            except asyncio.CancelledError:
                details = activity.cancellation_details()
                is_person = details is not None and details.cancel_requested
                self._stop(attempt, "cancelled" if is_person else "shutdown")
                if running.done():  # it only waits for an answer of the cluster
                    sending.cancel()
                if (task := asyncio.current_task()) is not None:
                    task.uncancel()
        leaving.cancel()
        if heartbeats.has_stopped() and heartbeats.judge() is Answer.LOST and not heartbeats.is_refused:
            activity.raise_complete_async()  # the cluster cannot be reached; it gives the entry to another worker
        if not sending.cancelled() and sending.result():
            try:
                await opened.run.signal("survived", given.token)
            except RPCError:  # its run has ended, or the cluster is away again
                pass
        return running.result()

    def _refuse(self, given: EntryStart, now: float) -> EntryEnd | None:
        """Return the end of an entry that this worker leaves to others."""
        since = now if given.handed_back_since is None else given.handed_back_since
        if self._is_blocked():
            reason = "its worker is blocked"
        elif not self._user.opened.has_workflow(given.task) and now - since < self._unknown_seconds:
            reason = f"its worker does not know workflow {given.task.workflow}"
        else:
            app, max_age = self._user.opened.app, self._user.opened.resume_max_age
            refused = refuse_entry(app, given, activity.info().task_queue, now)
            return ask_stale(app, given, max_age, now) if refused is None else refused
        later = now + self._hand_back_seconds
        log.info("trigger.released", trigger=given.task.id, reason=reason, not_before=utc_iso(later))
        return EntryEnd(status="PENDING", reason=reason, move=HANDED_BACK, not_before=later, handed_back_since=since)

    async def _send_heartbeats(
        self, heartbeats: Heartbeats, attempt: Attempt, running: asyncio.Future[EntryEnd]
    ) -> bool:
        """Send heartbeats until the entry has ended, and stop it when the cluster has given it up, or may have.

        Return whether the cluster gave it up although this worker was neither dead nor blocked: the cluster could not
        be reached, or the worker was frozen. The task is not to blame for it.
        """
        answer, was_blocked = Answer.OURS, False
        while not running.done():
            await asyncio.wait({running}, timeout=heartbeats.wait)
            if running.done():
                break
            if self._is_blocked():
                if not was_blocked:
                    log.error("temporal.loop_blocked", task=attempt.claim.id, seconds=self._blocked_seconds)
                was_blocked, answer = True, heartbeats.judge()
            else:
                activity.heartbeat(*heartbeats.details)
                answer = await heartbeats.send_heartbeat()
            if answer is Answer.CANCELLED:
                self._stop(attempt, "cancelled")
            elif answer is Answer.LOST:
                self._stop(attempt, "shutdown")
        while answer in (Answer.SILENT, Answer.LOST) and not heartbeats.is_refused and not heartbeats.has_stopped():
            await asyncio.sleep(heartbeats.wait)
            answer = await heartbeats.send_heartbeat()
        return heartbeats.is_refused and not was_blocked

    async def _leave_after_grace(self, heartbeats: Heartbeats, attempt: Attempt) -> None:
        """Stop the entry when its worker has stopped for long enough, also when it was cancelled before."""
        await activity.wait_for_worker_shutdown()
        await asyncio.sleep(self._shutdown_grace)
        self._stop(attempt, "shutdown")
        heartbeats.note_stop()

    def _is_blocked(self) -> bool:
        return self._user.measure_silence() > self._blocked_seconds

    def _stop(self, attempt: Attempt, why: Why) -> None:
        self._user.call_soon(partial(attempt.stop, why))
